"""Uses the idle model: prefills the draft while the person pauses in typing, and writes titles."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.conversation.conversation import Conversation
    from agent.turn.context import RunningTurn
    from tui.app_context import AppContext
    from tui.controllers.chat import ChatController

log = logging.getLogger(__name__)
DRAFT_PAUSE_SECONDS = 0.4
MAX_DRAFT_CHARACTERS = 20_000
"""Length of a draft up to which it is prefilled too; of longer ones only what precedes them."""
IDLE_SECONDS = 2.0
"""Seconds without a turn or key before a title is written."""


class TitleWriter:
    """Waits for idle time after a turn; a turn or a key stops the writing, and it waits again."""

    def __init__(self, app: AppContext, chat: ChatController) -> None:
        self._app, self._chat = app, chat
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self._tried: set[str] = set()
        """Ids of conversations for which the model has written a title, or could not."""

    def subscribe(self) -> None:
        """Stop for every turn that starts, of other programs too, and wait from its end on."""

        def on_turn(turn: RunningTurn) -> None:
            self.cancel()
            self._app.run_worker(self._restart_after(turn))

        self._app.session.runtime.hub.subscribe(on_turn)

    async def _restart_after(self, turn: RunningTurn) -> None:
        await turn.done()
        self.restart_timer()

    def restart_timer(self) -> None:
        """Stop writing and wait for idle time: a turn has ended, or the prompt has changed."""
        self.cancel()
        if self._is_wanted():
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._begin)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()

    def _is_wanted(self) -> bool:
        turn = self._app.own_turn.latest
        if turn is None or not self._app.session_ready:
            return False
        conversation = self._app.session.conversation
        return turn.conversation is conversation and conversation.id not in self._tried

    def _begin(self) -> None:
        session = self._app.session
        is_idle = self._chat.idle and not session.runtime.running_turns
        if is_idle and self._is_wanted() and not self._app.prompt.text:
            self.task = asyncio.create_task(self._write(session.conversation))

    async def untitled(self) -> str | None:
        """The title, where the model may write a better one: it is the first prompt's first line."""
        session = self._app.session
        runtime, name = session.runtime, session.conversation.id
        is_script = runtime.script is not None
        is_off = is_script if session.titles is None else not session.titles
        if is_off or not session.storage.is_open or (runtime.model.embedded and not is_script):
            return None
        return await session.storage.read(lambda store: store.first_line_title(name))

    async def _write(self, conversation: Conversation) -> None:
        await self._write_title(conversation)
        self._tried.add(conversation.id)

    async def _write_title(self, conversation: Conversation) -> None:
        """Have the model write the title, unless a person gives one meanwhile; then prefill again."""
        from agent.conversation.title import write_title
        from agent.engine.protocol import EngineError

        session, before = self._app.session, await self.untitled()
        if (loaded := session.runtime.loaded) is None or before is None:
            return
        prompt = session.next_prompt.branch(loaded.format)
        try:
            title = await write_title(
                loaded.format,
                session.runtime.generate,
                prompt.ids(),
                session.options.sampling,
                affinity_tokens=prompt.affinity_tokens,
            )
        except EngineError as error:
            log.info("no title was written: %s", error)
            return
        session.runtime.prefetch(prompt)
        if title:
            name = conversation.id
            await session.storage.write(lambda store: store.replace_title(name, before, title))


class DraftPrefill:
    """Waits for a pause in typing and prefills the conversation with the draft."""

    def __init__(self, app: AppContext, chat: ChatController) -> None:
        self._app, self._chat = app, chat
        self._timer: asyncio.TimerHandle | None = None

    def restart_timer(self) -> None:
        self._app.session.on_keystroke()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(DRAFT_PAUSE_SECONDS, self._prefetch)

    def _prefetch(self) -> None:
        app, chat = self._app, self._chat
        text = app.prompt.full_text
        if chat.idle and text.strip() and not text.startswith("/"):
            before = chat.editing.start if chat.editing is not None else None
            draft = text if len(text) <= MAX_DRAFT_CHARACTERS else ""
            app.session.next_prompt.prefetch(draft, before)
