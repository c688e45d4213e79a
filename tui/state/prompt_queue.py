"""Prompts that were sent while a turn runs: to steer that turn, or queued for after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class PromptQueue:
    """Prompts for later turns, and the steering messages that the running turn has not read yet."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        """The queue, the longest waiting first."""
        self.steering: Sequence[str] = ()
        self.on_change: Callable[[], None] = lambda: None

    def add(self, text: str) -> None:
        self.prompts.append(text)
        self.on_change()

    def take(self, index: int) -> str | None:
        """Remove and return a prompt: the one that waits longest (0), or the latest (-1)."""
        text = self.prompts.pop(index) if self.prompts else None
        self.on_change()
        return text

    def take_all(self) -> list[str]:
        texts, self.prompts = self.prompts, []
        self.on_change()
        return texts

    def set_steering(self, steering: Sequence[str]) -> None:
        self.steering = steering
        self.on_change()

    @property
    def is_empty(self) -> bool:
        """Whether no prompt and no steering message waits."""
        return not (self.prompts or self.steering)
