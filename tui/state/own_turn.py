"""The person's own turn, and the prompts that wait for its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.turn.context import RunningTurn
    from tui.state.turn_view import TurnView


@dataclass(slots=True)
class OwnTurn:
    """The turn that is running, or that ran last in the open conversation."""

    running: RunningTurn | None = None
    view: TurnView | None = None
    latest: RunningTurn | None = None
    """The turn of ``view``; None also after the prompt has changed: its tokens are outdated."""


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
        return not (self.prompts or self.steering)
