"""The four live panes of one turn: reasoning, arguments, results, answer."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.geometry import Size
from textual.reactive import Reactive

from tui.markdown.highlight import format_arguments
from tui.state.item_view import ItemView, duration
from tui.state.turn_view import TurnView
from tui.util.format import format_count, format_seconds
from tui.widgets.assistant_message import AssistantMessage
from tui.widgets.pane import Pane
from tui.widgets.steering_message import SteeringMessage
from tui.widgets.text_stream import TextStream

SEE_CARD_NOTE = "see the request below"
"""Stands in the arguments' pane while the approval card shows them."""


class AnswerPane(VerticalScroll):
    """The messages of a turn, followed at their end unless the person scrolled away."""

    DEFAULT_CSS = """
    AnswerPane { scrollbar-size-vertical: 1; }
    """
    virtual_size = Reactive(Size(0, 0), repaint=False)
    """As ``AssistantMessage.virtual_size``: set by a layout without asking for another one."""

    def follow(self) -> None:
        """Stay scrolled to the end, once there is more than fits."""
        if self.max_scroll_y and not self.is_anchored:
            self.anchor()


class TurnPanes(Grid):
    """Shows the items of a turn in four panes, by kind; messages and steering are in the last."""

    DEFAULT_CSS = """
    TurnPanes {
        grid-size: 2 2; grid-columns: 3fr 2fr; grid-rows: 2fr 3fr; grid-gutter: 0 1;
    }
    """

    def __init__(self, turn: TurnView) -> None:
        super().__init__()
        self.turn = turn
        self._reasoning, self._arguments, self._results = TextStream(), TextStream(), TextStream()
        self._answer = AnswerPane()
        self._panes = {
            name: Pane(name.capitalize(), content, id=name)
            for name, content in (
                ("reasoning", self._reasoning),
                ("arguments", self._arguments),
                ("answer", self._answer),
                ("results", self._results),
            )
        }
        self._messages: dict[ItemView, AssistantMessage | SteeringMessage] = {}
        self._chunks_read: dict[ItemView, int] = {}
        self._marks: dict[tuple[ItemView, TextStream], int] = {}
        self._finished: set[ItemView] = set()
        self._output_chunks_read = 0
        self._latest_call: ItemView | None = None
        """The call whose arguments are the last in their pane."""
        self._arguments_on_card = False
        """Whether an approval card shows these arguments, and a note stands in their place."""
        self._children_mounted = False

    def compose(self) -> ComposeResult:
        yield from self._panes.values()

    def on_mount(self) -> None:
        self._children_mounted = True
        self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        if not self._children_mounted:
            return
        for item in self.turn.items:
            if item in self._finished:
                continue
            match item.kind:
                case "reasoning":
                    self._follow_reasoning(item)
                case "call":
                    self._follow_call(item)
                case _:
                    self._follow_message(item)
            if item.settled:
                self._finished.add(item)
        self._update_titles()

    def _follow_reasoning(self, item: ItemView) -> None:
        if item not in self._chunks_read and self._reasoning.text:
            self._reasoning.write_line("")
        self._write_new_text(item, self._reasoning)

    def _write_new_text(self, item: ItemView, stream: TextStream) -> None:
        seen = self._chunks_read.get(item, 0)
        new = item.text.read_from(seen)
        if not seen and not new and item.settled:
            new = item.final_text or ""  # a stored item never streamed
        stream.write(new)
        self._chunks_read[item] = len(item.text)

    def _follow_call(self, item: ItemView) -> None:
        if item not in self._chunks_read:
            self._arguments.write_line(item.title, "head")
            self._marks[item, self._arguments] = self._arguments.mark()
            self._latest_call, self._arguments_on_card = item, False
        if item.final_text is None:
            self._write_new_text(item, self._arguments)
            return
        if (item, self._results) not in self._marks:
            self._chunks_read[item] = len(item.text)
            self._show_arguments(item, item.final_text, on_card=False)
            self._results.write_line(item.title, "head")
            self._marks[item, self._results] = self._results.mark()
            self._output_chunks_read = 0
        if item is self._latest_call and self._arguments_on_card != item.card_open:
            self._arguments_on_card = item.card_open
            self._show_arguments(item, item.final_text, on_card=self._arguments_on_card)
        self._follow_result(item)

    def _show_arguments(self, item: ItemView, arguments: str, *, on_card: bool) -> None:
        """Show the arguments, or a note in their place while the approval card shows them."""
        self._arguments.truncate(self._marks[item, self._arguments])
        if on_card:
            self._arguments.write_line(SEE_CARD_NOTE, "faint")
        else:
            self._arguments.write_lines(format_arguments(arguments, item.title))

    def _follow_result(self, item: ItemView) -> None:
        mark = self._marks[item, self._results]
        if item.result is None:
            self._results.write(item.output.read_from(self._output_chunks_read), "faint")
            self._output_chunks_read = len(item.output)
            return
        self._results.truncate(mark)
        failed = item.state == "failed"
        self._results.write_line(item.result or "(no output)", "error" if failed else "")
        if item.changes:
            self._results.write_line(item.changes, "faint")

    def _follow_message(self, item: ItemView) -> None:
        if item not in self._messages:
            widget = SteeringMessage(item) if item.kind == "steering" else AssistantMessage(item)
            self._messages[item] = widget
            self._answer.mount(widget)
        self._messages[item].follow()
        self._answer.follow()

    def _update_titles(self) -> None:
        turn = self.turn
        last = turn.items[-1] if turn.items and turn.running else None
        live = last if last and not last.settled else None
        calls = [item for item in turn.items if item.kind == "call"]
        call = calls[-1] if calls else None
        running = call is not None and call.state in ("running", "waiting") and turn.running
        spent = sum(
            (item.ended or turn.clock()) - item.began
            for item in turn.items
            if item.kind == "reasoning"
        )
        tokens = sum(item.tokens or 0 for item in turn.items)
        words = [
            format_seconds(spent) if spent >= 0.05 else "",
            f"{format_count(tokens)} tokens" if tokens else "",
        ]
        self._set_title(
            "reasoning",
            " · ".join(filter(None, words)),
            live is not None and live.kind == "reasoning",
        )
        writing = live is not None and live.kind == "call" and live.state == "writing"
        self._set_title("arguments", f"{len(calls)} calls" if len(calls) > 1 else "", writing)
        state = ""
        if call is not None:
            match call.state:
                case "waiting":
                    state = "needs approval"
                case "running":
                    state = call.progress or "running"
                case "failed":
                    state = "failed"
                case "done":
                    state = duration(call)
        self._set_title("results", state, running)
        self._set_title("answer", "", live is not None and live.kind in ("answer", "commentary"))

    def _set_title(self, pane: str, state: str, active: bool) -> None:
        self._panes[pane].set_title(state, active=active)
