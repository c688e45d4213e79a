"""A tool call in the conversation, as a card: who is called, with what, and what came back."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.markdown.highlight import arguments
from tui.state.item_view import Part, duration
from tui.widgets.text_stream import Stream

FOLDED = 12
"""So many lines of a result are shown until it is opened: the first; of a failure the last."""
MARKS = {"writing": "○", "waiting": "?", "running": "◐", "done": "●", "failed": "✗"}
SHADES = {"waiting": "$text-warning", "done": "$text-success", "failed": "$text-error"}


class Call(Vertical):
    DEFAULT_CSS = """
    Call {
        height: auto; padding: 0 1; background: $surface; border-left: outer $rule;
        & > .head { height: 1; color: $text-muted; }
        & > Stream { margin-left: 2; }
        & > .result { color: $text-muted; border-top: solid $rule; }
    }
    """

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part
        self._head = Static("", classes="head", markup=False)
        self._arguments = Stream(grows=True, follows=False, classes="arguments")
        self._result: Stream | None = None
        self._seen = self._seen_output = 0
        self._whole = self._settled = self._open = False

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._arguments

    def on_mount(self) -> None:
        self.follow()

    @property
    def open(self) -> bool:
        """The whole result is shown, however long it is."""
        return self._open

    @open.setter
    def open(self, value: bool) -> None:
        self._open = value
        if self._settled:
            self._show_result()

    def follow(self, now: float | None = None) -> None:
        """Show what came since the last call; ``now``: for how long it goes on."""
        part = self.part
        if not self._arguments.is_attached:
            return
        self._show_head(duration(part, now))
        if part.whole is None:
            self._arguments.write(part.text.after(self._seen))
            self._seen = len(part.text)
        elif not self._whole:
            self._whole = True
            self._arguments.cut()
            self._arguments.write_runs(arguments(part.whole, part.title))
        self._arguments.display = not part.asked
        if part.result is None and len(part.output) > self._seen_output:
            self._below().write(part.output.after(self._seen_output))
            self._seen_output = len(part.output)
        elif part.result is not None and not self._settled:
            self._settled = True
            self._show_result()

    def _show_head(self, spent: str) -> None:
        part = self.part
        shade = SHADES.get(part.state, "$accent")
        state = "waits for you" if part.state == "waiting" else part.state
        words = [state, part.progress if part.state == "running" else "", spent]
        beside = "".join(f" · {word}" for word in words if word)
        mark, title = (f"{MARKS[part.state]} ", shade), (part.title, "bold $text")
        self._head.update(Content.assemble(mark, title, beside), layout=False)

    def _show_result(self) -> None:
        lines = (self.part.result or "").strip("\n").split("\n")
        failed, hidden = self.part.state == "failed", max(0, len(lines) - FOLDED)
        if self._open:
            hidden = 0
        shown = lines[hidden:] if failed else lines[: len(lines) - hidden]
        told = [(f"… {hidden} more lines (Ctrl-O opens)", "faint")] if hidden else []
        text = [("\n".join(shown) if lines != [""] else "(no output)", "error" if failed else "")]
        result = self._below()
        result.cut()
        for run in told + text if failed else text + told:
            result.line(*run)

    def _below(self) -> Stream:
        """For what comes back; made when something does."""
        if self._result is None:
            self._result = Stream(grows=True, follows=False, classes="result")
            self.mount(self._result)
        return self._result
