"""The transcript: all turns of a conversation, in the order in which they began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import ScrollableContainer
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from tui.widgets.notice import NoticeEntries
from tui.widgets.virtual_scroll import Foldable, VirtualEntry, VirtualScroll

if TYPE_CHECKING:
    from tui.state.item_view import ItemView
    from tui.state.timeline import Timeline
    from tui.state.turn_view import TurnView
    from tui.widgets.exchange import ExchangeEntries


class Transcript(VirtualScroll):
    """Shows turns and notices."""

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

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shows_panes = True
        self._was_scrolled_away = False
        self._sections: list[ExchangeEntries | NoticeEntries] = []

    @property
    def turns(self) -> list[TurnView]:
        return [section.turn for section in self._sections if section.turn is not None]

    @property
    def own_turns(self) -> list[TurnView]:
        return [turn for turn in self.turns if turn.start is not None]

    @property
    def newest_exchange(self) -> ExchangeEntries | None:
        return next((s for s in reversed(self._sections) if not isinstance(s, NoticeEntries)), None)

    def _exchange_of(self, turn: TurnView) -> ExchangeEntries:
        section = next(section for section in reversed(self._sections) if section.turn is turn)
        assert not isinstance(section, NoticeEntries)
        return section

    @property
    def virtual_entries(self) -> tuple[list[VirtualEntry], int]:
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

        async with self.mount_lock:
            self.ensure_anchored()
            with self.app.batch_update():
                before = self.newest_exchange
                exchange = ExchangeEntries(turn, self.size.width, shows_panes=self.shows_panes)
                self._sections.append(exchange)
                await self._set_view(before, panes=False)

    async def add_stored_turns(self, turns: list[TurnView]) -> None:
        from tui.widgets.exchange import ExchangeEntries  # as in add_turn
        from tui.widgets.shell_output import sent_commands

        async with self.mount_lock:
            width = self.size.width
            for turn in turns:
                self._sections += [*sent_commands(turn.raw_prompt)]
                self._sections.append(ExchangeEntries(turn, width, shows_panes=False))
            self.anchor()
            await self.fill()

    def follow(self, turn: TurnView) -> None:
        """Show what came of a turn since the last call; several turns may run."""
        if turn in self.turns:
            self._exchange_of(turn).follow()
            self.schedule_fill()

    def add_notice(self, text: str, *, error: bool = False) -> None:
        classes = "line -error" if error else "line"
        self.add_section(NoticeEntries(lambda: Static(Content(text), classes=classes)))

    def add_section(self, section: NoticeEntries) -> None:
        self._sections.append(section)
        self.ensure_anchored()
        self.schedule_fill()

    def release_anchor(self) -> None:
        """Follow the end no longer; where all fits, a key or the wheel scrolls away from nothing."""
        if self.max_scroll_y:
            super().release_anchor()
            self._report_following()

    async def remove_from(self, turn: TurnView) -> None:
        async with self.mount_lock:
            first = self._sections.index(self._exchange_of(turn))
            entries = self._entries_from(first)
            del self._sections[first:]
            with self.app.batch_update():
                await self.unmount_entries(entries)
                self.anchor()
                await self.fill()

    async def toggle_times(self, turn: TurnView, timeline: Timeline) -> None:
        from tui.widgets.turn_times import TurnTimes  # as in add_turn

        exchange = self._exchange_of(turn)
        async with self.mount_lock:
            if (former := exchange.times) is None:
                exchange.times = VirtualEntry(lambda: TurnTimes(timeline), len(timeline.spans) + 3)
            else:
                exchange.times = None
                await self.unmount_entries([former])
            await self.fill()
        if exchange.times is not None and exchange.times.widget is not None:
            exchange.times.widget.scroll_visible(animate=False)

    async def show_colours(self, turn: TurnView) -> None:
        """Make a turn's texts again after their colours changed; nothing where it was removed."""
        if turn not in self.turns:
            return
        exchange = self._exchange_of(turn)
        if exchange.shows_panes:
            await self._show_newest_as(panes=False)
        async with self.mount_lock:
            if exchange not in self._sections:
                return
            with self.app.batch_update():
                await self.unmount_entries(exchange.items.values())
                await self.fill()
        exchange.follow()

    def _entries_from(self, first: int) -> list[VirtualEntry]:
        return [entry for section in self._sections[first:] for entry in section.entries]

    # --- navigation ---

    async def pick(self, turn: TurnView) -> None:
        from tui.widgets.user_message import UserMessage  # as in add_turn

        message = await self.mount_entry(self._exchange_of(turn).entry_of(None))
        if isinstance(message, UserMessage):
            message.pick()

    async def reveal(self, turn: TurnView, item: ItemView | None) -> list[Widget]:
        """Mount and expand an item, or with None the prompt; return the widgets with its text."""
        from tui.widgets.text_stream import TextStream  # as in add_turn

        if turn not in self.turns:
            return []  # it was removed since it was found
        exchange = self._exchange_of(turn)
        if item is not None and exchange.shows_panes:
            await self._show_newest_as(panes=False)
        if (widget := await self.mount_entry(exchange.entry_of(item))) is None:
            return []
        if not isinstance(widget, Foldable):
            return [widget]
        widget.set_expanded(True)
        return list(widget.query(TextStream)) or [widget]

    @property
    def is_scrolled_away(self) -> bool:
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
        self.shows_panes, newest = not self.shows_panes, self.newest_exchange
        if newest is not None and newest.turn.running:
            await self._show_newest_as(panes=self.shows_panes)
            self.anchor()

    async def _show_newest_as(self, *, panes: bool) -> None:
        async with self.mount_lock:
            with self.app.batch_update():
                await self._set_view(self.newest_exchange, panes=panes)

    async def _set_view(self, exchange: ExchangeEntries | None, *, panes: bool) -> None:
        """Change the view of a turn: its widgets, and those below, are made again."""
        if exchange is not None and exchange.shows_panes != panes:
            _, *entries = self._entries_from(self._sections.index(exchange))
            exchange.set_view(panes=panes)
            await self.unmount_entries(entries)
        await self.fill()
        if exchange is not None:
            exchange.rendered.clear()  # what is not mounted by now is far

    def toggle_folds(self) -> None:
        """Expand all reasoning and results, or collapse them if one that is mounted is expanded."""
        entries, _ = self.virtual_entries
        foldable = [entry.foldable for entry in entries if entry.foldable is not None]
        expanded = not any(widget.expanded for widget in foldable)
        for entry in entries:
            entry.expanded = expanded
        for widget in foldable:
            widget.set_expanded(expanded)

    def on_turn_panes_read(self) -> None:
        self.schedule_fill()

    async def _run_scheduled_fill(self) -> None:
        """Fill, after a turn that has ended has left its panes, unless text is selected there."""
        newest = self.newest_exchange
        if newest and newest.folds and self.is_attached and not self.screen.selections:
            await self._show_newest_as(panes=False)
        await super()._run_scheduled_fill()
        self._report_following()

    def _report_following(self) -> None:
        if self.is_scrolled_away != self._was_scrolled_away:
            self._was_scrolled_away = self.is_scrolled_away
            self.post_message(self.FollowingChanged())

    def on_filled(self) -> None:
        if (newest := self.newest_exchange) is not None:
            below = self._entries_from(self._sections.index(newest) + 1)
            newest.fit_panes(self.size.height - sum(map(self.entry_height, below)))

    async def clear(self) -> None:
        async with self.mount_lock:
            self._sections.clear()
            await self.remove_all()
