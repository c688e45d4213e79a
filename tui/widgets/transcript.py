"""A conversation from its first exchange to the one that runs, followed at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.scrollbar import ScrollBar
from textual.widget import Widget
from textual.widgets import Static

from tui.util.virtual_list import Entry, wanted

if TYPE_CHECKING:
    from textual.layout import DockArrangeResult

    from tui.state.item_view import Part
    from tui.state.turn_view import Said
    from tui.widgets.exchange import Exchange
    from tui.widgets.reasoning_block import Thought
    from tui.widgets.tool_call_card import Call


STEP = 4
"""So many entries at a time get widgets."""


class Gap(Widget):
    """Stands where entries have no widgets."""

    DEFAULT_CSS = """
    Gap { height: 0; }
    """


class Line:
    """Of the program itself, between the exchanges."""

    said = None

    def __init__(self, text: str, *, error: bool) -> None:
        classes = "line -error" if error else "line"
        self.entries = [Entry(lambda: Static(Content(text), classes=classes))]


class Transcript(VerticalScroll, can_focus=False):
    """The newest exchange is shown as panes, or, in the other view, as the record all others are."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr; scrollbar-size-vertical: 1; align: left bottom;
        & > .line { padding: 0 1; height: auto; color: $text-muted; }
        & > .line.-error { color: $text-error; }
        & > Thought, & > Call, & > Message, & > Interjection {
            max-width: 120; margin: 0 1 1 1;
        }
    }
    """

    def __init__(self, *, id: str | None = None, panes: bool = True) -> None:
        super().__init__(id=id)
        self.panes = panes
        self._shown: list[Exchange | Line] = []
        self._above, self._below = Gap(), Gap()
        """Where entries have no widgets; the newest exchange's panes, and what is below, always do."""
        self._placed: dict[Widget, Region] = {}
        self._place: tuple[Widget, float] | None = None
        """What stands at the top of what is seen, and how many rows of it are further up."""
        self._changing = asyncio.Lock()
        self._filling = False

    async def on_mount(self) -> None:
        await self.mount(self._above, self._below)

    # --- what is in it ---

    @property
    def said(self) -> list[Said]:
        """What was asked and answered, the turns of other programs included."""
        return [one.said for one in self._shown if one.said is not None]

    @property
    def messages(self) -> list[Said]:
        """What was asked and answered in this conversation, by which it can be gone through."""
        return [said for said in self.said if said.start is not None]

    @property
    def newest(self) -> Exchange | None:
        return next((one for one in reversed(self._shown) if not isinstance(one, Line)), None)

    def _exchange(self, said: Said) -> Exchange:
        found = next(one for one in reversed(self._shown) if one.said is said)
        assert not isinstance(found, Line)
        return found

    @property
    def _entries(self) -> tuple[list[Entry], int]:
        """All, and how many of them have widgets only while they are near."""
        newest, near = self.newest, None
        entries: list[Entry] = []
        for one in self._shown:
            if one is newest and newest.panes:
                near = len(entries)
            entries += one.entries
        return entries, len(entries) if near is None else near

    async def begin(self, said: Said) -> None:
        """Show a new exchange; the one before becomes a record."""
        # Not at the top: Markdown and the events are not needed for the empty screen.
        from tui.widgets.exchange import Exchange

        async with self._changing:
            self.anchor()
            with self.app.batch_update():
                before = self.newest
                self._shown.append(Exchange(said, self.size.width, panes=self.panes))
                await self._turn(before, panes=False)
                await self._fill()

    async def recall(self, exchanges: list[Said]) -> None:
        """Show what was said before this program started."""
        from tui.widgets.exchange import Exchange

        async with self._changing:
            self._shown += [Exchange(said, self.size.width, panes=False) for said in exchanges]
            self.anchor()
            await self._fill()

    def follow(self, said: Said) -> None:
        """Show what came of an exchange; several may run."""
        if said in self.said:
            self._exchange(said).follow()
            self._fill_soon()

    def say(self, text: str, *, error: bool = False) -> None:
        """A line of the program itself."""
        self._shown.append(Line(text, error=error))
        self._fill_soon()

    async def cut(self, said: Said) -> None:
        """Show nothing from this exchange on."""
        async with self._changing:
            first = self._shown.index(self._exchange(said))
            gone = [entry for one in self._shown[first:] for entry in one.entries]
            del self._shown[first:]
            with self.app.batch_update():
                await self._drop(gone)
                self.anchor()
                await self._fill()

    async def clear(self) -> None:
        """Show nothing of it any more."""
        async with self._changing:
            self._shown.clear()
            self._place = None
            await self.remove_children()
            self._above, self._below = Gap(), Gap()
            await self.mount(self._above, self._below)

    # --- looking at it ---

    async def pick(self, said: Said) -> None:
        """The next key is for this exchange."""
        from tui.widgets.user_message import Asked

        asked = await self._reach(self._exchange(said).entry(None))
        assert isinstance(asked, Asked)
        asked.pick()

    async def reveal(self, said: Said, part: Part | None) -> list[Widget]:
        """What shows this part (None: the prompt), opened, scrolled to where it was far away."""
        from tui.widgets.text_stream import Stream

        exchange = self._exchange(said)
        if part is not None and exchange.panes:
            await self._show_as(panes=False)
        widget = await self._reach(exchange.entry(part))
        if (folding := _folding(widget)) is None:
            return [widget]
        folding.open = True
        return list(folding.query(Stream))

    async def _reach(self, entry: Entry) -> Widget:
        async with self._changing:
            if entry.widget is None:
                entries, _ = self._entries
                top = sum(one.height for one in entries[: entries.index(entry)])
                self.scroll_to(y=self._first_row + top, animate=False)
                await self._fill(top)
        assert entry.widget is not None
        return entry.widget

    def bring(self, widget: Widget, row: int) -> None:
        """One of a widget's rows into the upper third of what is seen."""
        y = widget.content_region.y - self.content_region.y + self.scroll_y + row
        self.release_anchor()
        self.scroll_to(y=max(0, y - self.size.height // 3), animate=False)

    async def switch(self) -> None:
        """Panes become the record, the record panes."""
        self.panes = not self.panes
        await self._show_as(panes=self.panes)
        self.anchor()

    async def _show_as(self, *, panes: bool) -> None:
        async with self._changing:
            with self.app.batch_update():
                await self._turn(self.newest, panes=panes)
                await self._fill()

    async def _turn(self, exchange: Exchange | None, *, panes: bool) -> None:
        """Change its view; both are made from the same parts, so nothing is lost."""
        if exchange is not None and exchange.panes != panes:
            first = self._shown.index(exchange)
            await self._drop([entry for one in self._shown[first:] for entry in one.entries])
            exchange.panes = panes

    def fold(self) -> None:
        """Open all reasoning and results, or fold all again."""
        entries, _ = self._entries
        near = [entry.widget for entry in entries if entry.widget is not None]
        folding = [one for one in map(_folding, near) if one is not None]
        value = not any(one.open for one in folding)
        for entry in entries:
            entry.open = value
        for one in folding:
            one.open = value

    # --- only what is near has widgets ---

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._place = None  # first: what is told of it may lay out
        super().watch_scroll_y(old_value, new_value)
        self._fill_soon()

    def _fill_soon(self) -> None:
        if not self._filling:
            self._filling = True
            self.call_after_refresh(self._fill_now)

    async def _fill_now(self) -> None:
        async with self._changing:
            self._filling = False
            await self._fill()

    async def _fill(self, top: float | None = None) -> None:
        """Widgets for what is near, a few at a time; none for what is far. ``top``: the first row that
        is going to be seen."""
        while self.size.height:
            entries, near = self._entries
            there = self._wanted(entries, near, top)
            have = {entry for entry in entries if entry.widget is not None}
            if have == {*entries[there.start : there.stop], *entries[near:]}:
                break
            with self.app.batch_update():
                await self._have(entries, there, near)
        if (newest := self.newest) is not None:
            after = self._shown[self._shown.index(newest) + 1 :]
            said = sum(self._height(entry) for one in after for entry in one.entries)
            newest.fit(self.size.height - said)

    @property
    def _first_row(self) -> int:
        """Of the entries; above is what was there before them."""
        return self._placed[self._above].y if self._above in self._placed else 0

    def _wanted(self, entries: list[Entry], near: int, top: float | None) -> range:
        heights = [self._height(entry) for entry in entries]
        if top is None and self._following:
            top = sum(heights) - self.size.height
        elif top is None:
            top = self.scroll_y - self._first_row
        have = [n for n, entry in enumerate(entries[:near]) if entry.widget is not None]
        there = range(have[0], have[-1] + 1) if have else range(0)
        then = wanted(heights[:near], there, top, self.size.height, STEP)
        if self.screen.selections and then.start <= there.stop and there.start <= then.stop:
            # What is selected can be copied, however far it was scrolled away.
            then = range(min(then.start, there.start), max(then.stop, there.stop))
        return then

    def _height(self, entry: Entry) -> int:
        if entry.widget is not None and not entry.widget.display:
            entry.height = 0
        elif entry.widget in self._placed:
            entry.height = self._placed[entry.widget].height
        return entry.height

    async def _have(self, entries: list[Entry], there: range, near: int) -> None:
        await self._drop([*entries[: there.start], *entries[there.stop : near]])
        await self._make(entries[near:], None)
        await self._make(entries[there.start : there.stop], self._below)
        self._above.styles.height = sum(entry.height for entry in entries[: there.start])
        self._below.styles.height = sum(entry.height for entry in entries[there.stop : near])

    async def _make(self, entries: list[Entry], before: Widget | None) -> None:
        """Those that have no widgets get them. ``before``: what comes next."""
        for entry in reversed(entries):
            if entry.widget is None:
                entry.widget = entry.make()
                await self.mount(entry.widget, before=before)
                if entry.open and (folding := _folding(entry.widget)) is not None:
                    folding.open = True
            before = entry.widget

    async def _drop(self, entries: Iterable[Entry]) -> None:
        """Their widgets go."""
        gone = []
        for entry in entries:
            if entry.widget is not None:
                self._height(entry)
                folding = _folding(entry.widget)
                entry.open = folding is not None and folding.open
                for widget in entry.widget.walk_children(Widget, with_self=True):
                    widget._styles_cache.clear()  # Textual keeps it, with all that was painted
                gone.append(entry.widget)
                entry.widget = None
        await self.remove_children(gone)

    # --- what is seen stays where it is, whatever becomes of what is above ---

    @property
    def _following(self) -> bool:
        return self._anchored and not self._anchor_released

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        result = super().arrange(size, optimal)
        self._fill_soon()  # who is anchored scrolls, and is not told
        self._placed = {
            placement.widget: placement.region.grow((0, 0, placement.margin.bottom, 0))
            for placement in result.placements
        }
        if self._following:
            self._place = None
        elif self._place is None:
            self._place = self._at_top()
        elif (region := self._placed.get(self._place[0])) is not None:
            self._stay(region.y + self._place[1])
        return result

    def _at_top(self) -> tuple[Widget, float] | None:
        for widget, region in self._placed.items():
            if region.bottom > self.scroll_y:
                nothing = isinstance(widget, Gap) or region.y > self.scroll_y
                return None if nothing else (widget, self.scroll_y - region.y)
        return None

    def _stay(self, y: float) -> None:
        """As Textual does for what is anchored: before it is painted, and nobody is told."""
        if y != self.scroll_y:
            self.set_reactive(Widget.scroll_y, y)
            self.set_reactive(Widget.scroll_target_y, y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)


def _folding(widget: Widget) -> Thought | Call | None:
    from tui.widgets.reasoning_block import Thought
    from tui.widgets.tool_call_card import Call

    return widget if isinstance(widget, Thought | Call) else None
