"""What a generation has yielded: written by the engine's thread, read by asyncio in batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

from agent.engine.llama.wakeup import Bell
from agent.engine.protocol import Finished, Logprob, Prefill, Tokens

PACE = 0.002
"""Seconds between two wake-ups for tokens; what a fast model writes meanwhile goes along."""
EAGER = 8
"""So many tokens wake at once: the first text comes after a header of several."""


class Stream:
    """A Generation whose writer is another thread."""

    def __init__(self, on_cancel: Callable[[Stream], None]) -> None:
        self.cancelled = False
        self.taken = False
        """The writer has begun; before that a cancel ends it at once."""
        self.ended = False
        """Finished or failed: nothing comes any more."""
        self._on_cancel = on_cancel
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        self._items: list[Prefill | Tokens | Finished | Exception] = []
        self._bell: Bell | None = None
        """While somebody reads; what comes before that waits."""
        self._woken = False
        self._last_wake = 0.0
        self._told = 0

    def cancel(self) -> None:
        """Ask the writer to end; safe from any thread, at any time, more than once."""
        with self._lock:
            if self.cancelled or self.ended:
                return
            self.cancelled = True
        if not self.taken:
            self.push(Finished("cancelled", 0, 0, 0))
        self._on_cancel(self)

    def take(self) -> bool:
        """The writer begins; False when there is nobody left to write for."""
        with self._lock:
            self.taken = self.taken or not self.cancelled
        return self.taken

    def token(self, token: int, logprob: Logprob | None = None) -> None:
        """Append a sampled id; the reader wakes for it now or, within PACE, with the next."""
        with self._lock:
            if self._items and isinstance(batch := self._items[-1], Tokens):
                batch.ids.append(token)
                if logprob is not None and batch.logprobs is not None:
                    batch.logprobs.append(logprob)
            else:
                self._items.append(Tokens([token], None if logprob is None else [logprob]))
        now = time.perf_counter()
        self._told += 1
        if self._told <= EAGER or now - self._last_wake >= PACE:
            self._last_wake = now
            self._wake()

    def push(self, item: Prefill | Finished | Exception) -> None:
        """Append anything else and wake the reader; an exception is raised there."""
        with self._lock:
            self._items.append(item)
            self.ended = self.ended or not isinstance(item, Prefill)
        self._wake()

    def flush(self) -> None:
        """Wake the reader for what it was not woken for yet; the next token will take longer."""
        if self._items:
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._loop.is_closed():  # nobody will read this any more
                self.cancelled = True
            elif self._bell and not self._woken:
                self._woken = True
                self._bell.ring()

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        bell = self._bell = Bell(self._loop, self._ready.set)
        try:
            while True:
                with self._lock:
                    self._woken = False
                    items, self._items = self._items, []
                for item in items:
                    if isinstance(item, Exception):
                        raise item
                    yield item
                    if isinstance(item, Finished):
                        return
                await self._ready.wait()
                self._ready.clear()
        finally:
            with self._lock:
                self._bell = None
            bell.close()
            self.cancel()
