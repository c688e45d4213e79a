"""What the conversation is written on: the screen, which holds how each piece of text looks."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from textual.screen import Screen

STYLES = (
    "head", "faint", "error", "keyword", "name", "string", "number", "comment", "added", "removed",
    "mark", "odd", "repair",
)  # fmt: skip
"""What a piece of plain text may be; the looks of each are the theme's."""
PARTS = (
    "heading", "code", "block", "quote", "rule", "link", "keyword", "string", "number", "comment",
    "function",
)  # fmt: skip
"""What a piece of Markdown may be."""


class Paper(Screen[None]):
    """Held once: in each of hundreds of widgets, Textual would make them anew with every change."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"stream--{style}" for style in STYLES), *(f"message--{part}" for part in PARTS),
    }  # fmt: skip

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._looks: dict[str, Style] = {}

    def look(self, name: str) -> Style:
        """Of a piece of text; only what differs from what stands around it."""
        if name not in self._looks:
            look = self.get_component_rich_style(name, partial=True)
            if look.color is not None:
                # In part, a colour that goes by its background would be pure white.
                look += Style(color=self.get_component_rich_style(name).color)
            self._looks[name] = look
        return self._looks[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._looks.clear()
