"""The pop-up list of completions above the prompt."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from tui.state.command import CompletionItem
from tui.util.format import display_text

VISIBLE_ROWS = 8


class CompletionMenu(Static):
    """Shows completions over the widgets above the prompt, without moving them."""

    DEFAULT_CSS = """
    CompletionMenu {
        overlay: screen; constrain: inside inside; height: auto; width: auto; max-width: 100%;
        min-width: 30; padding: 0 1; border: round $rule; background: $background; display: none;
        border-subtitle-color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._choices: Sequence[CompletionItem] = ()
        self._highlighted = 0

    @property
    def is_open(self) -> bool:
        return bool(self._choices)

    @property
    def highlighted(self) -> CompletionItem:
        """The highlighted choice; only while the menu is open."""
        return self._choices[self._highlighted]

    def show_choices(self, choices: Sequence[CompletionItem]) -> None:
        """Show these choices, the first highlighted; close the menu where there are none."""
        if choices != self._choices:
            self._choices, self._highlighted = choices, 0
            self._update()

    def move(self, by: int) -> None:
        self._highlighted = (self._highlighted + by) % len(self._choices)
        self._update()

    def _update(self) -> None:
        self.display = self.is_open
        first = max(
            0, min(self._highlighted - VISIBLE_ROWS // 2, len(self._choices) - VISIBLE_ROWS)
        )
        seen = self._choices[first : first + VISIBLE_ROWS]
        width = max((len(choice.text) for choice in seen), default=0)
        rows = [
            Content.assemble(
                (f"{display_text(choice.text):{width}}", "bold $accent" if here else ""),
                (
                    f"  {display_text(choice.description)}" if choice.description else "",
                    "$text-muted",
                ),
            )
            for choice in seen
            for here in (choice is self._choices[self._highlighted],)
        ]
        self.update(Content("\n").join(rows))
        more = len(self._choices) - len(seen)
        self.border_subtitle = Content(
            f"{self._highlighted + 1} of {len(self._choices)}" if more else ""
        )
        # Its lower edge on the prompt's upper one, whatever it has to offer.
        self.styles.offset = (0, -len(seen) - 2)
