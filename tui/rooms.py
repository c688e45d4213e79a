"""The rooms beside the conversation, and what comes of a visit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.app import AgentApp


class Rooms:
    """Opens them; each is imported when it is first entered."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app

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
