"""The rooms beside the conversation, and what comes of a visit."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.models.download_process import Download
    from tui.app import AgentApp
    from tui.screens.models import Wish


class Rooms:
    """Opens them; each is imported when it is first entered."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self.downloads: dict[str, Download] = {}
        """Of this run of the app, by their models' names."""

    async def enter(self, name: str) -> None:
        """By a key: what cannot be is said where one is."""
        from agent.errors import UserError

        app = self._app
        if not app.begun or app.screen is not app.default_screen:
            return
        try:
            await getattr(self, name)()
        except UserError as error:
            app.notify(str(error), severity="warning", markup=False)

    async def sessions(self) -> None:
        """Raises UserError where nothing is kept."""
        from tui.screens.sessions import Sessions

        app = self._app
        session = app.session
        store, current = session.store, session.conversation.id
        kept = current in {one.id for one in store.summaries()}

        async def left(chosen: str | None) -> None:
            if chosen is not None and chosen != current:
                await app.talk.take(f"/resume {chosen}")
            elif kept and current not in {one.id for one in store.summaries()}:
                session.new()
                await app.show_conversation()

        await app.push_screen(Sessions(store, current, running=app.turn is not None), left)

    async def first(self) -> None:
        """What a new person is offered."""
        from pathlib import Path

        from agent.cli.models import listed
        from tools.config.importers import found
        from tui.screens.welcome import First, offers

        app = self._app
        runtime = app.session.runtime
        rows = await asyncio.to_thread(listed, runtime.where)
        servers = await asyncio.to_thread(lambda: list(found(Path.home())))

        async def left(wish: str | None) -> None:
            match (wish or "").split(" ", 1):
                case "run", name:
                    self._act(("default", name))
                    await app.talk.take(f"/model {name}")
                case "pull", name:
                    self.pull(name)
                    app.chat.say(
                        f"{name} is being downloaded: F6 shows how far it is, and stops it."
                    )
                case ["models"]:
                    await self.enter("models")
                case ["import"]:
                    await self.enter("imported")

        await app.push_screen(First(runtime.model.name, offers(rows, servers)), left)

    async def imported(self) -> None:
        """Other programs' MCP servers become the person's own."""
        from tui.controllers.server_import import take_over

        await take_over(self._app)

    async def servers(self) -> None:
        from tui.screens.servers import Servers

        app = self._app
        room = Servers(app.session.runtime, app.session.options)
        await app.push_screen(room, lambda _: app.show_status())

    # --- models ---

    async def models(self) -> None:
        from agent.cli.models import listed
        from tui.screens.models import Models

        app = self._app
        runtime = app.session.runtime
        look = partial(listed, runtime.where)
        rows = await asyncio.to_thread(look)

        async def left(wish: Wish | None) -> None:
            if wish is not None:
                await app.talk.take(f"/model {wish[1]}")

        room = Models(rows, look, self.downloads, runtime.model.name, self._act)
        await app.push_screen(room, left)

    def _act(self, wish: Wish) -> None:
        """What is asked of the models' room without leaving it."""
        match wish:
            case "pull", name:
                self.pull(name)
            case "cancel", name if name in self.downloads:
                self.downloads[name].cancel()
            case "default", name:
                from agent.config.settings import keep

                keep(self._app.session.runtime.where, "model", name)

    async def switch(self, name: str) -> None:
        """Another model answers from now on. Raises UserError."""
        app = self._app
        told = await app.starting.load(lambda progress: app.session.switch(name, progress))
        app.chat.say(f"{app.session.runtime.model.name} answers from now on.")
        if told:
            app.chat.say(told)

    def pull(self, name: str) -> None:
        """Download a model while the conversation goes on."""
        from agent.models.download_process import Download

        before = self.downloads.get(name)
        if before is None or before.state != "running":
            download = self.downloads[name] = Download(name, self._show_downloads)
            self._app.run_worker(self._pull(download))

    async def _pull(self, download: Download) -> None:
        app, name = self._app, download.name
        await download.run()
        self._show_downloads()
        match download.state:
            case "done":
                app.chat.say(f"{name} is here: /model {name} lets it answer.")
                app.notify(f"{name} is here.", markup=False)
            case "failed":
                app.chat.say(download.error, error=True)

    def _show_downloads(self) -> None:
        from tui.screens.models import progress

        running = [one for one in self.downloads.values() if one.state == "running"]
        words = [f"{one.name} {progress(one).split(' · ')[0]}" for one in running]
        self._app.status.pulling = " · ".join(words)
        self._app.show_status()
