"""From the first paint to a conversation with a model: what is shown on the way."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, TypeVar

from agent.util import gc_tuning
from tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tui.app import AgentApp

T = TypeVar("T")
log = logging.getLogger(__name__)


class Starting:
    """``begin()`` once; ``load()`` whenever a model comes."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self.loading = "starting"
        """What is being waited for; empty: nothing."""

    async def begin(self) -> None:
        from agent.errors import UserError

        app = self._app
        gc_tuning.started()
        try:
            await app.session.begin()
        except UserError as error:
            app.trouble = str(error)
            app.exit(2, return_code=2)
            return
        playing = app.session.replay is not None
        await self.recall()
        app.watching.listen()
        self._introduce()
        if app.session.serving is not None:
            app.run_worker(self._serve())
        if playing:  # which needs no model
            self.loading = ""
        else:
            app.run_worker(self._load())
        app.begun = True
        app.prompt.completion = app.talk.completion()
        if app.session.picks:
            await app.rooms.enter("sessions")
        if app.session.first and not (app.prompt.text or app.queued.prompts):
            await app.rooms.enter("first")
        await app.talk.next()

    async def recall(self) -> None:
        from tui.state.turn_view import Said

        app = self._app
        if (speed := app.session.replay) is not None:
            from tui.controllers.replay import play

            app.session.replay = None
            app.run_worker(play(app, speed))
        elif earlier := app.session.earlier():
            exchanges = (Said.from_turn(turn, clock=app.clock) for turn in earlier)
            await app.chat.recall([app.placed(said) for said in exchanges])

    def _introduce(self) -> None:
        app = self._app
        runtime = app.session.runtime
        model = runtime.model
        lines = [f"{model.name}: {model.description}" if model.description else model.name]
        if app.session.notice:
            lines.append(app.session.notice)
        if not app.session.kept:
            lines.append("The store cannot be written: this conversation is not kept.")
        app.query_one(Welcome).tell(*lines)
        if app.session.serving is not None:
            app.status.address = app.session.serving.address
        self.show_model()

    def show_model(self) -> None:
        """On what it runs, and how full that is before the first turn."""
        app = self._app
        runtime = app.session.runtime
        if app.talk.said is None:
            app.status.speed = 0.0
            goes_on = app.session.position > 0
            app.status.context_used = app.session.context_used() if goes_on else None
        app.status.model = runtime.model.name
        app.status.context_length = runtime.context_length
        app.show_status()

    async def _load(self) -> None:
        """The model into memory, while the person already writes."""
        from agent.engine.protocol import EngineError

        app = self._app
        try:
            await self.load(app.session.load)
        except EngineError as error:
            app.chat.say(str(error), error=True)
        gc.freeze()  # what is there now stays; at another model conversations have come and gone
        self._tell_servers()
        self._learn_prompts()

    async def load(self, work: Callable[[Callable[[float], None]], Awaitable[T]]) -> T:
        """Show how far it is; what it gives."""
        app = self._app

        def progress(fraction: float) -> None:
            self.loading = f"loading the model {fraction:.0%}"
            app.show_status()

        self.loading = "loading the model"
        app.show_status()
        try:
            return await work(progress)
        finally:
            # How long the context is depends on the memory: now it is known.
            self.loading = ""
            self.show_model()

    def _learn_prompts(self) -> None:
        from tui.commands.prompts import learn

        learn(self._app)

    def _tell_servers(self) -> None:
        """A server that is not there is never silent."""
        app = self._app
        for server in app.session.runtime.host.servers():
            if server.status == "failed":
                why = f": {server.error}" if server.error else "."
                app.chat.say(f"The MCP server {server.name} is not available{why}", error=True)

    async def _serve(self) -> None:
        app = self._app
        assert app.session.serving is not None
        try:
            await app.session.serving.run(app.session.runtime)
        except (OSError, SystemExit) as error:
            # Servers end the process where they cannot listen; this one is not theirs to end.
            log.exception("the HTTP face ended")
            why = str(error) if isinstance(error, OSError) else "the address is in use"
            app.chat.say(f"Not serving on {app.session.serving.address}: {why}", error=True)
            app.status.address = "not serving"
            app.show_status()
