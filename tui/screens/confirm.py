"""Asks yes or no before something is deleted or downloaded."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.guarded import GuardedDialog


class ConfirmDialog(GuardedDialog[bool]):
    """A question; its result is whether the person pressed y."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,escape,enter", "dismiss(False)", show=False),
    ]
    DEFAULT_CSS = """
    ConfirmDialog {
        align: center middle;
        & > Vertical {
            width: 60; max-width: 100%; height: auto; padding: 0 2; border: round $warning;
            background: $background;
        }
        & Static { height: auto; }
        & .keys { color: $text-warning; margin-top: 1; }
    }
    """

    def __init__(self, question: str, yes: str) -> None:
        """``yes`` says what y does, in a word or two."""
        super().__init__()
        self._question, self._yes = question, yes

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(self._question))
            yield Static(Content(f"y {self._yes} · n no"), classes="keys")
