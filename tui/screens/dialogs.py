"""The small dialogs: a question, one line of text, the values of a setting."""

from __future__ import annotations

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


class ChoiceDialog(GuardedDialog[str]):
    """Offers values; its result is the chosen one, empty if the person chose none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", show=False)]
    DEFAULT_CSS = """
    ChoiceDialog {
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

    def __init__(self, title: str, choices: Iterable[CompletionItem], current: str) -> None:
        super().__init__()
        self._title, self._choices, self._current = title, list(choices), current

    def compose(self) -> ComposeResult:
        width = max((len(choice.text) for choice in self._choices), default=0)
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = "↑ ↓ Enter · Esc cancel"
            yield OptionList(
                *(
                    Option(
                        Content.assemble(
                            display_text(choice.text).ljust(width),
                            (f"  {display_text(choice.description)}", "$text-muted"),
                        ),
                        id=choice.text,
                    )
                    for choice in self._choices
                )
            )

    def on_mount(self) -> None:
        values = [choice.text for choice in self._choices]
        current = values.index(self._current) if self._current in values else 0
        self.query_one(OptionList).highlighted = current

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id or "")
