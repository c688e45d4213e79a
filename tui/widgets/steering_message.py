"""A steering message of the person, at the place in the turn where the model read it."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tui.state.item_view import ItemView


class SteeringMessage(Static):
    """Shows one steering message."""

    DEFAULT_CSS = "SteeringMessage { height: auto; color: $text; text-style: bold; }"

    def __init__(self, item: ItemView) -> None:
        super().__init__(Content(f"❯ {(item.final_text or '').strip()}"), markup=False)

    def follow(self) -> None:
        """Do nothing: a steering message is complete from the beginning."""

    @property
    def row_count(self) -> int:
        return self.size.height
