"""Turns that came another way, over HTTP: shown live beside the conversation, to be read only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.widgets.tabs import Tabs
from tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from agent.turn import Turn
    from tui.app import AgentApp
    from tui.said import Said

KEPT = 100
"""So many exchanges of other programs stay to be looked at; then a new page begins."""


class Watching:
    """``listen`` once; whatever begins from then on is shown on a tab of its own."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self.transcript = Transcript(id="served")
        self.transcript.display = False
        self.latest: Turn | None = None
        """The turn that began last."""
        self._running: dict[Turn, Said] = {}
        self._shown = 0

    @property
    def running(self) -> int:
        """How many there are right now."""
        return len(self._running)

    def listen(self) -> None:
        self._app.session.runtime.hub.listen(self._began)

    def _began(self, turn: Turn) -> None:
        if turn.source != "app":
            # Called from the server's task, which knows nothing of this app.
            self._app.call_later(self._watch, turn)

    async def _watch(self, turn: Turn) -> None:
        from agent.conversation import User
        from tui.said import Said

        asked = [message.text for message in turn.prompt if isinstance(message, User)]
        prompt = asked[-1] if asked else "(no new message)"
        said = Said(prompt, source=turn.source, clock=self._app.clock)
        self.latest = turn
        if not self._running and self._shown >= KEPT:
            await self.transcript.clear()
            self._shown = 0
        await self.transcript.begin(said)
        self._running[turn] = said
        self._shown += 1
        self.show()

        async def follow() -> None:
            await self._app.follow(turn, said, lambda: self.transcript.follow(said))
            del self._running[turn]
            self.show()

        self._app.run_worker(follow())

    def beat(self) -> None:
        """Time has passed: those that run show for how long."""
        for said in self._running.values():
            self.transcript.follow(said)

    def show(self) -> None:
        for tabs in self._app.query(Tabs):  # none any more while the app leaves
            shown = self.transcript.newest is not None
            tabs.tell(shown, self.transcript.display, self.running)
        self._app.pace()
        self._app.show_status()
