"""The four live panes of one turn: reasoning, arguments, results, answer. Reads ``_anchored`` and
``_anchor_released``, as ``tui/widgets/transcript.py`` does."""

from collections.abc import Sequence
from typing import Any

from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.widget import Widget
from textual.widgets import Static

from tui.markdown.highlight import format_arguments
from tui.state.item_view import ItemView, duration, reasoning_seconds
from tui.state.turn_view import TurnView
from tui.util.format import format_seconds, format_tokens
from tui.widgets.assistant_message import AssistantMessage
from tui.widgets.text_stream import TextStream
from tui.widgets.user_message import SteeringMessage

SEE_CARD_NOTE = "see the request below"
"""Stands in the arguments' pane while the approval card shows them."""
MIN_COLUMNS_SIDE_BY_SIDE = 60
"""Columns below which reasoning is above arguments and results, not next to them."""
MIN_ROOM_ROWS, MIN_PANE_ROWS = 5, 3
"""Rows of all panes, and of those above the answer or of the answer, however small the screen is."""

FOLDED_SHARE = 5
"""The panes above a long answer keep one of this many rows."""


class PaneTitle(Static):
    """The rule above a pane, with its title; a CSS class on the pane would restyle all in it."""

    DEFAULT_CSS = """
    PaneTitle {
        height: 1; border-top: solid $rule;
        border-title-color: $text-muted; border-title-style: none;
        &.-active {
            border-top: solid $accent; border-title-color: $accent; border-title-style: bold;
        }
    }
    """


class Pane(Vertical):
    """A titled container of one widget."""

    DEFAULT_CSS = """
    Pane {
        & > * { padding: 0 1; }
        & > PaneTitle { padding: 0; }
        &:focus-within > PaneTitle { border-top: heavy $accent; }
    }
    """

    def __init__(self, label: str, content: Widget, *, id: str) -> None:
        self._title_bar = PaneTitle()
        super().__init__(self._title_bar, content, id=id)
        self._label, self._title = label, ""
        self.set_title("", active=False)

    def set_title(self, state: str, *, active: bool) -> None:
        """Show ``state`` after the pane's name; ``active``: something streams into it right now."""
        mark = "● " if active else ""
        title = f"{mark}{self._label}{' · ' if state else ''}{state}"
        if title != self._title:
            self._title = title
            # As Content: a str would be read as markup.
            self._title_bar.border_title = Content(title)
        self._title_bar.set_class(active, "-active")


class AnswerPane(VerticalScroll):
    """The messages of a turn, followed at their end unless the person scrolled away."""

    virtual_size = Reactive(Size(0, 0), repaint=False)
    """As ``AssistantMessage.virtual_size``: set by a layout without asking for another one."""

    def follow(self) -> None:
        if self.max_scroll_y and not self.is_anchored:
            self.anchor()


class TurnPanes(Vertical):
    """Shows a running turn in panes as high as their texts: reasoning and calls above the messages."""

    DEFAULT_CSS = """
    TurnPanes {
        height: auto;
        & > Horizontal { height: auto; }
        & #reasoning { width: 3fr; margin-right: 1; }
        & .calls { width: 2fr; height: auto; }
        & AnswerPane {
            padding: 0 0 0 1;
            scrollbar-size-vertical: 1; scrollbar-gutter: stable;
            & > * { max-width: 120; }
        }
        &.-stacked > Horizontal { layout: vertical; }
        &.-stacked #reasoning, &.-stacked .calls { width: 1fr; margin-right: 0; }
    }
    """

    class Read(Message):
        """Posted when the person scrolls a pane, or leaves one of a turn that has ended."""

    def __init__(self, turn: TurnView) -> None:
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
        panes = self._panes
        self._calls = Vertical(panes["arguments"], panes["results"], classes="calls")
        super().__init__(Horizontal(panes["reasoning"], self._calls), panes["answer"])
        for hidden in (*panes.values(), self._calls):
            hidden.display = False
        self.turn = turn
        self.messages: dict[ItemView, Any] = {}
        self._chunks_read: dict[ItemView, int] = {}
        self._marks: dict[tuple[ItemView, TextStream], int] = {}
        self._finished: set[ItemView] = set()
        self._output_chunks_read = 0
        self._room = 0  # rows for all panes; 0 before the first layout
        self._latest_call: ItemView | None = None
        """The call whose arguments are the last in their pane."""
        self._arguments_on_card = False
        """Whether an approval card shows these arguments, and a note replaces them."""
        self._children_mounted = False

    def on_mount(self) -> None:
        self._children_mounted = True
        for pane in (self._reasoning, self._arguments, self._results, self._answer):
            self.watch(pane, "scroll_y", self._on_pane_scroll, init=False)
        self.follow()

    def _on_pane_scroll(self) -> None:
        self.post_message(self.Read())

    def on_text_stream_rewrapped(self) -> None:
        """A text has its first width after the panes were made as high as its rows."""
        self._fit()

    def on_descendant_blur(self) -> None:
        if not self.turn.running:
            self.post_message(self.Read())

    def follow(self) -> None:
        if not self._children_mounted:
            return
        for item in self.turn.items:
            if item in self._finished:
                continue
            match item.kind:
                case "reasoning":
                    if item not in self._chunks_read and self._reasoning.text:
                        self._reasoning.write_line("")
                    self._write_new_text(item, self._reasoning)
                case "call":
                    self._follow_call(item)
                case _:
                    self._follow_message(item)
            if item.is_complete:
                self._finished.add(item)
        self._update_titles()
        self._fit()

    @property
    def is_read(self) -> bool:
        return self.has_focus_within or self.is_scrolled_away

    @property
    def is_scrolled_away(self) -> bool:
        panes = (self._reasoning, self._arguments, self._results, self._answer)
        return any(map(_is_scrolled_away, panes))

    def fit(self, room: int) -> None:
        """Make the panes as high as their texts, and not higher than ``room`` rows together."""
        self._room = max(MIN_ROOM_ROWS, room)
        self.set_class(self.size.width < MIN_COLUMNS_SIDE_BY_SIDE, "-stacked")
        self._fit()

    def _fit(self) -> None:
        """Above the answer stays half of the room at most, or less while a long answer streams."""
        if not self._children_mounted:
            return  # its room may be known before
        streams = (self._reasoning, self._arguments, self._results)
        needs = [1 + max(1, stream.row_count) if stream.lines else 0 for stream in streams]
        messages = sum(max(1, widget.row_count) + 1 for widget in self.messages.values())
        top_room = max(MIN_PANE_ROWS, self._room // 2)
        is_read = any(stream.has_focus or _is_scrolled_away(stream) for stream in streams)
        if self._is_answering and not is_read:
            titles = max(1, sum(map(bool, needs[0 if self.has_class("-stacked") else 1 :])))
            folded = max(titles, self._room // FOLDED_SHARE)
            top_room = min(top_room, max(folded, self._room - messages))
        if self.has_class("-stacked"):
            rows = share_rows(top_room, needs)
            top = sum(rows)
        else:
            rows = [min(needs[0], top_room), *share_rows(top_room, needs[1:])]
            top = max(rows[0], sum(rows[1:]))
        for name, height in zip(("reasoning", "arguments", "results"), rows, strict=True):
            self._panes[name].display = height > 0
            self._panes[name].styles.height = height
        self._calls.display = sum(rows[1:]) > 0
        self._panes["answer"].display = messages > 0
        self._panes["answer"].styles.height = min(messages, max(MIN_PANE_ROWS, self._room - top))

    @property
    def _is_answering(self) -> bool:
        return bool(self.turn.items) and self.turn.items[-1].kind == "answer"

    def _write_new_text(self, item: ItemView, stream: TextStream) -> None:
        seen = self._chunks_read.get(item, 0)
        new = item.text.read_from(seen)
        if not seen and not new and item.is_complete:
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
        if item not in self.messages:
            widget = SteeringMessage(item) if item.kind == "steering" else AssistantMessage(item)
            if self.messages:
                widget.styles.margin = (1, 0, 0, 0)
            self.messages[item] = widget
            self._answer.mount(widget)
        self.messages[item].follow()
        self._answer.follow()

    def _update_titles(self) -> None:
        turn = self.turn
        last = turn.items[-1] if turn.items and turn.running else None
        live = last if last and not last.is_complete else None
        calls = [item for item in turn.items if item.kind == "call"]
        call = calls[-1] if calls else None
        running = call is not None and call.state in ("running", "waiting") and turn.running
        spent = reasoning_seconds(turn.items, turn.clock())
        tokens = sum(item.tokens or 0 for item in turn.items)
        words = [
            format_seconds(spent) if spent >= 0.05 else "",
            format_tokens(tokens) if tokens else "",
        ]
        streaming = live.kind if live is not None else ""
        panes, title = self._panes, " · ".join(filter(None, words))
        panes["reasoning"].set_title(title, active=streaming == "reasoning")
        writing = live is not None and live.kind == "call" and live.state == "writing"
        title = f"{len(calls)} calls" if len(calls) > 1 else ""
        panes["arguments"].set_title(title, active=writing)
        states = {"waiting": "needs approval", "writing": "", "failed": "failed"}
        if call is not None:
            states |= {"running": call.progress or "running", "done": duration(call)}
        panes["results"].set_title(states[call.state] if call else "", active=running)
        panes["answer"].set_title("", active=streaming in ("answer", "commentary"))


def _is_scrolled_away(pane: Widget) -> bool:
    # Where all fits, the wheel releases the anchor, too.
    return pane._anchored and pane._anchor_released and pane.scroll_y < pane.max_scroll_y


def share_rows(room: int, needs: Sequence[int]) -> list[int]:
    """Share rows: each gets what it needs, or where that is too much an equal part of what is left."""
    rows = [0] * len(needs)
    for rank, number in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        rows[number] = min(needs[number], room // (len(needs) - rank))
        room -= rows[number]
    return rows
