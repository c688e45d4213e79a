"""Bounds the bytes of requests that have arrived and wait to be read or answered, all together."""

from __future__ import annotations

import logging
import time
from typing import Self

from agent.server.http.errors import rate_limited

log = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 32 * 1024 * 1024
"""Bytes of all requests together."""
UNCOUNTED_BYTES = 64 * 1024
"""Bytes per request outside the budget, so that large requests never block small ones."""
LOG_INTERVAL_SECONDS = 60.0
"""Pause between two log lines about a limit that is reached."""


class BodyBudget:
    """Bounds the bytes of all requests that have arrived and are not read yet."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_bytes, self.used_bytes = max(MAX_UNREAD_BYTES, 2 * max_body_bytes), 0
        self._limit_log = LimitLog()

    def take(self, size: int) -> None:
        """Count further bytes. Raises ApiError: 429 where they are too many."""
        if size > 0 and self.used_bytes + size > self.max_bytes:
            self._limit_log.warning(
                f"requests of more than {self.max_bytes:,} bytes together are being received"
            )
            raise rate_limited("Too many long requests are being received: try again later.")
        self.used_bytes += size


class BodyShare:
    """The part of a budget that one body takes; leaving it as a context gives it back."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self.size, self._counted = budget, 0, 0

    def add(self, size: int) -> None:
        """Add bytes that have arrived. Raises ApiError: 429 where all bodies are too long together."""
        counted = max(0, self.size + size - UNCOUNTED_BYTES)
        self._budget.take(counted - self._counted)
        self.size, self._counted = self.size + size, counted

    def release(self) -> None:
        """Give all back: the body has been read. No effect when repeated."""
        self._budget.take(-self._counted)
        self.size = self._counted = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LimitLog:
    """Logs that a limit is reached, once in a while."""

    def __init__(self) -> None:
        self._logged_at = -LOG_INTERVAL_SECONDS

    def warning(self, message: str) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = now
            log.warning("a limit is reached: %s", message)
