"""When Python looks for garbage. A leaf: the first that is imported."""

from __future__ import annotations

import gc

STARTING = 200_000
"""More objects than a start makes: nearly all of them stay, and to look through them again and again
takes a tenth of its time."""
RUNNING = 2_000, 5, 2_000
"""A full collection stops everything for 0.1 s and more; by itself Python makes many of them. One that
looks through 100,000 new objects takes 35 ms, which is felt while one types: so 10,000."""


def starting() -> None:
    """Not now."""
    gc.set_threshold(STARTING)


def started() -> None:
    """Now, but not among what is there already. Does something once after ``starting()``."""
    if gc.get_threshold()[0] == STARTING:
        gc.freeze()
        gc.set_threshold(*RUNNING)
