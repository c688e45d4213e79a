"""Decides which entries of a long list have widgets: those on the screen and near it.

The list is scrolled; each entry has a known or estimated height. Only a contiguous range of entries is
mounted. ``visible_range`` says which range to mount next::

        entries   0 1 2 3 4 5 6 7 8 9 …
                        ├─────────┤             mounted entries within KEEP_SCREENS stay
                      ├───────┤                 the viewport and AHEAD_SCREENS on each side are wanted
                          ▓▓▓                   the viewport

It grows by at most ``max_new`` entries a call, so that mounting never blocks a paint for long; the
caller calls again until nothing changes.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from textual.widget import Widget

AHEAD_SCREENS = 1
"""Screens above and below the viewport whose entries are mounted, ready to be scrolled to."""
KEEP_SCREENS = 4
"""Screens above and below the viewport beyond which an entry's widget is removed."""


class Foldable:
    """A base of widgets that show a part of their text until the person expands them."""

    expanded = False

    def set_expanded(self, expanded: bool) -> None:
        """Show all of the text, or the part again."""
        if expanded != self.expanded:
            self.expanded = expanded
            self.update_fold()

    def update_fold(self) -> None:
        """Show all, or a part: ``expanded`` has changed."""
        raise NotImplementedError


@dataclass(eq=False)
class VirtualEntry:
    """A response item, prompt or notice in the transcript; without a widget while it is far away."""

    create: Callable[[], Widget]
    height: int = 1
    """Rows, as it was last laid out; before that, an estimate."""
    widget: Widget | None = None
    expanded: bool = False
    """Whether the reasoning or the result was expanded when its widget was removed."""

    @property
    def foldable(self) -> Foldable | None:
        return self.widget if isinstance(self.widget, Foldable) else None


def visible_range(
    heights: Sequence[int], mounted: range, top: float, viewport_height: int, max_new: int = 1
) -> range:
    """The indexes of the entries to mount next. ``heights``: rows of each. ``mounted``: those with
    widgets. ``top``: first row of the viewport. At most ``max_new`` are added; after a jump the range
    starts again at the viewport."""
    ends = list(accumulate(heights))

    def at(row: float) -> int:
        """Return the index of the entry on that row, or of the nearest one."""
        return min(bisect_right(ends, row), len(ends) - 1)

    if not ends:
        return range(0)
    first, last = (
        at(top - AHEAD_SCREENS * viewport_height),
        at(top + (1 + AHEAD_SCREENS) * viewport_height - 1),
    )
    near = range(
        max(mounted.start, at(top - KEEP_SCREENS * viewport_height)),
        min(mounted.stop, at(top + (1 + KEEP_SCREENS) * viewport_height - 1) + 1),
    )
    if not near or near.stop < first or near.start > last + 1:
        start = at(top)
        near = range(start, start)
    stop = min(max(near.stop, last + 1), near.stop + max_new)
    start = max(min(near.start, first), near.start - (max_new - (stop - near.stop)))
    return range(start, stop)
