"""The dialogs: a question, one line of text, a text of several lines, the values of a setting."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from agent.errors import UserError
from tui.guarded import GuardedDialog, Result
from tui.keymap import KeymapApp, bind, bind_fixed
from tui.state.command import CompletionItem
from tui.util.format import display_text
from tui.widgets.folding_area import WrappedArea


class ConfirmDialog(GuardedDialog[bool]):
    """A question; its result is whether the person pressed y."""

    BINDINGS = bind_fixed({"y": "dismiss(True)", "n,escape,enter": "dismiss(False)"})
    DEFAULT_CSS = """
    ConfirmDialog {
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


class TextDialog(GuardedDialog[str | None]):
    """An input; its result is what was written, None where that is nothing or Esc was pressed."""

    DEFAULT_CSS = """
    TextDialog {
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


class EditorArea(WrappedArea):
    """The text; Enter is the screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.save", show=False, priority=True),
        bind("newline", "newline", priority=True),
        bind("scroll_top", "move_to_start"),
        bind("scroll_bottom", "move_to_end"),
    ]

    def action_move_to_start(self) -> None:
        self.move_cursor((0, 0))

    def action_move_to_end(self) -> None:
        self.move_cursor(self.document.end)


class TextEditor(GuardedDialog[Result | None]):
    """A text area with the cursor at its end; its result is made of the text, None after Esc."""

    DEFAULT_CSS = """
    TextEditor {
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
        """``action``: Enter's, in a word. ``accept``: its UserError keeps the editor open."""
        super().__init__()
        self._title, self._text, self._action, self._accept = title, text, action, accept

    def compose(self) -> ComposeResult:
        area = EditorArea(highlight_cursor_line=False)
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


class ListDialog(GuardedDialog[str]):
    """Offers options; its result is the id of the chosen one."""

    DEFAULT_CSS = """
    ListDialog {
        & > Vertical {
            width: 60; max-width: 100%; height: auto; max-height: 80%; padding: 0 1;
            border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
        }
        & OptionList {
            height: auto; max-height: 100%; padding: 0; border: none; background: $background;
            text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
            &:focus { border: none; background-tint: $background 0%; }
            &:focus > .option-list--option-highlighted {
                background: $panel; color: $accent; text-style: bold;
            }
        }
    }
    """

    def __init__(self, title: str, hint: str, options: Iterable[Option], highlighted: int) -> None:
        """``hint``: the keys, named in the frame's lower edge. ``highlighted``: an option's index."""
        super().__init__()
        self._title, self._hint = title, hint
        self._options, self._highlighted = list(options), highlighted

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title, box.border_subtitle = Content(self._title), self._hint
            yield OptionList(*self._options, markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = self._highlighted

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.choose(event.option_id or "")

    def choose(self, option_id: str) -> None:
        self.dismiss(option_id)


class ChoiceDialog(ListDialog):
    """Offers values; its result is the chosen one."""

    def __init__(self, title: str, choices: Iterable[CompletionItem], current: str) -> None:
        descriptions = {choice.text: choice.description for choice in choices}
        values = list(descriptions)
        width = max(map(len, values), default=0)
        options = []
        for value, description in descriptions.items():
            about = (f"  {display_text(description)}", "$text-muted")
            label = Content.assemble(display_text(value).ljust(width), about)
            options.append(Option(label, id=value))
        highlighted = values.index(current) if current in values else 0
        super().__init__(title, "↑ ↓ Enter · Esc cancel", options, highlighted)
