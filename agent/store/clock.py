"""Times within a store never go back, and a clock that jumped at one start ages nothing: a stamp is the
system's time, or just after the latest one. Ages are measured against `StoreClock.confirmed`: the
latest stamp when the store was opened, and the time that this process has run since."""

from __future__ import annotations

import sqlite3
import time

MAX_TIME_SECONDS = 4_102_444_800.0
"""Seconds since 1970 at the end of the year 2099: a later stamp is a damaged row."""

STEP_SECONDS = 0.001
"""Time between two stamps where the system's clock has gone back."""


class StoreClock:
    """The time of one store; in seconds since 1970."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """Raises sqlite3.Error."""
        self._db = db
        self._opened, self._opened_at = self.now(), time.monotonic()
        if (latest := self._latest()) is not None:
            self._opened = latest

    def now(self) -> float:
        """The system's time, or one just after the latest in the store. Raises sqlite3.Error."""
        return max(time.time(), (self._latest() or 0.0) + STEP_SECONDS)

    def confirmed(self) -> float:
        """The time to measure ages against: never later than the store itself shows."""
        return min(time.time(), self._opened + time.monotonic() - self._opened_at)

    def _latest(self) -> float | None:
        query = "select max(created) from turns where created < ?"
        latest: float | None = self._db.execute(query, (MAX_TIME_SECONDS,)).fetchone()[0]
        return latest
