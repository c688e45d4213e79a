"""Lets work that blocks Python's lock (openai-harmony: 60 to 180 ms) wait for a pause in typing."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress


class TypingPause:
    """Knows when the last key came, and whether someone waits for the work."""

    def __init__(self, pause_seconds: float = 0.3, max_wait_seconds: float = 5.0) -> None:
        self.pause_seconds, self.max_wait_seconds = pause_seconds, max_wait_seconds
        self._last_key = -math.inf
        self._waiting = 0
        """Number of callers that wait for the work."""
        self._hurried = asyncio.Event()
        """Set while someone does."""

    def on_keystroke(self) -> None:
        self._last_key = time.monotonic()

    def hurry(self) -> None:
        """Wait for no pause until `relax` is called: someone waits for the work."""
        self._waiting += 1
        self._hurried.set()

    def relax(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._hurried.clear()

    async def wait(self, loading: asyncio.Future[None]) -> None:
        """Wait for `pause_seconds` without a key, at most `max_wait_seconds` after ``loading``."""
        ended = math.inf
        while not self._hurried.is_set():
            now = time.monotonic()
            if loading.done():
                ended = min(ended, now)
            remaining = (
                min(self._last_key + self.pause_seconds, ended + self.max_wait_seconds) - now
            )
            if remaining <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._hurried.wait()
