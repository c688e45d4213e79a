"""Which entries of a long list are worth having on the screen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.widget import Widget

AHEAD = 1
"""Screens above and below what is seen that are ready to be scrolled to."""
KEPT = 4
"""Screens away from which an entry is given up again."""


@dataclass(eq=False)
class Entry:
    """A part of an exchange, or a line. Far from what is seen it has no widget and costs nothing."""

    make: Callable[[], Widget]
    height: int = 1
    """Rows, as it was last seen; before, an estimate."""
    widget: Widget | None = None
    open: bool = False
    """Reasoning, or a result: it was opened when it was last seen."""


def wanted(heights: Sequence[int], there: range, top: float, height: int, most: int = 1) -> range:
    """The entries to have next: those that are ``there``, at most ``most`` more towards what is ahead
    of the ``height`` rows from row ``top`` on, and none that are far away."""
    ends = list(accumulate(heights))

    def at(row: float) -> int:
        """The entry on that row, or the nearest one."""
        return min(bisect_right(ends, row), len(ends) - 1)

    if not ends:
        return range(0)
    first, last = at(top - AHEAD * height), at(top + (1 + AHEAD) * height - 1)
    kept = range(
        max(there.start, at(top - KEPT * height)),
        min(there.stop, at(top + (1 + KEPT) * height - 1) + 1),
    )
    if not kept or kept.stop < first or kept.start > last + 1:
        seen = at(top)
        kept = range(seen, seen)
    stop = min(max(kept.stop, last + 1), kept.stop + most)
    start = max(min(kept.start, first), kept.start - (most - (stop - kept.stop)))
    return range(start, stop)
