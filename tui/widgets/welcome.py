"""The banner of an empty transcript: which model runs, the most important keys, and what to ask."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tui.guarded import Guarded
from tui.keymap import KeymapApp
from tui.util.format import display_text


class WelcomeBanner(Static):
    """Shows what runs, above the keys; the dialog of the first start is ``tui.screens.welcome``."""

    app: KeymapApp

    DEFAULT_CSS = "WelcomeBanner { width: 1fr; height: auto; padding: 1 2; color: $text-muted; }"

    def __init__(self) -> None:
        super().__init__("", markup=False)

    def on_mount(self) -> None:
        self.show_lines("Starting …")

    def show_lines(self, first: str, *more: str) -> None:
        """Show these lines, the first next to the program's name."""
        parts: list[Content | tuple[str, str]] = [("agent  ", "bold $accent"), Content(first)]
        parts += [Content(f"\n{line}") for line in more]
        key = self.app.key_bindings.label
        keys = (
            f"/   commands               {key('help'):6}  all keys\n"
            f"@   attach a file          {key('view'):6}  panes or conversation\n"
            f"!   run a shell command    Ctrl-Q  quit"
        )
        self.update(Content.assemble(*parts, f"\n\n{keys}"))


class PromptExamples(Guarded, OptionList):
    """Prompts that the model answers well: a click, or Tab and Enter, takes one into the prompt."""

    DEFAULT_CSS = """
    PromptExamples {
        width: 1fr; max-width: 76; height: auto; max-height: 6; margin: 0 0 1 0; padding: 0 2;
        border: none; background: $background; text-wrap: nowrap; text-overflow: ellipsis;
        & > .option-list--option-highlighted { background: $background; color: $foreground; }
        & > .option-list--option-disabled { color: $text-muted; }
        &:focus { border: none; background-tint: $background 0%; }
        &:focus > .option-list--option-highlighted {
            background: $panel; color: $accent; text-style: bold;
        }
    }
    """

    @dataclass
    class Taken(Message):
        """Posted when the person takes an example."""

        text: str

    def __init__(self, examples: Sequence[str]) -> None:
        self._examples = examples
        heading = Option("Try one of these (click, or Tab and Enter):", disabled=True)
        super().__init__(heading, *map(display_text, examples), markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Taken(self._examples[event.option_index - 1]))
