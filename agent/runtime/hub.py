"""Announces every turn that starts, whichever interface it came through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
"""A turn, `agent.turn.context.RunningTurn`."""


class Hub(Generic[T]):
    """Notifies its subscribers of each turn as it starts."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[T], None]] = []

    def subscribe(self, callback: Callable[[T], None]) -> Callable[[], None]:
        """Call ``callback`` with every turn that starts from now on; the result unsubscribes it."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def publish(self, turn: T) -> None:
        for callback in list(self._subscribers):
            callback(turn)
