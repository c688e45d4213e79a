"""A generation's output queue: written by the engine's thread, read by asyncio in batches."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from agent.engine.protocol import Finished, Logprob, Prefill, Tokens

WAKEUP_INTERVAL_SECONDS = 0.002
"""Seconds between two wake-ups for tokens; the tokens of a fast model are batched meanwhile."""
UNREAD_INTERVAL_SECONDS = 0.2
"""The same for a stream that is not read live."""
IMMEDIATE_WAKEUPS = 8
"""First tokens that each wake the reader at once: the first text comes after a header."""
_write_holding_gil = ctypes.PyDLL(None).write
_write_holding_gil.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
_write_holding_gil.restype = ctypes.c_ssize_t


class LoopWakeup:
    """Makes an event loop call back; made and closed in the loop's thread. ``call_soon_threadsafe``
    gives up the GIL, and its caller then waits for the loop, 100 µs a token; a function of ctypes.PyDLL
    keeps it until the caller's next long native call
    (https://docs.python.org/3/library/ctypes.html#ctypes.PyDLL)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop, self._callback = loop, callback
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        loop.add_reader(self._read_fd, self._on_readable)

    def wake(self) -> None:
        """Have the loop call back soon; safe from any thread, but not at the same time as `close`."""
        _write_holding_gil(self._write_fd, b"!", 1)

    def _on_readable(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_fd, 64)
        self._callback()

    def close(self) -> None:
        self._loop.remove_reader(self._read_fd)
        os.close(self._read_fd)
        os.close(self._write_fd)


class TokenStream:
    """A Generation whose writer is another thread."""

    def __init__(self, on_cancel: Callable[[TokenStream], None], *, live: bool = True) -> None:
        """``on_cancel`` is called once, from any thread. ``live``: the tokens are read as they come."""
        self.cancelled = False
        self.begun = False
        """Whether the writer has begun; before that a cancel ends the stream at once."""
        self.ended = False
        """Whether it has finished or failed: nothing follows."""
        self._on_cancel, self._live = on_cancel, live
        self._interval = WAKEUP_INTERVAL_SECONDS if live else UNREAD_INTERVAL_SECONDS
        self._immediate = IMMEDIATE_WAKEUPS if live else 1
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._lock = threading.Lock()
        self._items: list[Prefill | Tokens | Finished | Exception] = []
        self._wakeup: LoopWakeup | None = None
        """Wakes the reader; None while there is no reader, and items wait."""
        self._wakeup_pending = False
        self._last_wake = 0.0
        self._token_count = 0

    def cancel(self) -> None:
        with self._lock:
            if self.cancelled or self.ended:
                return
            self.cancelled = True
        if not self.begun:
            self.put(Finished("cancelled", 0, 0, 0))
        self._on_cancel(self)

    def begin(self) -> bool:
        """Begin writing; return False if the stream was cancelled before."""
        with self._lock:
            self.begun = self.begun or not self.cancelled
        return self.begun

    def put_token(self, token: int, logprob: Logprob | None = None) -> None:
        """Append a sampled id; wake the reader, unless it was woken within the last interval."""
        with self._lock:
            if self._items and isinstance(batch := self._items[-1], Tokens):
                batch.ids.append(token)
                if logprob is not None and batch.logprobs is not None:
                    batch.logprobs.append(logprob)
            else:
                self._items.append(Tokens([token], None if logprob is None else [logprob]))
        now = time.perf_counter()
        self._token_count += 1
        if self._token_count <= self._immediate or now - self._last_wake >= self._interval:
            self._last_wake = now
            self._wake()

    def put(self, item: Prefill | Finished | Exception) -> None:
        """Append any other item and wake the reader, where an exception is raised."""
        with self._lock:
            self._items.append(item)
            self.ended = self.ended or not isinstance(item, Prefill)
        self._wake()

    def flush(self) -> None:
        """Wake a reader of tokens as they come now; called before work that delays the next one."""
        if self._live and self._items:
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._loop.is_closed():  # there will be no reader any more
                self.cancelled = True
            elif self._wakeup and not self._wakeup_pending:
                self._wakeup_pending = True
                self._wakeup.wake()

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        wakeup = self._wakeup = LoopWakeup(self._loop, self._ready.set)
        try:
            while True:
                with self._lock:
                    self._wakeup_pending = False
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
                self._wakeup = None
            wakeup.close()
            self.cancel()
