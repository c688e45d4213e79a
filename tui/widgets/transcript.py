"""A conversation from its first exchange to the one that runs, followed at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.scrollbar import ScrollBar
from textual.widget import Widget
from textual.widgets import Static

from tui.window import wanted

if TYPE_CHECKING:
    from textual.layout import DockArrangeResult

    from tui.said import Said
    from tui.widgets.call import Call
    from tui.widgets.exchange import Exchange
    from tui.widgets.thought import Thought


@dataclass(eq=False)
class Entry:
    """An exchange or a line. Far from what is seen it has no widget and costs nothing."""

    make: Callable[[], Widget]
    height: int = 1
    """Rows, as it was last seen; before, an estimate."""
    said: Said | None = None
    widget: Widget | None = None


class Gap(Widget):
    """Stands where entries have no widgets."""

    DEFAULT_CSS = """
    Gap { height: 0; }
    """


class Transcript(VerticalScroll, can_focus=False):
    """The newest exchange is shown as panes, or, in the other view, as the record all others are."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr; scrollbar-size-vertical: 1; align: left bottom;
        & > .line { padding: 0 1; height: auto; color: $text-muted; }
        & > .line.-error { color: $text-error; }
    }
    """

    def __init__(self, *, id: str | None = None, panes: bool = True) -> None:
        super().__init__(id=id)
        self.panes = panes
        self.newest: Exchange | None = None
        self._entries: list[Entry] = []
        self._pinned = 0
        """From this entry on, the newest exchange, all have their widgets."""
        self._there = range(0)
        """Of the others, those that have them."""
        self._above, self._below = Gap(), Gap()
        self._placed: dict[Widget, Region] = {}
        self._place: tuple[Widget, float] | None = None
        """What stands at the top of what is seen, and how many rows of it are further up."""
        self._changing = asyncio.Lock()
        self._filling = self._open = False

    async def on_mount(self) -> None:
        await self.mount(self._above, self._below)

    # --- what is in it ---

    @property
    def said(self) -> list[Said]:
        """What was asked and answered, the turns of other programs included."""
        return [entry.said for entry in self._entries if entry.said is not None]

    def bring(self, widget: Widget, row: int) -> None:
        """One of a widget's rows into the upper third of what is seen."""
        y = widget.content_region.y - self.content_region.y + self.scroll_y + row
        self.release_anchor()
        self.scroll_to(y=max(0, y - self.size.height // 3), animate=False)

    @property
    def messages(self) -> list[Said]:
        """What was asked and answered in this conversation, by which it can be gone through."""
        return [said for said in self.said if said.start is not None]

    async def exchange(self, said: Said) -> Exchange:
        """The one that shows it, scrolled to where it was far away."""
        from tui.widgets.exchange import Exchange

        number = next(n for n, entry in enumerate(self._entries) if entry.said is said)
        entry = self._entries[number]
        async with self._changing:
            if entry.widget is None:
                top = sum(one.height for one in self._entries[:number])
                self.scroll_to(y=self._first_row + top, animate=False)
                await self._fill(top)
        assert isinstance(entry.widget, Exchange)
        return entry.widget

    def follow(self, said: Said) -> None:
        """Show what came of an exchange, where it is near; several may run."""
        from tui.widgets.exchange import Exchange

        for entry in reversed(self._entries):
            if entry.said is said and isinstance(entry.widget, Exchange):
                entry.widget.follow()

    async def cut(self, said: Said) -> None:
        """Show nothing from this exchange on."""
        from tui.widgets.exchange import Exchange

        first = next(n for n, entry in enumerate(self._entries) if entry.said is said)
        async with self._changing:
            gone, self._entries = self._entries[first:], self._entries[:first]
            self._there = range(self._there.start, min(self._there.stop, first))
            self._pinned, self.newest = first, None
            with self.app.batch_update():
                await self.remove_children([one.widget for one in gone if one.widget is not None])
                self.anchor()
                await self._fill()
            for number, entry in enumerate(self._entries):
                if isinstance(entry.widget, Exchange):
                    self._pinned, self.newest = number, entry.widget
            self._there = range(self._there.start, min(self._there.stop, self._pinned))

    async def begin(self, said: Said) -> Exchange:
        """Show a new exchange; the one before becomes a record."""
        # Not at the top: Markdown and the events are not needed for the empty screen.
        from tui.widgets.exchange import Exchange

        exchange = Exchange(said, panes=self.panes)
        async with self._changing:
            self.anchor()
            await self._fill()
            if self.newest is not None:
                await self.newest.show_as(panes=False)
            self._there = range(self._there.start, len(self._entries))
            await self._pin(exchange, said)
        self._fit()
        return exchange

    async def recall(self, exchanges: list[Said]) -> None:
        """Show what was said before this program started."""
        from tui.widgets.exchange import Exchange, estimated

        def entry(said: Said) -> Entry:
            rows = estimated(said, self.size.width)
            return Entry(lambda: Exchange(said, panes=False), rows, said)

        async with self._changing:
            *earlier, newest = exchanges
            self._entries += map(entry, earlier)
            self._there = range(len(self._entries), len(self._entries))
            self.anchor()
            await self._pin(Exchange(newest, panes=False), newest)
            await self._fill()

    async def _pin(self, exchange: Exchange, said: Said) -> None:
        """Show it at the end."""
        from tui.widgets.exchange import Exchange

        self._pinned, self.newest = len(self._entries), exchange
        made = Entry(lambda: Exchange(said, panes=False), said=said, widget=exchange)
        self._entries.append(made)
        await self.mount(exchange)

    async def clear(self) -> None:
        """Show nothing of it any more."""
        async with self._changing:
            self._entries.clear()
            self._there, self._pinned, self.newest, self._place = range(0), 0, None, None
            await self.remove_children()
            self._above, self._below = Gap(), Gap()
            await self.mount(self._above, self._below)

    async def switch(self) -> None:
        """Panes become the record, the record panes."""
        self.panes = not self.panes
        if self.newest is not None:
            await self.newest.show_as(panes=self.panes)
            self._fit()
            self.anchor()

    def fold(self) -> None:
        """Open all reasoning and results, or fold all again."""
        self._open = not any(widget.open for widget in _folding(self))
        for widget in _folding(self):
            widget.open = self._open

    def say(self, text: str, *, error: bool = False) -> None:
        """A line of the program itself."""

        def line() -> Static:
            return Static(Content(text), classes="line -error" if error else "line")

        widget = line()
        self._entries.append(Entry(line, widget=widget))
        self.mount(widget)

    def on_resize(self) -> None:
        self._fit()
        self._fill_soon()

    def _fit(self) -> None:
        if self.newest is not None:
            self.call_after_refresh(self.newest.fit, self.size.height)

    # --- only what is near has widgets ---

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._place = None  # first: what is told of it may lay out
        super().watch_scroll_y(old_value, new_value)
        self._fill_soon()

    def _fill_soon(self) -> None:
        if len(self._there) < self._pinned and not self._filling:
            self._filling = True
            self.call_after_refresh(self._fill_now)

    async def _fill_now(self) -> None:
        async with self._changing:
            self._filling = False
            await self._fill()

    async def _fill(self, top: float | None = None) -> None:
        """Widgets for what is near, one by one; none for what is far. ``top``: the first row that is
        going to be seen."""
        while self.size.height and (there := self._wanted(top)) != self._there:
            with self.app.batch_update():
                await self._have(there)

    @property
    def _first_row(self) -> int:
        """Of the entries; above is what was there before them."""
        return self._placed[self._above].y if self._above in self._placed else 0

    def _wanted(self, top: float | None) -> range:
        heights = [self._height(entry) for entry in self._entries]
        if top is None and self._following:
            top = sum(heights) - self.size.height
        elif top is None:
            top = self.scroll_y - self._first_row
        return wanted(heights[: self._pinned], self._there, top, self.size.height)

    def _height(self, entry: Entry) -> int:
        if entry.widget in self._placed:
            entry.height = self._placed[entry.widget].height
        return entry.height

    async def _have(self, there: range) -> None:
        for number in self._there:
            entry = self._entries[number]
            if number not in there and entry.widget is not None:
                self._height(entry)
                for widget in entry.widget.walk_children(Widget):
                    widget._styles_cache.clear()  # Textual keeps it, with all that was painted
                await entry.widget.remove()
                entry.widget = None
        for number in reversed(there):
            entry = self._entries[number]
            if entry.widget is None:
                after = self._entries[number + 1].widget if number + 1 < there.stop else None
                entry.widget = entry.make()
                await self.mount(entry.widget, before=after or self._below)
                for folding in _folding(entry.widget) if self._open else ():
                    folding.open = True
        self._there = there
        self._above.styles.height = sum(entry.height for entry in self._entries[: there.start])
        hidden = self._entries[there.stop : self._pinned]
        self._below.styles.height = sum(entry.height for entry in hidden)

    # --- what is seen stays where it is, whatever becomes of what is above ---

    @property
    def _following(self) -> bool:
        return self._anchored and not self._anchor_released

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        result = super().arrange(size, optimal)
        self._placed = {placement.widget: placement.region for placement in result.placements}
        if self._following:
            self._place = None
        elif self._place is None:
            self._place = self._at_top()
        elif (region := self._placed.get(self._place[0])) is not None:
            self._stay(region.y + self._place[1])
        return result

    def _at_top(self) -> tuple[Widget, float] | None:
        shown = [
            *self._entries[self._there.start : self._there.stop],
            *self._entries[self._pinned :],
        ]
        for entry in shown:
            region = self._placed.get(entry.widget) if entry.widget else None
            if entry.widget is not None and region is not None and region.bottom > self.scroll_y:
                above = region.y > self.scroll_y  # a gap is seen there
                return None if above else (entry.widget, self.scroll_y - region.y)
        return None

    def _stay(self, y: float) -> None:
        """As Textual does for what is anchored: before it is painted, and nobody is told."""
        if y != self.scroll_y:
            self.set_reactive(Widget.scroll_y, y)
            self.set_reactive(Widget.scroll_target_y, y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)


def _folding(widget: Widget) -> list[Thought | Call]:
    from tui.widgets.call import Call
    from tui.widgets.thought import Thought

    return [*widget.query(Thought), *widget.query(Call)]
