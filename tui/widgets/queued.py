"""The prompts that wait for the turn that runs."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

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

    def all(self) -> str:
        """Take all back, as one text."""
        text, self.prompts = "\n\n".join(self.prompts), []
        self.show()
        return text

    def show(self) -> None:
        lines = [f"next: {' '.join(text.split())[:200]}" for text in self.prompts[:LINES]]
        if (rest := len(self.prompts) - LINES) > 0:
            lines.append(f"… and {rest} more")
        self.update(Content("\n".join(lines)))
        self.set_class(bool(lines), "-shown")
