"""Limits the time that a turn waits for an optional server that is starting."""

import math
from typing import NamedTuple

MAX_IDLE_SECONDS = 1.0
MAX_UNPRODUCTIVE_SECONDS = 5.0
"""Maximum time without work; output is not work, downloading and unpacking a package is."""
MAX_STEP_SECONDS = 0.5
"""Time between two checks that counts; after a longer one, this process had no processor either."""


class StartActivity(NamedTuple):
    """Activity counters of a starting server; each value changes while it is active."""

    work: object
    """It computes, or uses a disk."""
    signs: object = None
    """It writes, or begins other processes."""
    answers: bool = False
    """Whether it has answered as an MCP server does: then it is about to be ready."""


class StartWait:
    """Watches one server; time in which it works makes up for as much in which it does not."""

    def __init__(self) -> None:
        self._last: StartActivity | None = None
        self._last_at = math.inf
        self._idle = self._unproductive = 0.0

    def is_exhausted(self, activity: StartActivity, now: float) -> bool:
        """Take note of what the server does ``now``, in seconds; return whether to wait no more."""
        last, self._last = self._last, activity
        elapsed, self._last_at = now - self._last_at, now
        if last is None or elapsed > MAX_STEP_SECONDS:
            return False
        self._idle = self._idle + elapsed if activity == last else 0.0
        if activity.answers:
            self._unproductive = 0.0
        elif activity.work == last.work:
            self._unproductive += elapsed
        else:
            self._unproductive = max(self._unproductive - elapsed, 0.0)
        return self._idle >= MAX_IDLE_SECONDS or self._unproductive >= MAX_UNPRODUCTIVE_SECONDS
