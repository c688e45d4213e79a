"""What the person said in the middle of a turn, where the model read it."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tui.state.item_view import Part


class Interjection(Static):
    DEFAULT_CSS = """
    Interjection { height: auto; color: $text; text-style: bold; }
    """

    def __init__(self, part: Part) -> None:
        super().__init__(Content(f"❯ {(part.whole or '').strip()}"), markup=False)

    def follow(self) -> None:
        """It is whole from the beginning."""
