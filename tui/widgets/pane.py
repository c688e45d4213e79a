"""A pane of a live turn: a titled rule, and its content below."""

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static


class PaneTitle(Static):
    """The rule above a pane, with its title; a CSS class on the pane would restyle all in it."""

    DEFAULT_CSS = """
    PaneTitle {
        height: 1; border-top: solid $rule;
        border-title-color: $text-muted; border-title-style: none;
        &.-active {
            border-top: solid $accent; border-title-color: $accent; border-title-style: bold;
        }
        &.-front { border-top: heavy $accent; }
    }
    """


class Pane(Vertical):
    """A titled container of one widget."""

    DEFAULT_CSS = """
    Pane { & > * { padding: 0 1; } & > PaneTitle { padding: 0; } }
    """

    def __init__(self, label: str, content: Widget, *, id: str) -> None:
        super().__init__(id=id)
        self._label, self._content = label, content
        self._title_bar = PaneTitle()
        self._title = ""
        self.set_title("", active=False)

    def compose(self) -> ComposeResult:
        yield self._title_bar
        yield self._content

    def set_title(self, state: str, *, active: bool) -> None:
        """Show ``state`` after the pane's name; ``active``: something streams into it right now."""
        mark = "● " if active else ""
        title = f"{mark}{self._label}{' · ' if state else ''}{state}"
        if title != self._title:
            self._title = title
            # As Content: a str would be read as markup.
            self._title_bar.border_title = Content(title)
        self._title_bar.set_class(active, "-active")

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._title_bar.add_class("-front")

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self._title_bar.remove_class("-front")
