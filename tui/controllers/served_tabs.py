"""Tabs with the conversations that other programs have over HTTP; the person can only read them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tui.widgets.tabs import TabBar

if TYPE_CHECKING:
    from agent.turn.context import RunningTurn
    from tui.app_context import AppContext
    from tui.state.turn_view import TurnView
    from tui.widgets.served_conversation import ServedConversation

REPAINT_SECONDS = 0.04
HIDDEN_POLL_SECONDS = 0.5
"""Seconds between two looks at the events of a hidden tab's turn."""


class ServedTabs:
    """Opens, fills, evicts and closes the tabs; from ``subscribe()`` on, one per conversation."""

    max_tabs = 20
    """Tabs that stay, not counting running turns; the one that ended first is closed first."""
    max_turn_views = 100
    """Turns that all tabs together keep; the tab that ended first is closed first."""
    max_ended_events = 50_000
    """Events of ended turns that are kept in memory for the token view, about 40 MB."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self.tabs: list[ServedConversation] = []
        self.running_turns = 0
        """Turns of other programs that are running, on closed tabs too."""

    def subscribe(self) -> None:
        self._app.session.runtime.hub.subscribe(self._on_turn)

    def _on_turn(self, turn: RunningTurn) -> None:
        if turn.source != "app":
            # Called in the server's task, where Textual's context variables are not set.
            self._app.call_later(self._add_turn, turn)

    async def _add_turn(self, turn: RunningTurn) -> None:
        from tui.state.turn_view import TurnView
        from tui.widgets.served_conversation import ServedConversation

        view = TurnView(_prompt_text(turn), source=turn.source, clock=self._app.clock)
        tab = next((tab for tab in reversed(self.tabs) if tab.continues_with(turn)), None)
        if tab is None:
            self.tabs.append(tab := ServedConversation(turn))
        tab.add_turn(turn, view, restart=tab.idle and len(tab.turn_views) >= self.max_turn_views)
        self.running_turns += 1
        self._app.run_worker(self._follow(tab, turn, view))
        if tab is self._app.live.tab:
            await tab.show()
        await self._evict()

    async def _follow(self, tab: ServedConversation, turn: RunningTurn, view: TurnView) -> None:
        async for batch in turn.log.follow():
            for event in batch:
                view.apply(event)
            if tab is self._app.live.tab:
                with self._app.batch_update():
                    tab.update()
                    self._app.live.update_token_view()
                await asyncio.sleep(REPAINT_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(tab.in_view.wait(), HIDDEN_POLL_SECONDS)
        self.running_turns -= 1
        await self._evict()

    async def _evict(self) -> None:
        """Close tabs and drop turns beyond the limits, the ones that ended first before others."""
        while (
            len(self.tabs) > self.max_tabs
            or sum(len(tab.turn_views) for tab in self.tabs) > self.max_turn_views
        ) and len(ended := self._evictable()) > 1:
            await self.close(ended[0])
        remaining = self.max_ended_events
        for tab in reversed(self._evictable()):
            remaining -= len(tab.turn.log.events) if tab.turn is not None else 0
            if remaining < 0:
                tab.turn = None
        self.update_bar()

    def _evictable(self) -> list[ServedConversation]:
        ended = [t for t in self.tabs if t.state != "running" and t is not self._app.live.tab]
        return sorted(ended, key=lambda tab: tab.ended_at)

    async def show_tab(self, tab: ServedConversation | None) -> None:
        """Show this tab; None shows the person's own conversation."""
        app, before = self._app, self._app.live.tab
        if tab is before:
            return
        app.live.tab = tab  # before the first await: turns begin and end meanwhile
        if before is not None:
            before.in_view.clear()
            before.transcript.display = False
        app.transcript.display = tab is None
        key = app.key_bindings.label("close_tab")
        hint = f"read only · what you send goes to Chat · {key} closes"
        app.prompt.hints.set_tab("" if tab is None else hint)
        app.prompt.hints.set_scrolled_away(app.live.visible_transcript.is_scrolled_away)
        app.live.update_token_view()
        self.update_bar()
        if tab is not None:
            tab.in_view.set()
            tab.transcript.display = True
            if not tab.transcript.is_attached:
                await app.body.mount(tab.transcript, after=app.transcript)
            app.call_after_refresh(tab.show)  # once it has its size
        await app.default_screen.query("SearchBar").remove()  # it searched the one before

    async def show_next(self, by: int) -> None:
        """Show the next (1) or previous (-1) tab, counting the person's own conversation as one."""
        if not self.tabs:
            hint = "" if self._app.session.serving else " (agent --serve lets them)"
            self._app.notify(f"No API client has connected{hint}.")
            return
        order = [None, *self.tabs]
        await self.show_tab(order[(order.index(self._app.live.tab) + by) % len(order)])

    async def show_number(self, number: int) -> None:
        if 0 <= number <= len(self.tabs):
            await self.show_tab(self.tabs[number - 1] if number else None)

    async def close(self, tab: ServedConversation | None = None) -> None:
        """Close a tab, by default the visible one, and show the next one; a running turn continues."""
        if (tab := tab or self._app.live.tab) not in self.tabs:
            return
        index = self.tabs.index(tab)
        self.tabs.remove(tab)
        if tab is self._app.live.tab:
            await self.show_tab(next(iter(self.tabs[index : index + 1] or self.tabs[-1:]), None))
        if tab.transcript.is_attached:
            await tab.transcript.remove()
        self.update_bar()

    def update_bar(self) -> None:
        self._app.status.served_running = self.running_turns
        for bar in self._app.query(TabBar):  # none once the app is closing
            number = [None, *self.tabs].index(self._app.live.tab)
            bar.show_tabs([(tab.state, tab.title) for tab in self.tabs], number)
        self._app.live.update_timer()
        self._app.live.update_status()


def _prompt_text(turn: RunningTurn) -> str:
    """The turn's newest user message; without one, the tool results that its client sent."""
    from agent.conversation.messages import ToolResultMessage, User

    if texts := [message.text for message in turn.prompt if isinstance(message, User)]:
        return texts[-1]
    results = [
        f"{message.tool} → {message.text}"
        for message in turn.prompt
        if isinstance(message, ToolResultMessage)
    ]
    return "\n".join(results) or "(no new message)"
