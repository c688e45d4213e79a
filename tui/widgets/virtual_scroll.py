"""A list of which only what is near the viewport has widgets.

A long conversation has thousands of items, and Textual lays out and styles every mounted widget. So in
this list each of them is a ``VirtualEntry``, which makes its widget when it comes near and gives it up
when it is far. The children of a transcript, which is such a list, are, from the top::

    others                  what the app mounted before: _first_entry_row is the row below them
    _spacer_above           as high as the entries above, by their last or estimated heights
    UserMessage      ┐
    ReasoningBlock   │      the mounted range, which visible_range chooses       ┌──────────┐
    ToolCallCard     │                                                           │ viewport │
    AssistantMessage ┘                                                           └──────────┘
    _spacer_below           as high as the entries below
    TurnPanes, TurnFooter   always mounted: the panes of the newest turn while it runs,
    notices                 and what is below them

Three things happen, each of which leads to the next:

1. *Something changed.* A scroll (``watch_scroll_y``), a layout (``arrange``) or new text
   schedules one fill for after the next refresh.
2. *Fill* (``fill``, under ``mount_lock``): mounts the entries that are wanted, at most
   ``MOUNT_BATCH`` at a time, removes those that are far, and sets the spacers' heights, until
   nothing changes.
3. *Layout.* Entries turn out higher or lower than estimated, above the viewport too, and what is
   read would jump. So ``arrange``, which Textual calls for a layout and before it paints, scrolls
   along: the widget at the top of the viewport stays in its row.

``visible_range`` says which range to mount next. It grows by at most ``max_new`` entries a call, so
that mounting never blocks a paint for long; the caller calls again until nothing changes::

        entries   0 1 2 3 4 5 6 7 8 9 …
                        ├─────────┤             mounted entries within KEEP_SCREENS stay
                      ├───────┤                 the viewport and AHEAD_SCREENS on each side are wanted
                          ▓▓▓                   the viewport

``_top_anchor`` is the widget at the top of the viewport, and how far it reaches above that. Any other
scroll sets it to None; the next ``arrange`` takes the widget that is at the top then. While the list
follows its end, Textual's own anchor scrolls, and it is None.

Reads ``_anchored`` and ``_anchor_released``, which are private in Textual 8.2, and sets ``scroll_y``
without its watchers, as Textual does for an anchor (pyproject.toml: ``>=8.2.8,<8.3``). Textual's
``StylesCache.get_inner_outer`` is cached by widget, which keeps what removed widgets painted: here
it is a class method.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from textual._styles_cache import StylesCache
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from tui.base_screen import BaseScreen
from tui.guarded import Guarded

MOUNT_BATCH = 4
"""Entries that get widgets at a time, so that no paint waits long."""
AHEAD_SCREENS = 1
"""Screens above and below the viewport whose entries are mounted, ready to be scrolled to."""
KEEP_SCREENS = 4
"""Screens above and below the viewport beyond which an entry's widget is removed."""
StylesCache.get_inner_outer = classmethod(StylesCache.get_inner_outer)  # type: ignore


class Foldable:
    """A base of widgets that show a part of their text until the person expands them."""

    expanded = False

    def set_expanded(self, expanded: bool) -> None:
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
    """The entries to mount next, at most ``max_new`` more; after a jump they start at the viewport.
    ``heights``: rows of each. ``top``: first row of the viewport."""
    ends = list(accumulate(heights))

    def at(row: float) -> int:
        """Return the index of the entry on that row, or of the nearest one."""
        return min(bisect_right(ends, row), len(ends) - 1)

    if not ends:
        return range(0)
    first = at(top - AHEAD_SCREENS * viewport_height)
    last = at(top + (1 + AHEAD_SCREENS) * viewport_height - 1)
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


class Spacer(Widget):
    """Takes the room of entries that have no widgets."""

    DEFAULT_CSS = "Spacer { height: 0; }"


class VirtualScroll(Guarded, VerticalScroll, can_focus=False):
    """Shows entries, and follows its end until the person scrolls away from it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.mount_lock = asyncio.Lock()
        self._spacer_above, self._spacer_below = Spacer(), Spacer()
        self._regions: dict[Widget, Region] = {}
        """Where the children are since the last layout, with their margins below."""
        self._top_anchor: tuple[Widget, float] | None = None
        self._fill_scheduled = False
        self._scrollbar_position = 0.0

    async def on_mount(self) -> None:
        await self.mount(self._spacer_above, self._spacer_below)
        assert isinstance(self.screen, BaseScreen)
        self.screen.resumed.subscribe(self, self._on_screen_resumed)

    @property
    def virtual_entries(self) -> tuple[list[VirtualEntry], int]:
        """All entries, and how many of them, from the first on, have widgets only near the viewport."""
        raise NotImplementedError

    def on_filled(self) -> None:
        """Called when the entries that are wanted are mounted."""

    def ensure_anchored(self) -> None:
        """Follow the end from the first entry on; before it, a high banner is read from its top."""
        if not self.is_anchored:
            self.anchor()

    def scroll_to_row(self, widget: Widget, row: int) -> None:
        """Scroll so that a row of a widget is in the upper third of the viewport."""
        y = widget.content_region.y - self.content_region.y + self.scroll_y + row
        self.release_anchor()
        self.scroll_to(y=max(0, y - self.size.height // 3), animate=False)

    async def remove_all(self) -> None:
        """Remove all children, where the entries were removed under ``mount_lock``."""
        self._top_anchor = None
        self.anchor(False)
        await self.remove_children()
        self._spacer_above, self._spacer_below = Spacer(), Spacer()
        await self.mount(self._spacer_above, self._spacer_below)

    # --- only entries near the viewport have widgets ---

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Schedule a fill, and keep the next top widget in its row instead of the former one."""
        self._top_anchor = None  # first: a watcher may lay out
        super().watch_scroll_y(old_value, new_value)
        self.schedule_fill()

    def schedule_fill(self) -> None:
        if not self._fill_scheduled:
            self._fill_scheduled = True
            self.call_after_refresh(self._run_scheduled_fill)

    def _on_screen_resumed(self, _: None) -> None:
        """Schedule a fill, as one that was scheduled while another screen was shown may be lost."""
        self._fill_scheduled = False
        self.schedule_fill()

    async def _run_scheduled_fill(self) -> None:
        if not self.is_attached:  # the app ends
            return
        async with self.mount_lock:
            self._fill_scheduled = False
            await self.fill()
        # An anchor scrolls without watchers, which would paint the scrollbar.
        if (position := self.vertical_scrollbar.position) != self._scrollbar_position:
            self._scrollbar_position = position
            self.vertical_scrollbar.refresh()

    async def fill(self, top: float | None = None) -> None:
        """Mount entries near the viewport, and unmount far ones. ``top``: its row, if it scrolls."""
        while self.size.height and self.is_attached:
            entries, virtual = self.virtual_entries
            wanted = self._next_range(entries, virtual, top)
            mounted = {entry for entry in entries if entry.widget is not None}
            if mounted == {*entries[wanted.start : wanted.stop], *entries[virtual:]}:
                break
            with self.app.batch_update():
                await self._mount_range(entries, wanted, virtual)
        self.on_filled()

    async def mount_entry(self, entry: VirtualEntry) -> Widget | None:
        """Return the widget of an entry; scroll to it first if it has none. None: there is no room."""
        async with self.mount_lock:
            if entry.widget is None:
                entries, _ = self.virtual_entries
                top = sum(above.height for above in entries[: entries.index(entry)])
                self.scroll_to(y=self._first_entry_row + top, animate=False)
                await self.fill(top)
        return entry.widget

    @property
    def _first_entry_row(self) -> int:
        return self._regions[self._spacer_above].y if self._spacer_above in self._regions else 0

    def _next_range(self, entries: list[VirtualEntry], virtual: int, top: float | None) -> range:
        """Return the indexes that are to be mounted next among the first ``virtual`` entries."""
        heights = [self.entry_height(e) if e.widget is not None else e.height for e in entries]
        if top is None and self._is_following:
            top = sum(heights) - self.size.height
        elif top is None:
            top = self.scroll_y - self._first_entry_row
        indexes = [n for n, entry in enumerate(entries[:virtual]) if entry.widget is not None]
        mounted = range(indexes[0], indexes[-1] + 1) if indexes else range(0)
        wanted = visible_range(heights[:virtual], mounted, top, self.size.height, MOUNT_BATCH)
        if self.screen.selections and wanted.start <= mounted.stop and mounted.start <= wanted.stop:
            # Selected widgets stay mounted, to be copied however far they are scrolled away.
            wanted = range(min(wanted.start, mounted.start), max(wanted.stop, mounted.stop))
        return wanted

    def entry_height(self, entry: VirtualEntry) -> int:
        if entry.widget is not None and not entry.widget.display:
            entry.height = 0
        elif entry.widget in self._regions:
            entry.height = self._regions[entry.widget].height
        return entry.height

    async def _mount_range(self, entries: list[VirtualEntry], wanted: range, virtual: int) -> None:
        await self.unmount_entries([*entries[: wanted.start], *entries[wanted.stop : virtual]])
        await self._mount_entries(entries[virtual:], None)
        await self._mount_entries(entries[wanted.start : wanted.stop], self._spacer_below)
        self._spacer_above.styles.height = sum(entry.height for entry in entries[: wanted.start])
        self._spacer_below.styles.height = sum(
            entry.height for entry in entries[wanted.stop : virtual]
        )

    async def _mount_entries(self, entries: list[VirtualEntry], before: Widget | None) -> None:
        """Make the widgets that are missing; the last one is mounted before ``before``."""
        for entry in reversed(entries):
            if entry.widget is None:
                if not self.is_attached:  # the app ends
                    return
                entry.widget = entry.create()
                await self.mount(entry.widget, before=before)
                if entry.expanded and entry.foldable is not None:
                    entry.foldable.set_expanded(True)
            before = entry.widget

    async def unmount_entries(self, entries: Iterable[VirtualEntry]) -> None:
        """Remove the widgets of entries, and remember their heights and whether they are expanded."""
        widgets = []
        for entry in entries:
            if entry.widget is not None:
                self.entry_height(entry)
                entry.expanded = entry.foldable is not None and entry.foldable.expanded
                widgets.append(entry.widget)
                entry.widget = None
        await self.remove_children(widgets)

    # --- scroll anchoring: what is read stays in its row, whatever is mounted above ---

    @property
    def _is_following(self) -> bool:
        return self._anchored and not self._anchor_released

    def _check_anchor(self) -> None:
        """Follow the end if the viewport is there (Textual's takes the height of the last layout)."""
        height = max((region.bottom for region in self._regions.values()), default=0)
        if self.scroll_y + self.size.height >= height - 1:
            super()._check_anchor()

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        result = super().arrange(size, optimal)
        self.schedule_fill()  # an anchored widget scrolls without calling watch_scroll_y
        self._regions = {
            placement.widget: placement.region.grow((0, 0, placement.margin.bottom, 0))
            for placement in result.placements
        }
        if self._is_following:
            self._top_anchor = None
        elif self._top_anchor is None:
            self._top_anchor = self._find_top_anchor()
        elif (region := self._regions.get(self._top_anchor[0])) is not None:
            self._set_scroll_silently(region.y + self._top_anchor[1])
        return result

    def _find_top_anchor(self) -> tuple[Widget, float] | None:
        """Find the child at the top of the viewport; None for a spacer or the blank above the first."""
        for widget, region in self._regions.items():
            if region.bottom > self.scroll_y:
                is_blank = isinstance(widget, Spacer) or region.y > self.scroll_y
                return None if is_blank else (widget, self.scroll_y - region.y)
        return None

    def _set_scroll_silently(self, y: float) -> None:
        if y != self.scroll_y:
            self.set_reactive(Widget.scroll_y, y)
            self.set_reactive(Widget.scroll_target_y, y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)
