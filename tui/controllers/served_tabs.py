"""Turns that came another way, over HTTP: each conversation on a tab of its own, to be read only."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tui.widgets.tabs import Tabs

if TYPE_CHECKING:
    from agent.turn.loop import Turn
    from tui.app import AgentApp
    from tui.controllers.served_conversation import Watched
    from tui.state.turn_view import Said

MOST = 20
"""So many conversations stay, and those that run; the one that ended first goes first."""
KEPT = 100
"""So many exchanges stay, of all of them together."""
EVENTS = 50_000
"""So many events of ended turns are held for the raw view, about 40 MB."""
TICK = 0.04
"""Seconds between two paints of what streams on the tab that is looked at."""
UNSEEN = 0.5
"""Seconds between two looks at what comes on the others."""
HINTS = "read only · what you send goes to Chat · Ctrl-W closes"


class Watching:
    """``listen`` once; whatever begins from then on is shown on a tab."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self.tabs: list[Watched] = []
        self.looked: Watched | None = None
        """The tab that is looked at; None: the person's own conversation."""
        self.running = 0
        """Turns, right now."""

    def listen(self) -> None:
        self._app.session.runtime.hub.listen(self._began)

    def _began(self, turn: Turn) -> None:
        if turn.source != "app":
            # Called from the server's task, which knows nothing of this app.
            self._app.call_later(self._watch, turn)

    async def _watch(self, turn: Turn) -> None:
        from tui.controllers.served_conversation import Watched
        from tui.state.turn_view import Said

        said = Said(_asked(turn), source=turn.source, clock=self._app.clock)
        tab = next((tab for tab in reversed(self.tabs) if tab.is_of(turn)), None)
        if tab is None:
            self.tabs.append(tab := Watched(turn))
        tab.begin(turn, said, anew=tab.idle and len(tab.said) >= KEPT)
        self.running += 1
        self._app.run_worker(self._follow(tab, turn, said))
        if tab is self.looked:
            await tab.show()
        await self._trim()

    async def _follow(self, tab: Watched, turn: Turn, said: Said) -> None:
        async for batch in turn.log.follow():
            for event in batch:
                said.take(event)
            said.count(sum(map(len, turn.generated)))
            if tab is self.looked:
                with self._app.batch_update():
                    tab.follow()
                    self._app.follow_raw()
                await asyncio.sleep(TICK)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(tab.seen.wait(), UNSEEN)
        self.running -= 1
        await self._trim()

    async def _trim(self) -> None:
        """What ended longest ago makes room; then all is shown as it is."""
        while (len(self.tabs) > MOST or sum(len(t.said) for t in self.tabs) > KEPT) and (
            ended := self._ended()
        )[1:]:
            await self.close(ended[0])
        room = EVENTS
        for tab in reversed(self._ended()):
            room -= tab.events
            if room < 0:
                tab.turn = None
        self.show()

    def _ended(self) -> list[Watched]:
        """Those that nobody looks at, the one that ended first before the others."""
        ended = [t for t in self.tabs if t.state != "running" and t is not self.looked]
        return sorted(ended, key=lambda tab: tab.ended)

    # --- what is looked at ---

    async def look(self, tab: Watched | None) -> None:
        """At this one; None: at the person's own conversation."""
        app, before = self._app, self.looked
        if tab is before:
            return
        self.looked = tab  # before anything is waited for: turns begin and end meanwhile
        if before is not None:
            before.seen.clear()
            before.transcript.display = False
        app.chat.display = tab is None
        if tab is not None:
            app.prompt.hint_usually(HINTS)
        else:
            app.prompt.hint_usually()
        app.follow_raw()
        self.show()
        if tab is not None:
            tab.seen.set()
            tab.transcript.display = True
            if not tab.transcript.is_attached:
                await app.body.mount(tab.transcript, after=app.chat)
            app.call_after_refresh(tab.show)  # once it has its size
        await app.default_screen.query("Search").remove()  # it searched the one before

    async def step(self, by: int) -> None:
        """To the next one, or, by -1, to the one before; the person's own is one of them."""
        order = [None, *self.tabs]
        await self.look(order[(order.index(self.looked) + by) % len(order)])

    async def pick(self, number: int) -> None:
        """As they are numbered on the screen; 0 is the person's own."""
        if 0 <= number <= len(self.tabs):
            await self.look(self.tabs[number - 1] if number else None)

    async def close(self, tab: Watched | None = None) -> None:
        """By itself, the one that is looked at. A turn that runs there goes on; the next one of the
        conversation opens a new tab."""
        if (tab := tab or self.looked) not in self.tabs:
            return
        at = self.tabs.index(tab)
        self.tabs.remove(tab)
        if tab is self.looked:
            await self.look(next(iter(self.tabs[at : at + 1] or self.tabs[-1:]), None))
        if tab.transcript.is_attached:
            await tab.transcript.remove()
        self.show()

    def beat(self) -> None:
        """Time has passed: what runs shows for how long."""
        if self.looked is not None:
            self.looked.follow()

    def show(self) -> None:
        for line in self._app.query(Tabs):  # none any more while the app leaves
            looked = self.tabs.index(self.looked) + 1 if self.looked is not None else 0
            line.tell([(tab.state, tab.title) for tab in self.tabs], looked)
        self._app.pace()
        self._app.show_status()


def _asked(turn: Turn) -> str:
    """The newest message; where its client only ran what was called, what that gave."""
    from agent.conversation.conversation import Returned, User

    if said := [message.text for message in turn.prompt if isinstance(message, User)]:
        return said[-1]
    gave = [f"{one.tool} → {one.text}" for one in turn.prompt if isinstance(one, Returned)]
    return "\n".join(gave) or "(no new message)"
