"""A tool call in the transcript, as a card: its tool and state, its arguments, its result."""

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.guarded import Guarded
from tui.keymap import KeymapApp
from tui.markdown.highlight import format_arguments
from tui.state.item_view import ItemView, duration
from tui.widgets.text_stream import TextStream
from tui.widgets.virtual_scroll import Foldable

FOLDED_LINES = 12
"""Lines of a result that are shown while it is collapsed: the first, of a failure the last."""
STATE_MARKS = {"writing": "○", "waiting": "?", "running": "◐", "done": "●", "failed": "✗"}
STATE_COLOURS = {"waiting": "$text-warning", "done": "$text-success", "failed": "$text-error"}


class ToolCallCard(Guarded, Foldable, Vertical):
    """Shows one call while its arguments stream, while it waits and runs, and with its result."""

    app: KeymapApp
    DEFAULT_CSS = """
    ToolCallCard {
        height: auto; padding: 0 1; background: $surface; border-left: outer $rule;
        &:focus-within { border-left: outer $accent; }
        & > .head { height: 1; color: $text-muted; }
        & > TextStream { margin-left: 2; }
        & > .result { color: $text-muted; border-top: solid $rule; }
    }
    """

    def __init__(self, item: ItemView) -> None:
        self._title = Static("", classes="head", markup=False)
        self._arguments = TextStream(grows=True, follows=False, classes="arguments")
        super().__init__(self._title, self._arguments)
        self.item = item
        self._result: TextStream | None = None
        self._chunks_read = self._output_chunks_read = 0
        self._has_final_arguments = self._has_result = False

    def on_mount(self) -> None:
        self.follow()

    def update_fold(self) -> None:
        if self._has_result:
            self._show_result()

    def follow(self, now: float | None = None) -> None:
        """Show what came since the last call. ``now``: the clock's time, for the elapsed time."""
        item = self.item
        if not self._arguments.is_attached:
            return
        self._update_title(duration(item, now))
        if item.final_text is None:
            self._arguments.write(item.text.read_from(self._chunks_read))
            self._chunks_read = len(item.text)
        elif not self._has_final_arguments:
            self._has_final_arguments = True
            self._arguments.truncate()
            self._arguments.write_runs(format_arguments(item.final_text, item.title))
        self._arguments.display = not item.card_open
        if item.result is None and len(item.output) > self._output_chunks_read:
            self._ensure_result().write(item.output.read_from(self._output_chunks_read))
            self._output_chunks_read = len(item.output)
        elif item.result is not None and not self._has_result:
            self._has_result = True
            self._show_result()

    def _update_title(self, duration: str) -> None:
        item = self.item
        colour = STATE_COLOURS.get(item.state, "$accent")
        state = "needs approval" if item.state == "waiting" else item.state
        words = [state, item.progress if item.state == "running" else "", duration]
        details = "".join(f" · {word}" for word in words if word)
        mark, title = (f"{STATE_MARKS[item.state]} ", colour), (item.title, "bold $text")
        self._title.update(Content.assemble(mark, title, details), layout=False)

    def _show_result(self) -> None:
        lines = (self.item.result or "").strip("\n").split("\n")
        failed = self.item.state == "failed"
        hidden = 0 if self.expanded else max(0, len(lines) - FOLDED_LINES)
        visible = lines[hidden:] if failed else lines[: len(lines) - hidden]
        key = self.app.key_bindings.label("fold")
        note = [(f"… {hidden} more lines ({key} opens)", "faint")] if hidden else []
        text = [("\n".join(visible) if lines != [""] else "(no output)", "error" if failed else "")]
        result = self._ensure_result()
        result.truncate()
        for run in note + text if failed else text + note:
            result.write_line(*run)
        if self.item.changes:
            result.write_line(self.item.changes, "faint")

    def _ensure_result(self) -> TextStream:
        """Return the widget of the result or output, which is mounted when the first of it comes."""
        if self._result is None:
            self._result = TextStream(grows=True, follows=False, classes="result")
            self.mount(self._result)
        return self._result
