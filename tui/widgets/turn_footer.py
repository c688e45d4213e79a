"""What stands below an exchange: what went wrong in it, and what it took."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tui.state.item_view import thought
from tui.state.turn_view import Said
from tui.util.format import count, seconds

SHADES = {"failed": "$text-error", "cancelled": "$text-warning", "incomplete": "$text-warning"}


class Ending(Static):
    DEFAULT_CSS = """
    Ending {
        height: auto; padding: 0 1; margin-bottom: 1; color: $text-muted;
        &.-live { margin-bottom: 0; }
    }
    """

    def __init__(self, said: Said, *, live: bool) -> None:
        """``live``: below panes, whose heads tell what it took."""
        super().__init__(markup=False, classes="-live" if live else None)
        self._said, self._live = said, live
        self._lines: list[tuple[str, str]] = []
        self.display = False

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        said = self._said
        told = [(line, SHADES.get(said.status, "")) for line in [*said.notices, said.ending]]
        took = "" if self._live or said.running else _numbers(said)
        lines = [line for line in [*told, (took, "")] if line[0]]
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n").join(Content.styled(*line) for line in lines))
            self.display = bool(lines)


def _numbers(said: Said) -> str:
    spent = thought(said.parts)
    words = [
        f"thought for {seconds(spent)}" if spent >= 0.05 else "",
        f"{count(said.tokens)} tokens" if said.tokens else "",
        f"{said.speed:.0f} tok/s" if said.speed else "",
    ]
    return " · ".join(filter(None, words))
