"""While the person pauses at writing: what is written goes into the engine's memory, so that what is
sent costs only what came after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.app import AgentApp

PAUSE = 0.4
"""Seconds without a key."""
LONGEST = 20_000
"""Characters; of more only what stands before it is laid ahead."""


class Drafting:
    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self._timer: asyncio.TimerHandle | None = None

    def written(self) -> None:
        """The prompt has changed."""
        self._app.session.written()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PAUSE, self._lay)

    def _lay(self) -> None:
        app = self._app
        text = app.prompt.whole
        if app.talk.free and text.strip() and not text.startswith("/"):
            editing = app.talk.editing
            before = editing.start if editing is not None else None
            app.session.lay_ahead(text if len(text) <= LONGEST else "", before)
