"""The events of one turn, for any number of readers, each at its own pace from its own position: no
reader can stall the turn, and none misses anything."""

import asyncio
from collections.abc import AsyncIterator, Callable

from agent.events import Event, OutputTextDelta, ReasoningTextDelta, Terminal

_DELTAS = (OutputTextDelta, ReasoningTextDelta)
HOLD_SECONDS = 0.25
"""Seconds for which readers wait at most until an item that is done is stored."""


class EventLog:
    """The events of one turn, in order; kept in memory as long as someone refers to the log."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False
        self._callbacks: list[Callable[[Event], None]] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self._savers: list[Callable[[Terminal], asyncio.Future[None] | None]] = []
        self._unstored: list[int] = []
        """Indexes of events which `hold` keeps from readers, and so those behind them."""

    def on_append(self, callback: Callable[[Event], None]) -> None:
        """Call ``callback`` with each further event but the deltas of texts, which are nearly all of
        them; at once, before any reader of `follow` gets it."""
        self._callbacks.append(callback)

    def before_end(self, save: Callable[[Terminal], asyncio.Future[None] | None]) -> None:
        """Call ``save`` with the last event before it is in the log; the turn waits for the future."""
        self._savers.append(save)

    async def save(self, event: Terminal) -> None:
        """Have the last event saved before it is appended; a cancelled task ends after that."""
        cancelled: asyncio.CancelledError | None = None
        while self._savers:
            waiting = [saved for save in self._savers if (saved := save(event))]
            self._savers.clear()
            while not all(saved.done() for saved in waiting):
                try:
                    await asyncio.wait(waiting)
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled

    def hold(self, index: int | None = None) -> None:
        """Keep an event (None: the last), and those behind it, from readers, `HOLD_SECONDS` at most."""
        at = len(self.events) - 1 if index is None else index
        self._unstored.append(at)
        asyncio.get_running_loop().call_later(HOLD_SECONDS, self.release, at + 1)

    def release(self, end: int | None = None) -> None:
        """Let readers have the events before index ``end`` (None: all)."""
        self._unstored = [] if end is None else [at for at in self._unstored if at >= end]
        self._wake()

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
        self.release()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def follow(self, start: int = 0, *, unstored: bool = False) -> AsyncIterator[list[Event]]:
        """Yield all events from index ``start``, in batches of those available; end with the log.
        ``unstored``: also those that `hold` keeps from other readers."""
        position = start
        while True:
            end = len(self.events) if unstored or not self._unstored else self._unstored[0]
            if position < end:
                batch = self.events[position:end]
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
