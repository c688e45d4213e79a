"""The list over the prompt: what it could go on with."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from tui.commands.registry import Choice
from tui.util.format import shown

ROWS = 8
"""So many are seen at a time."""


class Choices(Static):
    """Lies over what is above the prompt, and moves nothing."""

    DEFAULT_CSS = """
    Choices {
        overlay: screen; constrain: inside inside; height: auto; width: auto; max-width: 100%;
        min-width: 30; padding: 0 1; border: round $rule; background: $background; display: none;
        border-subtitle-color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._choices: Sequence[Choice] = ()
        self._at = 0

    @property
    def offered(self) -> bool:
        return bool(self._choices)

    @property
    def chosen(self) -> Choice:
        """The one in front; there has to be one."""
        return self._choices[self._at]

    def offer(self, choices: Sequence[Choice]) -> None:
        """Show these; none: go away."""
        if choices != self._choices:
            self._choices, self._at = choices, 0
            self._show()

    def move(self, by: int) -> None:
        self._at = (self._at + by) % len(self._choices)
        self._show()

    def _show(self) -> None:
        self.display = self.offered
        first = max(0, min(self._at - ROWS // 2, len(self._choices) - ROWS))
        seen = self._choices[first : first + ROWS]
        width = max((len(choice.text) for choice in seen), default=0)
        rows = [
            Content.assemble(
                (f"{shown(choice.text):{width}}", "bold $accent" if here else ""),
                (f"  {shown(choice.about)}" if choice.about else "", "$text-muted"),
            )
            for choice in seen
            for here in (choice is self._choices[self._at],)
        ]
        self.update(Content("\n").join(rows))
        more = len(self._choices) - len(seen)
        self.border_subtitle = Content(f"{self._at + 1} of {len(self._choices)}" if more else "")
        # Its lower edge on the prompt's upper one, whatever it has to offer.
        self.styles.offset = (0, -len(seen) - 2)
