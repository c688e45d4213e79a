"""A conversation played again in the app; afterwards it can go on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from agent.store.replay import Replay
from tui.state.turn_view import Said

if TYPE_CHECKING:
    from agent.store.recorder import Timed
    from agent.store.records import KeptTurn
    from agent.turn.loop import Turn
    from tui.app import AgentApp

OVER = "The replay is over; what you send goes on with the conversation."


class Played(Replay):
    """What the app takes for a turn."""

    def __init__(
        self, app: AgentApp, kept: KeptTurn, events: Sequence[Timed], speed: float
    ) -> None:
        super().__init__(kept, events, speed)
        self._app = app
        self.generated: list[list[int]] = []
        self.steering: list[str] = []

    def steer(self, text: str) -> None:
        """Nobody reads it now: it is sent when the replay is over."""
        self._app.queued.add(text)


async def play(app: AgentApp, speed: float) -> None:
    """All turns of the session's conversation; what is sent meanwhile waits."""
    began = app.clock()

    def clock() -> float:
        """As fast as what is shown, so that it takes as long as it took."""
        return began + (app.clock() - began) * speed

    store = app.session.store
    for kept in app.session.earlier():
        played = Played(app, kept, store.events(kept.response.id), speed)
        turn = cast("Turn", played)  # all that the app reads of one is there
        said = Said(kept.prompt, clock=clock)
        said.start = kept.start
        app.talk.turn, app.talk.said = turn, app.placed(said)
        await app.chat.begin(said)
        app.pulse.resume()
        played.start()
        await app.follow(turn, said, partial(app.chat.follow, said))
        app.pulse.pause()
    app.talk.turn = None
    app.chat.say(OVER)
    app.show_status()
    await app.talk.next()
