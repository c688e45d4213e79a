"""What was sent while a turn runs: for that turn, and for after it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from tui.util.attachments import folded

LINES = 3
"""So many of them are shown."""


class Queued(Static):
    DEFAULT_CSS = """
    Queued {
        height: auto; padding: 0 2; color: $text-muted; display: none;
        &.-shown { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.prompts: list[str] = []
        self.steering: Sequence[str] = ()
        """What the turn that runs will read."""
        self._shown: list[str] = []

    def add(self, text: str) -> None:
        self.prompts.append(text)
        self.show()

    def first(self) -> str | None:
        """Take the one that waits longest."""
        text = self.prompts.pop(0) if self.prompts else None
        self.show()
        return text

    def latest(self) -> str | None:
        """Take back the one that was added last."""
        text = self.prompts.pop() if self.prompts else None
        self.show()
        return text

    def all(self) -> list[str]:
        """Take all back."""
        texts, self.prompts = self.prompts, []
        self.show()
        return texts

    @property
    def empty(self) -> bool:
        return not (self.prompts or self.steering)

    def show(self) -> None:
        waiting = [("now", text) for text in self.steering] + [
            ("next", text) for text in self.prompts
        ]
        lines = [
            f"{when}: {' '.join(folded(text).split())[:200]}" for when, text in waiting[:LINES]
        ]
        if (rest := len(waiting) - LINES) > 0:
            lines.append(f"… and {rest} more")
        if lines != self._shown:
            self._shown = lines
            self.update(Content("\n".join(lines)))
            self.set_class(bool(lines), "-shown")
