"""Starts the session after the first paint: stored conversation, model, tools, HTTP server."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.errors import UserError
from agent.util import gc_tuning
from tui.app_context import AppContext
from tui.controllers.chat import ChatController
from tui.controllers.idle_work import TitleWriter
from tui.controllers.served_tabs import ServedTabs
from tui.util.format import format_folder
from tui.widgets.welcome import PromptExamples, WelcomeBanner

T = TypeVar("T")
log = logging.getLogger(__name__)


class Startup:
    """``begin()`` starts everything once; ``with_progress()`` loads a model whenever one changes."""

    def __init__(
        self, app: AppContext, chat: ChatController, served_tabs: ServedTabs, titles: TitleWriter
    ) -> None:
        self._app, self._chat, self._served_tabs = app, chat, served_tabs
        self._titles = titles
        self._offered_logins: set[str] = set()

    async def begin(self) -> None:
        """Begin and show the session, and load the model in the background; exit code 2 on failure."""
        app = self._app
        gc_tuning.resume()
        if text := app.session.first_prompt.strip():
            app.prompt.prompt_history.add(text)
            if app.session.choose_conversation:  # the prompt belongs to the one that is chosen
                app.prompt.put_before(text)
            else:
                await self._chat.submit(text)  # it waits in the queue
        try:
            await app.session.begin()
        except UserError as error:
            app.exit_message = str(error)
            app.exit(2, return_code=2)
            return
        replays = app.session.replay_speed is not None
        await self.show_stored_turns()
        self._served_tabs.subscribe()
        self._titles.subscribe()
        self._show_model_notice()
        if app.session.serving is not None:
            app.run_worker(self._serve())
        if replays:  # which needs no model
            app.live.loading = ""
        else:
            app.run_worker(self._load_model())
        app.session_ready = True
        await self._add_completions()
        if app.session.choose_conversation:
            await app.action_open_screen("sessions")
        if app.session.first_start and not (app.prompt.text or app.queue.prompts):
            await app.action_open_screen("welcome")
        await self._chat.send_queued()

    async def show_conversation(self) -> None:
        """Replace the transcript by the session's conversation, after the session has opened one."""
        # Completely, also where Esc cancels the command that opened it.
        await asyncio.shield(self._show_conversation())

    async def _show_conversation(self) -> None:
        app = self._app
        await app.transcript.clear()
        app.own_turn.view = app.own_turn.latest = None
        self._chat.edit(None)
        app.live.update_token_view()
        await self.show_stored_turns()
        self.show_model()

    async def show_stored_turns(self) -> None:
        from tui.state.turn_view import TurnView

        app = self._app
        self._chat.shell.clear()
        if (speed := app.session.replay_speed) is not None:
            from tui.controllers.replay import play_conversation

            app.session.replay_speed = None
            app.run_worker(play_conversation(app, self._chat, speed))
        elif turns := await app.session.storage.turns(app.session.conversation.id):
            views = [TurnView.from_stored(turn, clock=app.clock) for turn in turns]
            for view in views:
                await app.session.find_branches(view)
            await app.transcript.add_stored_turns(views)
        for sentence in app.session.options.project.notices:
            app.transcript.add_notice(sentence, error=True)
        for sentence in app.session.storage.damage():
            app.transcript.add_notice(sentence, error=True)

    def _show_model_notice(self) -> None:
        from agent.models.catalog import EMBEDDED_NOTICE

        app, runtime = self._app, self._app.session.runtime
        model = runtime.model
        lines = [f"{model.name}: {model.description}" if model.description else model.name]
        if model.embedded and runtime.script is None:
            lines.append(EMBEDDED_NOTICE)
        if not app.session.storage.is_open:
            lines.append("The store cannot be written: this conversation is not stored.")
        app.query_one(WelcomeBanner).show_lines(*lines)
        if app.session.serving is not None:
            app.status.address = app.session.serving.address
        self.show_model()

    def show_model(self) -> None:
        """Show the model, and how full its context is before the first turn, in the status line."""
        app = self._app
        runtime = app.session.runtime
        if self._app.own_turn.view is None:
            app.status.tokens_per_second = 0.0
            continues = app.session.next_prompt.first_entry > 0
            app.status.context_used = app.session.next_prompt.token_count() if continues else None
        app.status.folder = app.status.folder or format_folder(app.session.launch.root)
        app.status.model = runtime.model.name
        app.status.context_length = runtime.context_length
        app.live.update_status()
        self.show_examples()

    def show_examples(self) -> None:
        app = self._app
        app.transcript.query(PromptExamples).remove()
        is_new = app.own_turn.view is None and app.session.next_prompt.first_entry == 0
        if is_new and (examples := app.session.examples):
            banner = app.transcript.query(WelcomeBanner)
            position = {"after": banner.first()} if banner else {"before": 0}
            app.transcript.mount(PromptExamples(examples), **position)

    async def _load_model(self) -> None:
        from agent.engine.protocol import EngineError
        from tui.controllers.prompt_commands import add_prompt_commands

        self._app.session.runtime.host.subscribe_logins(self._on_login_wanted)
        try:
            await self.with_progress(self._app.session.load)
        except EngineError as error:
            self._app.transcript.add_notice(str(error), error=True)
        # Present objects stay for good. Not at a switch of models: by then there are conversations.
        gc.freeze()
        self._report_failed_servers()
        add_prompt_commands(self._app, self._chat)

    async def with_progress(self, work: Callable[[Callable[[float], None]], Awaitable[T]]) -> T:
        """Await ``work``, which loads a model, and show the fraction that it reports as progress."""
        app = self._app

        def progress(fraction: float) -> None:
            app.live.loading = f"loading the model {fraction:.0%}"
            app.live.update_status()

        app.live.loading = "loading the model"
        app.live.update_status()
        try:
            return await work(progress)
        finally:
            # The context length depends on the free memory and is known only now.
            app.live.loading = ""
            if app.transcript.is_attached:  # not while the app closes
                self.show_model()
                host = app.session.runtime.host
                if host.withheld and host.server_states():
                    app.transcript.add_notice(host.withheld)

    async def _add_completions(self) -> None:
        from agent.config.paths import user_paths
        from tools.builtin.skills import SkillsServer
        from tui.controllers.prompt_commands import (
            add_custom_commands,
            read_command_files,
            skill_commands,
        )
        from tui.state.completion import PromptCompleter
        from tui.util.file_index import FileIndex

        app = self._app
        root = app.session.launch.root.expanduser()
        files, problems = await asyncio.to_thread(read_command_files, user_paths(), root)
        config = app.session.runtime.host.server_config("skills")
        if config is not None and isinstance(config.builtin, SkillsServer):
            files += skill_commands(config.builtin.skills.values())
        for sentence in [*problems, *add_custom_commands(app.commands, self._chat, files)]:
            app.transcript.add_notice(sentence, error=True)
        app.prompt.set_completer(PromptCompleter(app.commands, FileIndex(app.session.launch.root)))

    def _report_failed_servers(self) -> None:
        for server in self._app.session.runtime.host.server_states():
            if server.status == "failed" and not server.needs_login:
                reason = f": {server.error}" if server.error else "."
                text = f"The MCP server {server.name} is not available{reason}"
                self._app.transcript.add_notice(text, error=True)

    def _on_login_wanted(self, server: str) -> None:
        """Offer the login of each server once: a server is tried again from time to time."""
        if server not in self._offered_logins:
            self._offered_logins.add(server)
            self._app.run_worker(self._offer_login(server))

    async def _offer_login(self, server: str) -> None:
        host = self._app.session.runtime.host
        if not await host.offer_login(server, self._chat.cards.log_in):
            states = {state.name: state for state in host.server_states()}
            if (state := states.get(server)) is not None and state.needs_login:
                text = f"The MCP server {server} {state.error} (or F7, Ctrl-L)"
                self._app.transcript.add_notice(text, error=True)

    async def _serve(self) -> None:
        app = self._app
        serving = app.session.serving
        assert serving is not None
        try:
            await serving.run(app.session.runtime)
        except (OSError, SystemExit) as error:
            # uvicorn exits the process if it cannot listen; here the app continues without it.
            log.exception("the HTTP server ended")
            reason = str(error) if isinstance(error, OSError) else "the address is in use"
            app.transcript.add_notice(f"Not serving on {serving.address}: {reason}", error=True)
            app.status.address = "not serving"
            app.live.update_status()
