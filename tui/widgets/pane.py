"""One live pane: a titled rule, and below it what streams."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget


class Pane(Vertical):
    DEFAULT_CSS = """
    Pane {
        border-top: solid $rule; border-title-color: $text-muted; border-title-style: none;
        padding: 0 1;
        &.-active { border-top: solid $accent; border-title-color: $accent; border-title-style: bold; }
        &:focus-within { border-top: heavy $accent; }
    }
    """

    def __init__(self, name: str, content: Widget, *, id: str) -> None:
        super().__init__(id=id)
        self._label, self._content = name, content
        self._title = ""
        self.head("", active=False)

    def compose(self) -> ComposeResult:
        yield self._content

    def head(self, state: str, *, active: bool) -> None:
        """``state``: a few words beside the name. Active: something is coming in here right now."""
        mark = "● " if active else ""
        title = f"{mark}{self._label}{' · ' if state else ''}{state}"
        if title != self._title:
            self._title = title
            # As content, for a str would be read as markup.
            self.border_title = Content(title)
        self.set_class(active, "-active")
