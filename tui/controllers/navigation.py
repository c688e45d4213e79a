"""Opens the screens over the conversation, and carries out what the person chose there."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agent.config.keys import FIXED
from agent.errors import UserError, user_errors
from tui.util.format import display_text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from textual.events import Event, Key, Paste
    from textual.screen import Screen

    from agent.models.download_process import Download
    from agent.models.listing import ModelRow
    from tui.app_context import AppContext, ScreenName
    from tui.controllers.chat import ChatController
    from tui.controllers.startup import Startup
    from tui.screens.models import ModelAction

T = TypeVar("T")
MAX_LABEL_CHARS = 60


class Navigator:
    """Opens screens; each is imported when it is first opened, not before the first paint."""

    def __init__(self, app: AppContext, chat: ChatController, startup: Startup) -> None:
        self._app, self._chat, self._startup = app, chat, startup
        self.downloads: dict[str, Download] = {}
        self._opening: asyncio.Task[None] | None = None
        self._early_keys: list[Event] | None = []  # None: no screen opens

    async def open(self, name: ScreenName) -> None:
        """Open a screen by the name of its method here, where none is open yet."""
        app = self._app
        if not app.session_ready and name != "history":  # it waits, as a command that is sent does
            app.queue.add("/mcp" if name == "servers" else f"/{name}")
        elif app.screen is app.default_screen:
            await self._chat.work.run(self.welcome() if name == "welcome" else self.show(name))

    async def show(self, name: str) -> None:
        """Run the method of that name; the keys pressed meanwhile are for the screen that it opens."""
        self._early_keys = self._early_keys or []
        self._opening = asyncio.create_task(getattr(self, name)())
        try:
            await self._opening
        finally:
            self._app.call_later(self.release)

    def holds(self, event: Key | Paste) -> bool:
        """Whether a key is kept for the screen that opens; Esc cancels the opening."""
        key = getattr(event, "key", "")
        if self._early_keys is None or event.is_forwarded or key in FIXED:
            return False
        if key == "escape" and self._opening and self._app.screen is self._app.default_screen:
            self._opening.cancel()
        else:
            self._early_keys.append(event)
        return True

    async def release(self) -> None:
        keys, self._early_keys = self._early_keys or [], None
        for event in keys:
            await self._app.on_event(event)

    async def _push(
        self,
        screen: Screen[T],
        on_close: Callable[[T | None], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Open a screen, unless another one was opened while its contents were read."""

        async def closed(result: T | None) -> None:
            if on_close is not None:
                await self._chat.work.run(on_close(result))

        if self._app.screen is self._app.default_screen:
            await self._app.push_screen(screen, closed)

    async def sessions(self) -> None:
        """Open the list of conversations. Raises UserError if the store cannot be used."""
        from tui.screens.sessions import SessionsScreen

        session = self._app.session
        store, current = session.storage.store, session.conversation.id
        summaries = await store.run(store.summaries)
        was_stored = current in {summary.id for summary in summaries}

        async def on_close(selected: str | None) -> None:
            if selected is not None and selected != current:
                await self._chat.submit(f"/resume {selected}")
            elif was_stored and not await store.run(lambda: store.summary(current)):
                await session.start_new()
                await self._startup.show_conversation()

        screen = SessionsScreen(store, summaries, current, running=self._app.turn is not None)
        await self._push(screen, on_close)

    async def history(self) -> None:
        from tui.screens.history import HistoryScreen

        prompt = self._app.prompt

        async def on_close(chosen: str | None) -> None:
            if chosen is not None:
                prompt.prompt_history.add_unsent(prompt.draft)
                prompt.replace_with(chosen)

        await self._push(HistoryScreen(prompt.prompt_history), on_close)

    async def welcome(self) -> None:
        """Open the welcome screen of the first start, unless the person has begun by then."""
        from agent.models.catalog import models_folder
        from agent.models.listing import list_models
        from agent.models.machine import free_disk, inspect_machine
        from tools.config.importers import find_client_servers
        from tui.screens.welcome import WelcomeScreen, welcome_offers

        app = self._app
        session, runtime = app.session, app.session.runtime
        rows = await asyncio.to_thread(list_models, runtime.paths)
        servers = await asyncio.to_thread(lambda: list(find_client_servers(Path.home())))
        machine = await asyncio.to_thread(inspect_machine)
        disk = await asyncio.to_thread(free_disk, models_folder(runtime.paths))

        async def on_close(offer_id: str | None) -> None:
            match (offer_id or "").split(" ", 1):
                case "ask", prompt:
                    app.prompt.replace_with(prompt)
                case "run", name:
                    self._apply_model_action(("default", name))
                    await self._chat.submit(f"/model {name}")
                case "pull", name:
                    self.pull(name)
                case ["models"]:
                    await self.open("models")
                case ["import"]:
                    await self.open("import_servers")

        # A prompt that was just sent is no longer in the input, and not a turn yet.
        has_begun = app.prompt.has_sent or app.prompt.text or app.queue.prompts
        if has_begun or self._app.own_turn.view is not None:
            return
        name = runtime.model.name
        offers = welcome_offers(name, session.examples, rows, servers, machine, disk)
        await self._push(WelcomeScreen(name, offers), on_close)

    async def help(self) -> None:
        from tui.screens.pages import HelpScreen

        app = self._app
        files = app.session.options.project.files if app.session_ready else ()
        names = [file.name for file in files]
        await app.push_screen(HelpScreen(app.commands.all(), app.key_bindings, names))

    async def import_servers(self) -> None:
        """Offer to add the MCP servers of other programs, and connect them. Raises UserError."""
        from tools.config.importers import plan_import
        from tools.config.servers import ConfigError
        from tui.screens.dialogs import ConfirmDialog

        try:
            plan = plan_import(Path.home(), self._app.session.runtime.paths.mcp_json)
        except ConfigError as error:
            raise UserError(f"{error}.") from error
        if not plan.entries:
            self._app.notify("No other MCP servers were found.")
            return

        def on_close(confirmed: bool | None) -> None:
            if confirmed:
                self._add_servers(plan.entries)

        lines = "\n".join([*plan.lines, *plan.problems])
        question = f"Add these MCP servers to yours? Their calls ask before they run.\n\n{lines}"
        await self._app.push_screen(ConfirmDialog(display_text(question), "add them"), on_close)

    def _add_servers(self, entries: dict[str, Any]) -> None:
        from tools.config import edit
        from tools.config.file import folder_environment, own_servers, read_file
        from tools.config.servers import ConfigError

        app, path = self._app, self._app.session.runtime.paths.mcp_json
        environment = folder_environment(app.session.launch.root.expanduser().resolve())
        try:
            edit.add(path, entries)
            file = read_file(path, environment)
            servers = [server for server in own_servers(file) if server.name in entries]
            app.session.runtime.host.add_servers(servers)
        except ConfigError as error:
            app.notify(f"{error}.", severity="error", markup=False)
            return
        key, names = app.key_bindings.label("mcp"), ", ".join(entries)
        app.transcript.add_notice(f"Added to {path}: {names}. {key} shows their state.")

    async def servers(self) -> None:
        from tui.screens.servers import ServersScreen

        app = self._app

        async def on_close(_: None) -> None:
            app.live.update_status()

        await self._push(ServersScreen(app.session.runtime, app.session.options), on_close)

    async def changes(self) -> None:
        """Open the screen of changed files. Raises UserError where none are recorded."""
        from tui.screens.changes import ChangesScreen, read_changes

        session = self._app.session
        labels = {
            id: f"{number} ❯ {' '.join(display_text(prompt).split())[:MAX_LABEL_CHARS]}"
            for number, (id, prompt) in enumerate((await session.turn_prompts()).items(), 1)
        }
        with user_errors(OSError, failure="Cannot read what was changed"):
            files = await asyncio.to_thread(read_changes, session.journal, labels)
        on_outcome = partial(self._chat.report_outcome, verb="took back")
        await self._push(ChangesScreen(session.journal, labels, files, on_outcome))

    async def context(self) -> None:
        """Open the screen of what fills the context. Raises UserError without a model."""
        from tui.screens.context import ContextScreen, read_row_state

        app, prompt = self._app, self._app.session.next_prompt
        seen = read_row_state(prompt)  # before: what changes meanwhile is measured again
        measured = await asyncio.to_thread(prompt.measure)
        turns = app.transcript.own_turns
        prompts = {turn.start: turn.prompt for turn in turns if turn.start is not None}

        def on_change() -> None:
            self._app.own_turn.latest = None  # the token view shows what the model reads next
            app.live.update_token_view(restart=True)
            if (view := self._app.own_turn.view) is not None:
                view.context_used = prompt.token_count()

        async def on_close(_: None) -> None:
            prompt.prefetch("")
            app.live.update_status()

        await self._push(ContextScreen(prompt, measured, seen, prompts, on_change), on_close)

    async def approvals(self) -> None:
        from tui.screens.approvals import ApprovalsScreen

        await self._push(ApprovalsScreen(self._app.session.runtime.policy))

    async def safety(self) -> None:
        from agent.events import OutputItemDone
        from tools.policy.safety import safety_report
        from tui.screens.pages import SafetyScreen, calls_report

        session, turn = self._app.session, self._app.turn
        runtime = session.runtime
        mode = session.options.mode
        access = await asyncio.to_thread(safety_report, runtime.host, runtime.policy, mode)
        stored = await session.storage.turns(session.conversation.id)
        items = [item for each in stored for item in each.response.output]
        if turn is not None:
            items += [e.item for e in turn.log.events if isinstance(e, OutputItemDone)]
        mcp_key = self._app.key_bindings.label("mcp")
        await self._push(SafetyScreen({**access, **calls_report(items)}, mcp_key))

    def allow_host(self, host: str) -> str:
        """Let commands here reach a host, or ``loopback``; the text of a notice. Raises UserError."""
        from tools.networks import LOOPBACK, HostError, HostRule

        with user_errors(HostError, failure="/safety reach"):
            name = host if host == LOOPBACK else str(HostRule.parse(host))
        with user_errors(OSError, failure="The approval cannot be stored"):
            self._app.session.runtime.policy.allow_rule(f"reach {name}")
        return f"Commands in this folder may reach {name}; /approvals takes it back."

    # --- models ---

    async def models(self) -> None:
        from agent.models.details import describe_model, row_model
        from agent.models.listing import list_models
        from tui.screens.models import ModelsScreen

        runtime = self._app.session.runtime
        list_rows = partial(list_models, runtime.paths)
        rows = await asyncio.to_thread(list_rows)

        async def on_close(action: ModelAction | None) -> None:
            if action is not None:
                await self._chat.submit(f"/model {action[1]}")

        def describe(row: ModelRow) -> list[tuple[str, str]]:
            facts = describe_model(row_model(row, runtime.paths), runtime.paths)
            turn = self._app.own_turn.view
            if turn is not None and turn.speed and row.name == runtime.model.name:
                facts.append(("Speed", f"{turn.speed:.0f} tok/s in the last turn"))
            return facts

        apply = self._apply_model_action
        screen = ModelsScreen(rows, list_rows, self.downloads, runtime.model.name, apply, describe)
        await self._push(screen, on_close)

    def _apply_model_action(self, action: ModelAction) -> None:
        match action:
            case "pull", name:
                self.pull(name)
            case "cancel", name if name in self.downloads:
                self.downloads[name].cancel()
            case "default", name:
                from agent.config.settings import save_setting

                save_setting(self._app.session.runtime.paths, "model", name)

    async def switch_model(self, name: str) -> None:
        app = self._app
        notice = await self._startup.with_progress(
            lambda progress: app.session.switch_model(name, progress)
        )
        app.transcript.add_notice(f"{app.session.runtime.model.name} answers now.")
        if notice:
            app.transcript.add_notice(notice)

    def pull(self, name: str) -> None:
        """Offer to download a model, by its name or repository, and say what that takes."""
        before = self.downloads.get(name)
        if before is None or before.state != "running":
            self._app.run_worker(self._offer_download(name))

    async def _offer_download(self, name: str) -> None:
        from agent.engine.protocol import EngineError
        from agent.models.download import estimate_pull
        from agent.models.hub import find_model, register
        from tui.screens.dialogs import ConfirmDialog

        app, paths = self._app, self._app.session.runtime.paths
        app.status.download = f"{name}: asking for its size"
        app.live.update_status()
        try:
            model = await asyncio.to_thread(find_model, name, paths)
            estimate = await asyncio.to_thread(estimate_pull, model)
            estimate.require_disk_space()
        except (EngineError, UserError) as error:
            app.notify(str(error), severity="error", markup=False)
            app.transcript.add_notice(str(error), error=True)
            return
        finally:
            self._show_downloads()

        def on_close(agreed: bool | None) -> None:
            if not agreed:
                return
            try:
                register(model, paths)
            except UserError as error:
                app.transcript.add_notice(str(error), error=True)
            else:
                self._start_download(model.name)

        question = f"Download {estimate.title}?\n\n{estimate.figures}"
        await app.push_screen(ConfirmDialog(question, "download"), on_close)

    def _start_download(self, name: str) -> None:
        from agent.models.download_process import Download

        download = self.downloads[name] = Download(name, self._show_downloads)
        self._app.run_worker(self._pull(download))
        self._app.transcript.add_notice(
            f"Downloading {name}: {self._app.key_bindings.label('models')} shows the progress, and"
            " Ctrl-X there stops it."
        )

    async def _pull(self, download: Download) -> None:
        app, name = self._app, download.name
        await download.run()
        self._show_downloads()
        match download.state:
            case "done":
                app.transcript.add_notice(f"Downloaded {name}; /model {name} switches to it.")
                app.notify(f"Downloaded {name}.", markup=False)
            case "failed":
                app.transcript.add_notice(download.error, error=True)

    def _show_downloads(self) -> None:
        from tui.screens.models import format_progress

        running = [download for download in self.downloads.values() if download.state == "running"]
        self._app.status.download = " · ".join(
            f"{download.name} {format_progress(download).split(' · ')[0]}" for download in running
        )
        self._app.live.update_status()
