"""Who is listening to which turn.

A turn's events are appended once to its ``Log``; any number of listeners read it, each at its own pace
from its own place. Nobody can stall a turn, and a slow reader misses nothing: it catches up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from agent.events import Event

if TYPE_CHECKING:
    from agent.turn.loop import Turn


class Log:
    """The events of one turn, in order; kept as long as somebody holds it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False
        self.first: Callable[[Event], None] | None = None
        """Told of each event before anybody sees it."""
        self._waiting: set[asyncio.Future[None]] = set()

    def append(self, event: Event) -> None:
        """Add the next one; after the end nothing counts any more."""
        if self.closed:
            return
        self.events.append(event)
        if self.first is not None:
            self.first(event)
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def follow(self, start: int = 0) -> AsyncIterator[list[Event]]:
        """All events from ``start``, in batches of what is there; ends with the turn."""
        at = start
        while True:
            if at < len(self.events):
                batch = self.events[at:]
                at += len(batch)
                yield batch
            elif self.closed:
                return
            else:
                future = asyncio.get_running_loop().create_future()
                self._waiting.add(future)
                try:
                    await future
                finally:
                    self._waiting.discard(future)


class Hub:
    """Tells whoever wants to know that a turn began, whichever face it came through."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Turn], None]] = []

    def listen(self, callback: Callable[[Turn], None]) -> Callable[[], None]:
        """Call back with every turn from now on; the answer ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def announce(self, turn: Turn) -> None:
        for callback in list(self._listeners):
            callback(turn)
