"""One live pane: a titled rule, and below it what streams."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static


class Rule(Static):
    """The line above a pane, with its title. It alone changes its looks: a class on the pane itself
    would restyle all that stands in it."""

    DEFAULT_CSS = """
    Rule {
        height: 1; border-top: solid $rule;
        border-title-color: $text-muted; border-title-style: none;
        &.-active {
            border-top: solid $accent; border-title-color: $accent; border-title-style: bold;
        }
        &.-front { border-top: heavy $accent; }
    }
    """


class Pane(Vertical):
    DEFAULT_CSS = """
    Pane { & > * { padding: 0 1; } & > Rule { padding: 0; } }
    """

    def __init__(self, name: str, content: Widget, *, id: str) -> None:
        super().__init__(id=id)
        self._label, self._content = name, content
        self._rule = Rule()
        self._title = ""
        self.head("", active=False)

    def compose(self) -> ComposeResult:
        yield self._rule
        yield self._content

    def head(self, state: str, *, active: bool) -> None:
        """``state``: a few words beside the name. Active: something is coming in here right now."""
        mark = "● " if active else ""
        title = f"{mark}{self._label}{' · ' if state else ''}{state}"
        if title != self._title:
            self._title = title
            # As content, for a str would be read as markup.
            self._rule.border_title = Content(title)
        self._rule.set_class(active, "-active")

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._rule.add_class("-front")

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self._rule.remove_class("-front")
