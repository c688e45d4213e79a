"""The transcript entries of one turn, in one of two views: live panes, or one item below the other."""

from functools import partial

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from tui.state.item_view import ItemView, TextBuffer, reasoning_seconds
from tui.state.turn_view import TurnView
from tui.util.format import format_seconds, format_tokens
from tui.widgets.assistant_message import AssistantMessage
from tui.widgets.panes import TurnPanes
from tui.widgets.reasoning_block import ReasoningBlock
from tui.widgets.text_stream import TextStream
from tui.widgets.tool_call_card import FOLDED_LINES, ToolCallCard
from tui.widgets.user_message import MAX_PROMPT_LINES, SteeringMessage, UserMessage
from tui.widgets.virtual_scroll import VirtualEntry

STATUS_COLOURS = {
    "failed": "$text-error",
    "cancelled": "$text-warning",
    "incomplete": "$text-warning",
}


class ExchangeEntries:
    """The entries of a turn: its prompt, four panes or each item, a footer, and on demand its times."""

    def __init__(self, turn: TurnView, width: int, *, shows_panes: bool) -> None:
        """``width``: columns of the transcript, for estimated heights."""
        self.turn, self.shows_panes = turn, shows_panes
        self._width = width
        prompt_lines = min(MAX_PROMPT_LINES, turn.prompt.count("\n") + 1)
        self._prompt = VirtualEntry(
            lambda: UserMessage(turn, above_panes=self.shows_panes), 1 + prompt_lines
        )
        self._panes = VirtualEntry(lambda: TurnPanes(turn))
        self._footer = VirtualEntry(lambda: TurnFooter(turn, below_panes=self.shows_panes), 2)
        self.times: VirtualEntry | None = None
        self.items: dict[ItemView, VirtualEntry] = {}
        self._growing: list[ItemView] = []
        self.rendered: dict[ItemView, AssistantMessage] = {}
        """The messages of panes that were removed, for the widgets that take their place."""
        self.follow()

    @property
    def entries(self) -> list[VirtualEntry]:
        """The entries in the present view, from the top down: first the prompt, which both have."""
        content = [self._panes] if self.shows_panes else self.items.values()
        return [self._prompt, *content, self._footer, *([self.times] if self.times else [])]

    @property
    def folds(self) -> bool:
        """Whether it is still shown as panes, but has ended, and the person reads in none of them."""
        panes = self._panes.widget
        is_read = isinstance(panes, TurnPanes) and panes.is_read
        return self.shows_panes and not self.turn.running and not is_read

    @property
    def is_scrolled_away(self) -> bool:
        panes = self._panes.widget
        return isinstance(panes, TurnPanes) and panes.is_scrolled_away

    def set_view(self, *, panes: bool) -> None:
        """Show the turn as panes, or item by item; the widgets of the other view are to be removed."""
        self.shows_panes = panes
        widget = self._panes.widget
        self.rendered = widget.messages if isinstance(widget, TurnPanes) else {}
        if self._prompt.widget is not None:
            self._prompt.widget.set_class(panes, "-live")

    def entry_of(self, item: ItemView | None) -> VirtualEntry:
        return self._prompt if item is None else self.items[item]

    def follow(self) -> None:
        for item in self.turn.items[len(self.items) :]:
            self.items[item] = VirtualEntry(partial(self._item_widget, item))
            self._growing.append(item)
        growing = [(item, self.items[item]) for item in self._growing]
        for item, entry in growing:
            match entry.widget:
                case None:
                    entry.height = estimated_rows(item, self._width)
                case ReasoningBlock() | ToolCallCard() as widget:
                    widget.follow(self.turn.clock())
                case AssistantMessage() as widget:
                    widget.follow()
        for entry in (self._panes, self._footer):
            if isinstance(entry.widget, TurnPanes | TurnFooter):
                entry.widget.follow()
        for item in [item for item in self._growing if item.is_complete]:
            self._growing.remove(item)
            item.text = item.output = TextBuffer()  # what is shown later has the complete text

    def fit_panes(self, height: int) -> None:
        if isinstance(self._panes.widget, TurnPanes):
            footer = self._footer.widget
            below = footer.size.height if footer is not None and footer.display else 0
            self._panes.widget.fit(height - self._prompt.height - below)

    def _item_widget(self, item: ItemView) -> Widget:
        match item.kind:
            case "steering":
                return SteeringMessage(item)
            case "reasoning":
                return ReasoningBlock(item)
            case "call":
                return ToolCallCard(item)
            case _ if item.coloured is not None:
                return ColouredMessage(item)
            case _:
                return AssistantMessage(item, self.rendered.pop(item, None))


def estimated_rows(item: ItemView, width: int) -> int:
    """Estimate the rows of an item, before it is laid out, in a transcript of ``width`` columns."""
    text = item.final_text or str(item.text)
    match item.kind:
        case "reasoning":
            return 2
        case "call":
            code = 1 + text.count("\\n")
            result = min(FOLDED_LINES + 1, (item.result or "").count("\n") + 1)
            return 3 + code + result + bool(item.changes)
        case _:
            return 1 + text.count("\n") + len(text) // max(1, min(width or 120, 120))


class ColouredMessage(TextStream, can_focus=False):
    """Shows a message in place of its Markdown, whose marks are tokens too."""

    DEFAULT_CSS = "ColouredMessage { &.-commentary { color: $text-muted; } }"

    def __init__(self, item: ItemView) -> None:
        super().__init__(grows=True, follows=False, classes=f"-{item.kind}")
        self.write_runs(item.coloured or ())


class TurnFooter(Static):
    """Shows the footer of one turn; hidden while it has no lines."""

    DEFAULT_CSS = """
    TurnFooter {
        height: auto; padding: 0 1; margin-bottom: 1; color: $text-muted;
        &.-live { margin-bottom: 0; }
    }
    """

    def __init__(self, turn: TurnView, *, below_panes: bool) -> None:
        """``below_panes``: the panes' titles show what the turn took, so the footer does not."""
        super().__init__(markup=False, classes="-live" if below_panes else None)
        self._turn, self._below_panes = turn, below_panes
        self._lines: list[tuple[str, str]] = []
        self.display = False

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        turn = self._turn
        colour = STATUS_COLOURS.get(turn.status, "")
        messages = [(message, colour) for message in [*turn.notices, turn.end_message]]
        usage = "" if self._below_panes or turn.running else _usage_text(turn)
        lines = [line for line in [*messages, (usage, "")] if line[0]]
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n").join(Content.styled(*line) for line in lines))
            self.display = bool(lines)


def _usage_text(turn: TurnView) -> str:
    spent = reasoning_seconds(turn.items)
    words = [
        f"thought for {format_seconds(spent)}" if spent >= 0.05 else "",
        format_tokens(turn.tokens) if turn.tokens else "",
        f"{turn.speed:.0f} tok/s" if turn.speed else "",
        turn.probability_note,
    ]
    return " · ".join(filter(None, words))
