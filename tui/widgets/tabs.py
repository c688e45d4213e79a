"""The line above the conversation, once another program asks this one something."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class Tabs(Static):
    DEFAULT_CSS = """
    Tabs { height: 1; padding: 0 1; color: $text-muted; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.display = False

    def tell(self, shown: bool, served: bool, running: int) -> None:
        """``served``: the turns of other programs are looked at; ``running``: how many there are."""
        chat, other = ("○", "●") if served else ("●", "○")
        state = f"{running} running" if running else "idle"
        self.update(Content(f"{chat} Chat   {other} Served · {state}   F3 switches"))
        self.display = shown
