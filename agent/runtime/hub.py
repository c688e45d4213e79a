"""Announces every turn that starts, whichever interface it came through."""

from __future__ import annotations

from collections.abc import Callable

from agent.turn.context import RunningTurn


class Hub:
    """Notifies its subscribers of each turn as it starts."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[RunningTurn], None]] = []

    def subscribe(self, callback: Callable[[RunningTurn], None]) -> Callable[[], None]:
        """Call ``callback`` with every turn that starts from now on; the result unsubscribes it."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def publish(self, turn: RunningTurn) -> None:
        for callback in list(self._subscribers):
            callback(turn)
