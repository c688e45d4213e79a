"""Asks for one line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from tui.guarded import GuardedDialog


class TextDialog(GuardedDialog[str | None]):
    """An input; its result is what was written, None where that is nothing or Esc was pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", show=False)]
    DEFAULT_CSS = """
    TextDialog {
        align: center middle;
        & > Input {
            width: 70; max-width: 100%; padding: 0 1; border: round $accent;
            background: $background; border-title-color: $accent;
            border-subtitle-color: $text-muted;
            &:focus { border: round $accent; }
        }
    }
    """

    def __init__(self, title: str, value: str = "") -> None:
        super().__init__()
        self._title, self._value = title, value

    def compose(self) -> ComposeResult:
        field = Input(self._value, select_on_focus=False)
        field.border_title, field.border_subtitle = self._title, "Enter saves · Esc back"
        yield field

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)
