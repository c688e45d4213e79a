"""When Python looks for garbage. A leaf: the first that is imported."""

from __future__ import annotations

import gc
import time

STARTING = 200_000
"""More objects than a start makes: nearly all of them stay, and to look through them again and again
takes a tenth of its time."""
RUNNING = 2_000, 5, 2_000
"""A full collection stops everything for 0.1 s and more; by itself Python makes many of them. One that
looks through 100,000 new objects takes 35 ms, which is felt while one types: so 10,000."""
UNSEEN = 2_000, 5, 20
"""Where nobody types, full ones come by themselves: a server would grow with each response."""

ENOUGH = 20
"""So many of the small collections, of 10,000 new objects each, leave enough behind for a full one."""
UNHURRIED = 2.0
"""Seconds without a key, after which nobody is expected to feel one."""
SHARE = 0.1
"""Of the time, so much at most goes into them."""


def starting() -> None:
    """Not now."""
    gc.set_threshold(STARTING)


def started(thresholds: tuple[int, int, int] = RUNNING) -> None:
    """Now, but not among what is there already. Does something once after ``starting()``."""
    if gc.get_threshold()[0] == STARTING:
        gc.freeze()
        gc.set_threshold(*thresholds)


def ending() -> None:
    """Never again: all that is there goes with the process."""
    gc.freeze()


class Quiet:
    """Full collections while nobody types; without them garbage would come to hundreds of megabytes."""

    def __init__(self) -> None:
        self._next = 0.0

    def collect(self, since: float) -> None:
        """Where it is worth it. ``since``: when a key was pressed last (``time.monotonic()``)."""
        now = time.monotonic()
        if now - since > UNHURRIED and now > self._next and gc.get_count()[2] >= ENOUGH:
            gc.collect()
            ended = time.monotonic()
            self._next = ended + (ended - now) / SHARE
