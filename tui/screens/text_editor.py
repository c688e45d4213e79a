"""Edits a text of several lines over the conversation."""

from collections.abc import Callable
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from agent.errors import UserError
from tui.guarded import GuardedDialog
from tui.keymap import KeymapApp, bind
from tui.util.format import display_text
from tui.widgets.wrapped_area import WrappedArea

Result = TypeVar("Result")


class EditorArea(WrappedArea):
    """The text; Enter is the screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.save", show=False, priority=True),
        bind("newline", "insert_newline", priority=True),
        bind("scroll_top", "move_to_start"),
        bind("scroll_bottom", "move_to_end"),
    ]

    def action_insert_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def action_move_to_start(self) -> None:
        self.move_cursor((0, 0))

    def action_move_to_end(self) -> None:
        self.move_cursor(self.document.end)


class TextEditor(GuardedDialog[Result | None]):
    """A text area with the cursor at its end; its result is made of the text, None after Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", show=False)]
    DEFAULT_CSS = """
    TextEditor {
        align: center middle;
        & > Vertical { width: 100; max-width: 100%; height: auto; max-height: 100%; }
        & .problem {
            height: auto; padding: 0 2; display: none; background: $background; color: $text-warning;
        }
        & EditorArea {
            height: auto; min-height: 8; max-height: 80vh;
            padding: 0 1; border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
            scrollbar-size-vertical: 1;
            &:focus { border: round $accent; }
            & .text-area--cursor-line { background: $background; }
        }
    }
    """

    def __init__(self, title: str, text: str, action: str, accept: Callable[[str], Result]) -> None:
        """``action``: Enter's action, in a word or two. ``accept``: makes the result of the text; if it
        raises UserError, that is shown and the editor stays open."""
        super().__init__()
        self._title, self._text, self._action, self._accept = title, text, action, accept

    def compose(self) -> ComposeResult:
        area = EditorArea(soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False)
        area.border_title = Content(self._title)
        assert isinstance(self.app, KeymapApp)
        newline = self.app.key_bindings.label("newline")
        area.border_subtitle = f"Enter {self._action} · {newline} new line · Esc back"
        area.load_text(self._text)
        with Vertical():
            yield area
            yield Static("", classes="problem", markup=False)

    def on_mount(self) -> None:
        area = self.query_one(EditorArea)
        area.move_cursor(area.document.end)
        area.focus()

    def action_save(self) -> None:
        try:
            self.dismiss(self._accept(self.query_one(EditorArea).text))
        except UserError as error:
            problem = self.query_one(".problem", Static)
            problem.update(display_text(str(error)))
            problem.display = True
