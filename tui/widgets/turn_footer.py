"""The footer of a turn: its notices, how it ended if not well, and what it took."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tui.state.item_view import reasoning_seconds
from tui.state.turn_view import TurnView
from tui.util.format import format_seconds, format_tokens

STATUS_COLOURS = {
    "failed": "$text-error",
    "cancelled": "$text-warning",
    "incomplete": "$text-warning",
}


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
