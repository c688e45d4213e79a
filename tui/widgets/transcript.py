"""The transcript: all turns of a conversation, of which only what is near the viewport has widgets.

A long conversation has thousands of items, and Textual lays out and styles every mounted widget. So the
transcript is a virtual list: each prompt, item and notice is a ``VirtualEntry``, which makes its widget
when it comes near and gives it up when it is far. The transcript's children are, from the top::

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

1. *Something changed.* A scroll (``watch_scroll_y``), a layout (``arrange``) or new text (``follow``)
   schedules one fill for after the next refresh.
2. *Fill* (``_fill``, under ``_mount_lock``): mounts the entries that are wanted, at most
   ``MOUNT_BATCH`` at a time, removes those that are far, and sets the spacers' heights, until
   nothing changes.
3. *Layout.* Entries turn out higher or lower than estimated, above the viewport too, and what is
   read would jump. So ``arrange``, which Textual calls for a layout and before it paints, scrolls
   along: the widget at the top of the viewport stays in its row.

For example, row 40 is at the top of the viewport, the third row of a card that begins in row 38:
``_top_anchor`` is ``(card, 2)``. An entry above it was estimated at 4 rows, is mounted, and has 7.
The card is now in row 41, so ``arrange`` sets ``scroll_y`` to 43, and the person sees no change.
Any other scroll sets ``_top_anchor`` to None; the next ``arrange`` takes the widget that is at the
top then. While the transcript follows its end, Textual's own anchor scrolls, and ``_top_anchor`` is
None.

Reads ``_anchored``, ``_anchor_released`` and ``_styles_cache``, which are private in Textual 8.2,
and sets ``scroll_y`` without its watchers, as Textual does for an anchor (pyproject.toml:
``>=8.2.8,<8.3``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.containers import ScrollableContainer, VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from tui.base_screen import BaseScreen
from tui.guarded import Guarded
from tui.util.virtual_list import VirtualEntry, visible_range
from tui.widgets.notice import NoticeEntries

if TYPE_CHECKING:
    from textual.layout import DockArrangeResult

    from tui.state.item_view import ItemView
    from tui.state.timeline import Timeline
    from tui.state.turn_view import TurnView
    from tui.widgets.exchange import ExchangeEntries
    from tui.widgets.reasoning_block import ReasoningBlock
    from tui.widgets.shell_output import ShellOutput
    from tui.widgets.tool_call_card import ToolCallCard
    from tui.widgets.user_message import UserMessage


MOUNT_BATCH = 4
"""Entries that get widgets at a time, so that no paint waits long."""


class Spacer(Widget):
    """Takes the room of entries that have no widgets."""

    DEFAULT_CSS = """
    Spacer { height: 0; }
    """


class Transcript(Guarded, VerticalScroll, can_focus=False):
    """Shows turns and notices, and follows its end until the person scrolls away from it."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr; scrollbar-size-vertical: 1; align: left bottom;
        & > .line { padding: 0 1; height: auto; color: $text-muted; }
        & > .line.-error { color: $text-error; }
        & > ReasoningBlock, & > ToolCallCard, & > AssistantMessage, & > SteeringMessage,
        & > ColouredMessage {
            max-width: 120; margin: 0 1 1 1;
        }
    }
    """

    class FollowingChanged(Message):
        """Posted when ``is_scrolled_away`` has changed."""

    def __init__(self, *, id: str | None = None, shows_panes: bool = True) -> None:
        super().__init__(id=id)
        self.shows_panes = shows_panes
        self._was_scrolled_away = False
        self._sections: list[ExchangeEntries | NoticeEntries] = []
        self._spacer_above, self._spacer_below = Spacer(), Spacer()
        self._regions: dict[Widget, Region] = {}
        """Where the children are since the last layout, with their margins below."""
        self._top_anchor: tuple[Widget, float] | None = None
        """The widget at the top of the viewport, and how many of its rows are above that."""
        self._mount_lock = asyncio.Lock()
        self._fill_scheduled = False
        self._scrollbar_position = 0.0
        """As it was painted last."""

    async def on_mount(self) -> None:
        await self.mount(self._spacer_above, self._spacer_below)
        assert isinstance(self.screen, BaseScreen)
        self.screen.resumed.subscribe(self, self._on_screen_resumed)

    # --- content ---

    @property
    def turns(self) -> list[TurnView]:
        """All turns, those of other programs included."""
        return [section.turn for section in self._sections if section.turn is not None]

    @property
    def own_turns(self) -> list[TurnView]:
        """The turns of this conversation, which can be picked."""
        return [turn for turn in self.turns if turn.start is not None]

    @property
    def newest_exchange(self) -> ExchangeEntries | None:
        exchanges = (s for s in reversed(self._sections) if not isinstance(s, NoticeEntries))
        return next(exchanges, None)

    def _exchange_of(self, turn: TurnView) -> ExchangeEntries:
        section = next(section for section in reversed(self._sections) if section.turn is turn)
        assert not isinstance(section, NoticeEntries)
        return section

    @property
    def _all_entries(self) -> tuple[list[VirtualEntry], int]:
        """All entries, and how many of them, from the first on, have widgets only near the viewport."""
        newest, virtual = self.newest_exchange, None
        entries: list[VirtualEntry] = []
        for section in self._sections:
            if section is newest and newest.shows_panes:
                virtual = len(entries) + 1  # the panes; the prompt above stays when they fold
            entries += section.entries
        return entries, len(entries) if virtual is None else virtual

    async def add_turn(self, turn: TurnView) -> None:
        """Show a new turn, and the one before without panes; who has scrolled away stays there."""
        # Not at the top: Markdown and the events are not needed for the empty screen.
        from tui.widgets.exchange import ExchangeEntries

        async with self._mount_lock:
            self._ensure_anchored()
            with self.app.batch_update():
                before = self.newest_exchange
                exchange = ExchangeEntries(turn, self.size.width, shows_panes=self.shows_panes)
                self._sections.append(exchange)
                await self._set_view(before, panes=False)
                await self._fill()

    async def add_stored_turns(self, turns: list[TurnView]) -> None:
        """Show turns from the store, and the end of the last."""
        from tui.widgets.exchange import ExchangeEntries  # as in add_turn
        from tui.widgets.shell_output import sent_commands

        async with self._mount_lock:
            width = self.size.width
            for turn in turns:
                self._sections += [*sent_commands(turn.raw_prompt)]
                self._sections.append(ExchangeEntries(turn, width, shows_panes=False))
            self.anchor()
            await self._fill()

    def follow(self, turn: TurnView) -> None:
        """Show what came of a turn since the last call; several turns may run."""
        if turn in self.turns:
            self._exchange_of(turn).follow()
            self._schedule_fill()

    def add_notice(self, text: str, *, error: bool = False) -> None:
        """Add a line of the program itself below the last turn."""
        self.add_section(NoticeEntries(text, error=error))

    def add_section(self, section: NoticeEntries) -> None:
        """Add what belongs to no turn below the last one."""
        self._sections.append(section)
        self._ensure_anchored()
        self._schedule_fill()

    def release_anchor(self) -> None:
        """Follow the end no longer; where all fits, a key or the wheel scrolls away from nothing."""
        if self.max_scroll_y:
            super().release_anchor()
            self._report_following()

    def _ensure_anchored(self) -> None:
        """Follow the end from the first section on; before it, a high banner is read from its top."""
        if not self.is_anchored:
            self.anchor()

    async def remove_from(self, turn: TurnView) -> None:
        async with self._mount_lock:
            first = self._sections.index(self._exchange_of(turn))
            entries = self._entries_from(first)
            del self._sections[first:]
            with self.app.batch_update():
                await self._unmount_entries(entries)
                self.anchor()
                await self._fill()

    async def toggle_times(self, turn: TurnView, timeline: Timeline) -> None:
        """Show where a turn's time went below it, or remove that again."""
        from tui.widgets.turn_times import TurnTimes  # as in add_turn

        exchange = self._exchange_of(turn)
        async with self._mount_lock:
            if (former := exchange.times) is None:
                height = len(timeline.spans) + 3
                exchange.times = VirtualEntry(lambda: TurnTimes(timeline), height)
            else:
                exchange.times = None
                await self._unmount_entries([former])
            await self._fill()
        if exchange.times is not None and exchange.times.widget is not None:
            exchange.times.widget.scroll_visible(animate=False)

    async def show_colours(self, turn: TurnView) -> None:
        """Make a turn's texts again after their colours changed; nothing where it was removed."""
        if turn not in self.turns:
            return
        exchange = self._exchange_of(turn)
        if exchange.shows_panes:
            await self._show_newest_as(panes=False)
        async with self._mount_lock:
            if exchange not in self._sections:
                return
            with self.app.batch_update():
                await self._unmount_entries(exchange.item_entries)
                await self._fill()
        exchange.follow()

    async def clear(self) -> None:
        """Remove all turns, notices and other children."""
        async with self._mount_lock:
            self._sections.clear()
            self._top_anchor = None
            self.anchor(False)
            await self.remove_children()
            self._spacer_above, self._spacer_below = Spacer(), Spacer()
            await self.mount(self._spacer_above, self._spacer_below)

    def _entries_from(self, first: int) -> list[VirtualEntry]:
        """Return the entries of a section, by its index, and of all below it."""
        return [entry for section in self._sections[first:] for entry in section.entries]

    # --- navigation ---

    async def pick(self, turn: TurnView) -> None:
        """Scroll to the prompt of a turn and give it the focus."""
        from tui.widgets.user_message import UserMessage  # as in add_turn

        message = await self._mount_entry(self._exchange_of(turn).entry_of(None))
        if isinstance(message, UserMessage):
            message.pick()

    async def reveal(self, turn: TurnView, item: ItemView | None) -> list[Widget]:
        """Mount and expand an item, or with None the prompt; return the widgets with its text. Panes
        become items; scrolls only to what was not mounted."""
        from tui.widgets.text_stream import TextStream  # as in add_turn

        if turn not in self.turns:
            return []  # it was removed since it was found
        exchange = self._exchange_of(turn)
        if item is not None and exchange.shows_panes:
            await self._show_newest_as(panes=False)
        if (widget := await self._mount_entry(exchange.entry_of(item))) is None:
            return []
        if (foldable := _as_foldable(widget)) is None:
            return [widget]
        foldable.expanded = True
        return list(foldable.query(TextStream)) or [widget]

    async def _mount_entry(self, entry: VirtualEntry) -> Widget | None:
        """Return the widget of an entry; scroll to it first if it has none. None: there is no room."""
        async with self._mount_lock:
            if entry.widget is None:
                entries, _ = self._all_entries
                top = sum(above.height for above in entries[: entries.index(entry)])
                self.scroll_to(y=self._first_entry_row + top, animate=False)
                await self._fill(top)
        return entry.widget

    def scroll_to_row(self, widget: Widget, row: int) -> None:
        """Scroll so that a row of a widget is in the upper third of the viewport."""
        y = widget.content_region.y - self.content_region.y + self.scroll_y + row
        self.release_anchor()
        self.scroll_to(y=max(0, y - self.size.height // 3), animate=False)

    @property
    def is_scrolled_away(self) -> bool:
        """Whether the transcript, or a pane of its newest turn, is scrolled away from its end."""
        newest = self.newest_exchange
        return (self._anchored and self._anchor_released) or (
            newest is not None and newest.is_scrolled_away
        )

    def scroll_to_live_end(self) -> None:
        """Scroll to the end, and each pane to its own; follow them again."""
        self.scroll_end(animate=False)
        for pane in self.query(ScrollableContainer):
            if pane.is_anchored:
                pane.scroll_end(animate=False)

    def focus_newest(self) -> bool:
        """Focus the first pane or item of the newest turn that has any; return whether there is one."""
        chain = self.screen.focus_chain
        for section in reversed(self._sections):
            if section.turn is not None:
                widgets = {entry.widget for entry in section.entries}
                for candidate in chain:
                    if not widgets.isdisjoint(candidate.ancestors):
                        self.screen.set_focus(candidate)
                        return True
        return False

    async def toggle_view(self) -> None:
        """Show running turns item by item instead of as panes, or as panes again."""
        self.shows_panes, newest = not self.shows_panes, self.newest_exchange
        if newest is not None and newest.turn.running:
            await self._show_newest_as(panes=self.shows_panes)
            self.anchor()

    async def _show_newest_as(self, *, panes: bool) -> None:
        async with self._mount_lock:
            with self.app.batch_update():
                await self._set_view(self.newest_exchange, panes=panes)
                await self._fill()

    async def _set_view(self, exchange: ExchangeEntries | None, *, panes: bool) -> None:
        """Change the view of a turn: its widgets, and those below, are made again by the next fill."""
        if exchange is not None and exchange.shows_panes != panes:
            _, *entries = self._entries_from(self._sections.index(exchange))
            exchange.set_view(panes=panes)
            await self._unmount_entries(entries)

    def toggle_folds(self) -> None:
        """Expand all reasoning and results, or collapse them if one that is mounted is expanded."""
        entries, _ = self._all_entries
        mounted = [entry.widget for entry in entries if entry.widget is not None]
        foldable = [widget for widget in map(_as_foldable, mounted) if widget is not None]
        expanded = not any(widget.expanded for widget in foldable)
        for entry in entries:
            entry.expanded = expanded
        for widget in foldable:
            widget.expanded = expanded

    # --- virtual list: only entries near the viewport have widgets ---

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Schedule a fill, and keep the next top widget in its row instead of the former one."""
        self._top_anchor = None  # first: a watcher may lay out
        super().watch_scroll_y(old_value, new_value)
        self._schedule_fill()

    def on_turn_panes_read(self) -> None:
        self._schedule_fill()

    def _schedule_fill(self) -> None:
        if not self._fill_scheduled:
            self._fill_scheduled = True
            self.call_after_refresh(self._run_scheduled_fill)

    def _on_screen_resumed(self, _: None) -> None:
        """Schedule a fill, as one that was scheduled while another screen was shown may be lost."""
        self._fill_scheduled = False
        self._schedule_fill()

    async def _run_scheduled_fill(self) -> None:
        """Fill, after a turn that has ended has left its panes, unless text is selected there."""
        if not self.is_attached:  # the app ends
            return
        newest = self.newest_exchange
        if newest is not None and newest.folds and not self.screen.selections:
            await self._show_newest_as(panes=False)
        async with self._mount_lock:
            self._fill_scheduled = False
            await self._fill()
        self._repaint_scrollbar()
        self._report_following()

    def _repaint_scrollbar(self) -> None:
        """Paint the scrollbar where an anchor, which scrolls without watchers, has moved it."""
        if (position := self.vertical_scrollbar.position) != self._scrollbar_position:
            self._scrollbar_position = position
            self.vertical_scrollbar.refresh()

    def _report_following(self) -> None:
        if self.is_scrolled_away != self._was_scrolled_away:
            self._was_scrolled_away = self.is_scrolled_away
            self.post_message(self.FollowingChanged())

    async def _fill(self, top: float | None = None) -> None:
        """Mount a few entries near the viewport, and unmount those that are far. ``top``: the row at
        which the viewport is going to be, if a scroll is under way."""
        while self.size.height and self.is_attached:
            entries, virtual = self._all_entries
            wanted = self._next_range(entries, virtual, top)
            mounted = {entry for entry in entries if entry.widget is not None}
            if mounted == {*entries[wanted.start : wanted.stop], *entries[virtual:]}:
                break
            with self.app.batch_update():
                await self._mount_range(entries, wanted, virtual)
        if (newest := self.newest_exchange) is not None:
            below = self._entries_from(self._sections.index(newest) + 1)
            newest.fit_panes(self.size.height - sum(map(self._entry_height, below)))

    @property
    def _first_entry_row(self) -> int:
        return self._regions[self._spacer_above].y if self._spacer_above in self._regions else 0

    def _next_range(self, entries: list[VirtualEntry], virtual: int, top: float | None) -> range:
        """Return the indexes that are to be mounted next among the first ``virtual`` entries."""
        heights = [self._entry_height(entry) for entry in entries]
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

    def _entry_height(self, entry: VirtualEntry) -> int:
        """Return the height of an entry, updated from the last layout if it has a widget."""
        if entry.widget is not None and not entry.widget.display:
            entry.height = 0
        elif entry.widget in self._regions:
            entry.height = self._regions[entry.widget].height
        return entry.height

    async def _mount_range(self, entries: list[VirtualEntry], wanted: range, virtual: int) -> None:
        await self._unmount_entries([*entries[: wanted.start], *entries[wanted.stop : virtual]])
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
                if entry.expanded and (foldable := _as_foldable(entry.widget)) is not None:
                    foldable.expanded = True
            before = entry.widget

    async def _unmount_entries(self, entries: Iterable[VirtualEntry]) -> None:
        """Remove the widgets of entries, and remember their heights and whether they are expanded."""
        widgets = []
        for entry in entries:
            if entry.widget is not None:
                self._entry_height(entry)
                foldable = _as_foldable(entry.widget)
                entry.expanded = foldable is not None and foldable.expanded
                for widget in entry.widget.walk_children(Widget, with_self=True):
                    widget._styles_cache.clear()  # Textual keeps it, with all that was painted
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
        """Lay out the children, and scroll so that the widget at the top stays in its row."""
        result = super().arrange(size, optimal)
        self._schedule_fill()  # an anchored widget scrolls without calling watch_scroll_y
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
        """Scroll without watchers or another layout, as Textual does for an anchor before it paints."""
        if y != self.scroll_y:
            self.set_reactive(Widget.scroll_y, y)
            self.set_reactive(Widget.scroll_target_y, y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)


def _as_foldable(
    widget: Widget,
) -> ReasoningBlock | ToolCallCard | ShellOutput | UserMessage | None:
    # Not at the top, as in add_turn.
    from tui.widgets.reasoning_block import ReasoningBlock
    from tui.widgets.shell_output import ShellOutput
    from tui.widgets.tool_call_card import ToolCallCard
    from tui.widgets.user_message import UserMessage

    kinds = ReasoningBlock | ToolCallCard | ShellOutput | UserMessage
    return widget if isinstance(widget, kinds) else None
