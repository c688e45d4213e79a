"""Replays a stored conversation in the app, which can be continued afterwards."""

from collections.abc import Sequence
from functools import partial

from agent.store.conversations import Store
from agent.store.event_codec import TimedEvent
from agent.store.records import StoredTurn
from agent.store.replay import TurnReplay
from tui.app_context import AppContext
from tui.controllers.chat import ChatController
from tui.state.turn_view import TurnView

REPLAY_OVER = "The replay has ended; send a prompt to continue the conversation."


class AppReplay(TurnReplay):
    """A replayed turn of the app's conversation."""

    def __init__(
        self, app: AppContext, stored: StoredTurn, events: Sequence[TimedEvent], speed: float
    ) -> None:
        super().__init__(stored, app.session.conversation, events, speed)
        self._app = app

    def steer(self, text: str) -> None:
        self._app.queue.add(text)


async def play_conversation(app: AppContext, chat: ChatController, speed: float) -> None:
    """Replay all turns of the session's conversation; what is sent meanwhile is queued."""
    began = app.clock()

    def clock() -> float:
        """Time at the replay's speed, so that the elapsed times shown are those of the original."""
        return began + (app.clock() - began) * speed

    for stored in await app.session.storage.turns(app.session.conversation.id):
        name = stored.response.id
        events = await app.session.storage.read(partial(Store.events, response_id=name))
        turn = AppReplay(app, stored, events, speed)
        view = TurnView(stored.prompt, clock=clock, start=stored.start)
        await app.session.find_branches(view)
        app.own_turn.running, app.own_turn.view = turn, view
        await app.transcript.add_turn(view)
        app.live.update_timer()
        turn.start()
        await app.live.follow_turn(turn, view)
    app.own_turn.running = None
    app.live.update_timer()
    app.transcript.add_notice(REPLAY_OVER)
    app.live.update_status()
    await chat.send_queued()
