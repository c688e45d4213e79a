"""Registers the process groups of child processes, so that an abrupt exit can kill them all."""

import contextlib
import os
import signal

active_groups: set[int] = set()
"""Group ids of the children that are alive; each child is the leader of its own group."""


def kill(group: int) -> None:
    """Send SIGKILL to a group, which may have ended."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def kill_all() -> None:
    """Send SIGKILL to all groups; safe at any time, also in a signal handler."""
    for group in list(active_groups):
        kill(group)
