"""Prompts that were sent while a turn runs: to steer that turn, or queued for after it."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from tui.util.attachments import without_attachments

MAX_VISIBLE_PROMPTS = 3
"""Prompts that are shown; of the others only their number."""


class QueueBar(Static):
    """Holds and shows the queued prompts, and shows the steering messages that wait."""

    DEFAULT_CSS = """
    QueueBar {
        height: auto; padding: 0 2; color: $text-muted; display: none;
        &.-visible { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.prompts: list[str] = []
        """The queue, the longest waiting first."""
        self.steering: Sequence[str] = ()
        """Messages that the running turn has not read yet."""
        self._lines: list[str] = []

    def add(self, text: str) -> None:
        self.prompts.append(text)
        self.update_lines()

    def take_first(self) -> str | None:
        """Remove and return the prompt that waits longest."""
        text = self.prompts.pop(0) if self.prompts else None
        self.update_lines()
        return text

    def take_latest(self) -> str | None:
        text = self.prompts.pop() if self.prompts else None
        self.update_lines()
        return text

    def take_all(self) -> list[str]:
        texts, self.prompts = self.prompts, []
        self.update_lines()
        return texts

    @property
    def is_queue_empty(self) -> bool:
        """Whether no prompt and no steering message waits."""
        return not (self.prompts or self.steering)

    def update_lines(self) -> None:
        """Show what waits; hidden where nothing does."""
        waiting = [("to this turn", text) for text in self.steering] + [
            ("queued", text) for text in self.prompts
        ]
        lines = [
            f"{when}: {' '.join(without_attachments(text).split())[:200]}"
            for when, text in waiting[:MAX_VISIBLE_PROMPTS]
        ]
        if (rest := len(waiting) - MAX_VISIBLE_PROMPTS) > 0:
            lines.append(f"… and {rest} more")
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n".join(lines)))
            self.set_class(bool(lines), "-visible")
