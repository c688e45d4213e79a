"""Turns that came another way, over HTTP: they are watched beside the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.turn import Turn
    from tui.app import AgentApp
    from tui.said import Said
    from tui.widgets.exchange import Exchange


class Watching:
    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self.running: set[Turn] = set()

    def began(self, turn: Turn) -> None:
        if turn.source != "app":
            # Called from the server's task, which knows nothing of this app.
            self._app.call_later(self._watch, turn)

    async def _watch(self, turn: Turn) -> None:
        from agent.conversation import User
        from tui.said import Said

        app = self._app
        asked = [message.text for message in turn.prompt if isinstance(message, User)]
        prompt = asked[-1] if asked else "(no new message)"
        said = Said(prompt, source=turn.source, clock=app.clock)
        self.running.add(turn)
        app.show_tabs()
        exchange = await app.served.begin(said)
        app.run_worker(self._to_end(turn, said, exchange))

    async def _to_end(self, turn: Turn, said: Said, exchange: Exchange) -> None:
        await self._app.follow(turn, said, exchange)
        self.running.discard(turn)
        self._app.show_tabs()
        self._app.show_status()
