"""The events of one turn, for any number of readers, each at its own pace from its own position: no
reader can stall the turn, and none misses anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from agent.events import Event, OutputTextDelta, ReasoningTextDelta

_DELTAS = (OutputTextDelta, ReasoningTextDelta)


class EventLog:
    """The events of one turn, in order; kept in memory as long as someone refers to the log."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False
        self._callbacks: list[Callable[[Event], None]] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._before_end: list[Callable[[], Awaitable[None]]] = []

    def on_append(self, callback: Callable[[Event], None]) -> None:
        """Call ``callback`` with each further event but the deltas of texts, which are nearly all of
        them; at once, before any reader of `follow` gets it."""
        self._callbacks.append(callback)

    def before_end(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Have the turn await ``wait()`` before its last event."""
        self._before_end.append(wait)

    async def wait_for_end(self) -> None:
        for wait in self._before_end:
            await wait()

    def append(self, event: Event) -> None:
        """Add the next event; a closed log ignores it."""
        if self.closed:
            return
        self.events.append(event)
        if self._callbacks and type(event) not in _DELTAS:
            for callback in self._callbacks:
                callback(event)
        self._wake()

    def close(self) -> None:
        """End the log: its readers finish once they have read what it has."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def follow(self, start: int = 0) -> AsyncIterator[list[Event]]:
        """Yield all events from index ``start``, in batches of those available; end with the log."""
        position = start
        while True:
            if position < len(self.events):
                batch = self.events[position:]
                position += len(batch)
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
