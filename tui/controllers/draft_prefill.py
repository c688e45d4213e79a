"""Prefills the prompt while the person pauses in typing, so that the turn reads only the rest."""

from __future__ import annotations

import asyncio

from tui.app_context import AppContext
from tui.controllers.chat import ChatController

IDLE_SECONDS = 0.4
MAX_DRAFT_CHARACTERS = 20_000
"""Length of a draft up to which it is prefilled too; of longer ones only what precedes them."""


class DraftPrefill:
    """Waits for a pause in typing and prefills the conversation with the draft."""

    def __init__(self, app: AppContext, chat: ChatController) -> None:
        self._app, self._chat = app, chat
        self._timer: asyncio.TimerHandle | None = None

    def restart_timer(self) -> None:
        self._app.session.on_keystroke()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._prefetch)

    def _prefetch(self) -> None:
        app, chat = self._app, self._chat
        text = app.prompt.full_text
        if chat.idle and text.strip() and not text.startswith("/"):
            before = chat.editing.start if chat.editing is not None else None
            app.session.next_prompt.prefetch(
                text if len(text) <= MAX_DRAFT_CHARACTERS else "", before
            )
