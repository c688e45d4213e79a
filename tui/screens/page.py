"""The base of the pages over the conversation: a frame with text that scrolls."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tui.guarded import GuardedDialog


class PageScreen(GuardedDialog[None]):
    """Shows a text in a frame; Esc goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Back", show=False)
    ]
    DEFAULT_CSS = """
    PageScreen {
        align: center middle;
        & > VerticalScroll {
            width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 1;
            padding: 0 2; border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
        }
    }
    """

    def __init__(self, title: str, hint: str, *parts: Static) -> None:
        """``hint``: the keys, named in the frame's lower edge. ``parts``: the text."""
        super().__init__()
        self._title, self._hint, self._parts = title, hint, parts

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title, box.border_subtitle = self._title, self._hint
            yield from self._parts
