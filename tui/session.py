"""The app's conversation and what its turns run on; nothing here is seen.

Everything heavy is imported in ``begin()``, in a thread, after the prompt is on the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tui.state.tool_selection import Toolset

if TYPE_CHECKING:
    from agent.cli.shared import Shared
    from agent.conversation.conversation import Conversation
    from agent.formats.protocol import Format
    from agent.runtime.runtime import Runtime
    from agent.store.conversations import Store
    from agent.store.recorder import Journal
    from agent.store.records import KeptTurn
    from agent.turn.loop import Turn
    from agent.turn.options import Options
    from tools.mcp.client_requests import OnElicitation
    from tools.types import Approver

log = logging.getLogger(__name__)
CLOSING = 5.0
"""Seconds that ending a turn, or the tools and the engine, may take when the app is left."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The HTTP face, when it runs in the same process."""

    address: str
    """As a person would type it; shown in the status line."""
    run: Callable[[Runtime], Coroutine[Any, Any, None]]
    """Serves until it is cancelled, in the app's loop; an OSError says why it cannot."""


class Session:
    """``begin()``, then ``load()``; then any number of turns, one after the other; ``close()``."""

    runtime: Runtime
    conversation: Conversation
    options: Options

    def __init__(
        self,
        shared: Shared,
        *,
        go_on: bool = False,
        resume: str | None = None,
        serving: Serving | None = None,
        replay: float | None = None,
    ) -> None:
        """``go_on``: the latest conversation; ``resume``: the one with this id, empty: to be picked;
        ``replay``: play it first, so many times as fast."""
        self.shared, self.serving = shared, serving
        self._go_on, self._resume = go_on, resume
        self.replay = replay
        self.first = False
        """The app was never started before."""
        self.picks = resume == ""
        """The person wants to choose a conversation first."""
        self.toolset = Toolset()
        self._store: Store | None = None
        self._journal: Journal | None = None
        """Of the turn that runs."""
        self._began = False
        self.unkept: str | None = None
        """Why nothing is written to the store any more."""

    async def begin(self) -> None:
        """Imports, configuration, the store; tools begin to connect. Raises UserError."""
        await asyncio.to_thread(self._prepare)
        self._open_store()
        self._greet()
        self._began = True
        await self.runtime.start()

    def _prepare(self) -> None:
        import importlib

        from agent import bootstrap

        # The widgets of the first exchange bring Markdown, which the empty screen does without.
        importlib.import_module("tui.widgets.exchange")
        self.runtime = bootstrap.runtime(self.shared)
        self.options = bootstrap.options(self.shared, self.runtime.model, compact=True)

    def _greet(self) -> None:
        """Once, where the embedded model answers because there is no other."""
        runtime, mark = self.runtime, self.runtime.where.state / "welcomed"
        chosen = self.shared.model or self._go_on or self._resume is not None
        if runtime.model.embedded and runtime.script is None and not chosen:
            self.first = not mark.exists()
            with contextlib.suppress(OSError):
                mark.touch()

    def _open_store(self) -> None:
        from agent.conversation.conversation import Conversation
        from agent.errors import UserError
        from agent.store.conversations import Store, StoreError
        from agent.turn.output import new_id

        resumed = self._go_on or bool(self._resume)
        try:
            self._store = Store(self.runtime.where.store)
            if resumed:
                self.conversation = self._store.load(self._resume)
            else:
                self.conversation = Conversation(new_id("conv"))
        except StoreError as error:
            if resumed:
                raise UserError(str(error)) from error
            log.warning("%s", error)
            self.conversation = Conversation(new_id("conv"))

    def earlier(self) -> list[KeptTurn]:
        """What was said in this conversation before."""
        return self._store.turns(self.conversation.id) if self._store else []

    @property
    def kept(self) -> bool:
        """The conversation is written to the store."""
        return self._store is not None

    @property
    def notice(self) -> str | None:
        """What a person should know of the model before they ask it anything."""
        from agent.cli.run import EMBEDDED_NOTICE

        embedded = self.runtime.model.embedded and self.runtime.script is None
        return EMBEDDED_NOTICE if embedded else None

    async def load(self, progress: Callable[[float], None]) -> None:
        """The model, and the tools settled. Raises EngineError."""
        await self.runtime.ready(progress)

    def turn(self, prompt: str, approver: Approver, answerer: OnElicitation | None = None) -> Turn:
        """A turn that is about to start; ``answerer`` is asked what tools' servers want to know."""
        from agent.conversation.conversation import User
        from agent.store.recorder import Journal
        from agent.turn.loop import Turn

        options = replace(self._options, approver=approver, answerer=answerer)
        turn = Turn(self.runtime, self.conversation, [User(prompt)], options, source="app")
        self._keep(lambda store: store.begin(self.conversation, prompt, turn.response))
        turn.start()
        self._journal = Journal(self._store, turn) if self._store is not None else None
        return turn

    @property
    def _options(self) -> Options:
        return replace(self.options, tools=self.toolset.of(self.runtime.host.tools()))

    def written(self) -> None:
        """A key was pressed: what would keep the screen waiting is put off."""
        if self._began:
            self.runtime.rest()

    def lay_ahead(self, draft: str, before: int | None = None) -> None:
        """The conversation (up to an entry that is edited) and what is being written go into the
        engine's memory, unless something runs there or another model spoke before."""
        from agent.conversation.conversation import User

        runtime, talk = self.runtime, self.conversation
        if not runtime.loaded or runtime.running:
            return
        if talk.vocabulary not in (None, runtime.vocabulary):
            return
        told = self._told(runtime.format, before)
        if draft:
            told.add(runtime.format, User(draft))
        runtime.prepare(told.ids())

    def _told(self, form: Format, before: int | None = None) -> Conversation:
        """What the model is told by now, up to an entry: the tools and instructions of now, too."""
        told = self.conversation.branch(
            self.conversation.id, self.position if before is None else before
        )
        options, tools = self._options, self.runtime.host.tools()
        told.set_head(form, options.head(tools if options.tools is None else options.tools))
        return told

    def compact(self) -> Turn:
        """A turn that only compacts the conversation."""
        from agent.turn.jobs import CompactTurn

        turn = CompactTurn(self.runtime, self.conversation, [], self._options, source="app")
        return turn.start()

    def new(self) -> None:
        """Go on with a conversation of which nothing is said yet."""
        from agent.conversation.conversation import Conversation
        from agent.turn.output import new_id

        self.conversation = Conversation(new_id("conv"))

    def open(self, conversation_id: str) -> None:
        """Go on with a kept one, by its id or the beginning of it. Raises UserError."""
        from agent.errors import UserError
        from agent.store.conversations import StoreError

        try:
            self.conversation = self.store.load(conversation_id)
        except StoreError as error:
            raise UserError(str(error)) from error

    def branch(self, start: int) -> None:
        """Go on with what was said before the entry at ``start``; the rest stays in the conversation
        that this was. The branch is kept as soon as something is said in it."""
        from agent.turn.output import new_id

        self.conversation = self.conversation.branch(new_id("conv"), start)

    @property
    def position(self) -> int:
        """The entry with which the next turn starts."""
        return len(self.conversation.entries)

    def alternatives(self, start: int) -> tuple[int, list[str]]:
        """The conversations that say something else from the entry at ``start`` on, by their age;
        and which of them this one is, from 1. None (0, []) where there is but one."""
        store, here = self._store, self.conversation.id
        others = store.alternatives(here, start) if store else []
        if store is None or len(others) < 2:
            return 0, []
        mine = next((one for one in store.lineage(here) if one in others), None)
        return (others.index(mine) + 1, others) if mine else (0, [])

    async def switch(self, name: str, progress: Callable[[float], None]) -> str | None:
        """Run another model from now on; a sentence where the conversation goes on as another.

        Raises UserError; the model is then the one before.
        """
        from agent import bootstrap
        from agent.engine.protocol import EngineError
        from agent.errors import UserError
        from agent.models import catalog

        runtime, before, options = self.runtime, self.runtime.model, self.options
        try:
            model = await asyncio.to_thread(
                catalog.choose, name, runtime.where, scripted=runtime.script is not None
            )
            await runtime.switch(model, context=self.shared.context)
            self.options = replace(options, sampling=bootstrap.options(self.shared, model).sampling)
            await runtime.load(progress)
        except EngineError as error:
            if runtime.model is not before:
                await runtime.switch(before, context=self.shared.context)
                self.options = options
            raise UserError(str(error)) from error
        return self._retell()

    def _retell(self) -> str | None:
        """Where the model has other tokens than the conversation: go on with the same in its own."""
        from agent.conversation.convert import retold

        theirs, ours = self.conversation.vocabulary, self.runtime.vocabulary
        if theirs in (None, ours):
            return None
        told = self.earlier()
        made = retold(self.runtime.format, told, ours)
        before, self.conversation = self.conversation, made
        self._keep(lambda store: store.retell(made, before.id, self.runtime.model.name))
        return (
            f"What was said until now was in the tokens of {theirs}. It goes on as another"
            " conversation, with the texts alone; the one before is kept as it was."
        )

    @property
    def store(self) -> Store:
        """Where conversations are kept. Raises UserError where that is not possible."""
        from agent.errors import UserError

        if self._store is None:
            raise UserError("Conversations are not kept: the store cannot be written.")
        return self._store

    async def finish(self, turn: Turn) -> None:
        """Once its events are read: keep what was said."""
        response = await turn.done()
        if (journal := self._journal) is not None:
            self._journal = None
            self._keep(lambda store: journal.finish(response))
        else:
            self._keep(lambda store: store.finish(self.conversation, response))

    def _keep(self, write: Callable[[Store], None]) -> None:
        """Write to the store; one that fails (a full disk) ends the keeping, not the conversation."""
        import sqlite3

        if self._store is None:
            return
        try:
            write(self._store)
        except sqlite3.Error as error:
            log.exception("the store cannot be written")
            self._store = None
            self.unkept = f"This conversation is not kept any more: {error}."

    def context_used(self) -> int | None:
        """Tokens that the next prompt starts with; None as long as nothing is loaded."""
        return len(self._told(self.form).prompt(self.form)) if self.form is not None else None

    @property
    def form(self) -> Format | None:
        """How the model writes; None as long as it is not loaded."""
        return getattr(self.runtime, "format", None)

    async def close(self) -> None:
        """End the tools and the engine; bounded, for the person has left already."""
        if not self._began:
            return
        try:
            await asyncio.wait_for(self.runtime.close(), CLOSING)
        except TimeoutError:
            log.warning("tools or engine did not end within %s s", CLOSING)
        if self._store is not None:
            self._store.close()
