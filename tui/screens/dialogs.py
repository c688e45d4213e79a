"""The small dialogs: a question, one line of text, the values of a setting."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tui.guarded import GuardedDialog
from tui.state.command import CompletionItem
from tui.util.format import display_text


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


class ListDialog(GuardedDialog[str]):
    """Offers options; its result is the id of the chosen one, empty if the person chose none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", show=False)]
    DEFAULT_CSS = """
    ListDialog {
        align: center middle;
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
        options = [
            Option(
                Content.assemble(
                    display_text(value).ljust(width),
                    (f"  {display_text(description)}", "$text-muted"),
                ),
                id=value,
            )
            for value, description in descriptions.items()
        ]
        highlighted = values.index(current) if current in values else 0
        super().__init__(title, "↑ ↓ Enter · Esc cancel", options, highlighted)
