"""The process groups that tools run in, for whoever must leave without ending them in order."""

from __future__ import annotations

import contextlib
import os
import signal

groups: set[int] = set()
"""Of the children that live now; each is the leader of its own."""


def kill_all() -> None:
    """SIGKILL them; at any time, also in a signal handler."""
    for group in list(groups):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
