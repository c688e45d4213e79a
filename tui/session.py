"""The app's session: conversation, runtime, store and the options of turns, without the screen. Heavy
imports are in ``begin()``, in a thread, after the first paint."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tui.state.tool_selection import ToolSelection

if TYPE_CHECKING:
    import sqlite3

    from agent.config.launch import LaunchOptions
    from agent.conversation.conversation import Conversation
    from agent.events import AgentContext, Terminal
    from agent.formats.protocol import Format
    from agent.runtime.runtime import Runtime
    from agent.store.conversations import Store
    from agent.store.recorder import TurnRecorder
    from agent.store.records import StoredTurn
    from agent.turn.continuation import Begin
    from agent.turn.loop import Turn
    from agent.turn.options import TurnOptions
    from agent.turn.turn_settings import TurnSettings
    from tools.mcp.client_requests import OnElicitation
    from tools.mcp.login import OnLogin
    from tools.types import Approver

T = TypeVar("T")
log = logging.getLogger(__name__)
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds that closing the tools and the engine may take at the end of the app."""


@dataclass(frozen=True, slots=True)
class Serving:
    """An HTTP server that runs in the app's process."""

    address: str
    """Its URL for the status line."""
    run: Callable[[Runtime], Coroutine[Any, Any, None]]
    """Serves in the app's event loop until it is cancelled. Raises OSError if it cannot listen."""


@dataclass(slots=True)
class OpenedSession:
    """The state of a session that has begun."""

    runtime: Runtime
    options: TurnOptions
    conversation: Conversation


class Session:
    """The app's view of runtime and store: call ``begin()``, ``load()``, turns, ``close()``."""

    def __init__(
        self,
        launch: LaunchOptions,
        *,
        continue_latest: bool = False,
        resume: str | None = None,
        serving: Serving | None = None,
        replay: float | None = None,
        first_prompt: str = "",
    ) -> None:
        """``resume``: a conversation's id, or empty: a list. ``serving``: an HTTP server in the same
        event loop. ``replay``: play the conversation first, at this speed. ``first_prompt``: send it.
        """
        self.launch, self.serving, self.first_prompt = launch, serving, first_prompt
        self._continue_latest, self._resume = continue_latest, resume
        self.replay_speed = replay
        self.first_start = False
        """Whether the embedded model answers for the first time: the welcome screen is due."""
        self.choose_conversation = resume == ""
        """Whether the list of conversations is to be opened first."""
        self.tool_selection = ToolSelection()
        self.turn_settings: dict[str, TurnSettings] = {}
        """Settings of turns that have ended here, by the ids of their responses."""
        self._switched_off: dict[str, set[str]] = {}
        """By server: the tools that `toggle_server_tools` has switched off."""
        self._turns_read: tuple[str, dict[str, StoredTurn]] = ("", {})
        """The id of a conversation, and its ended turns as `stored_turn` has read them."""
        self._titles: bool | None = None
        self._store: Store | None = None
        self._recorder: TurnRecorder | None = None
        self._opened: OpenedSession | None = None
        self.store_error: str | None = None
        """Why the store could not be written; cleared once it was shown."""

    async def begin(self) -> None:
        """Read the configuration, open the store, begin to connect the tools. Raises UserError."""
        runtime, options = await asyncio.to_thread(self._create_runtime)
        conversation = await asyncio.to_thread(self._open_store, runtime)
        self._opened = OpenedSession(runtime, options, conversation)
        self._mark_welcomed()
        await runtime.start()

    @property
    def opened(self) -> OpenedSession:
        """Runtime, options and conversation. Raises RuntimeError before `begin` is through."""
        if self._opened is None:
            raise RuntimeError("the session has not begun")
        return self._opened

    @property
    def runtime(self) -> Runtime:
        return self.opened.runtime

    @property
    def options(self) -> TurnOptions:
        """The settings of a turn, which commands change."""
        return self.opened.options

    @options.setter
    def options(self, options: TurnOptions) -> None:
        self.opened.options = options

    @property
    def conversation(self) -> Conversation:
        return self.opened.conversation

    @conversation.setter
    def conversation(self, conversation: Conversation) -> None:
        self.opened.conversation = conversation

    def _create_runtime(self) -> tuple[Runtime, TurnOptions]:
        import importlib

        from agent import bootstrap
        from agent.config.settings import load_settings

        # The widgets of a turn import Markdown, which the first paint does without.
        importlib.import_module("tui.widgets.exchange")
        runtime = bootstrap.create_runtime(self.launch)
        settings = load_settings(runtime.paths)
        self._titles = settings.titles
        runtime.token_events = True  # the token view and the live speed show them
        options = bootstrap.turn_options(self.launch, runtime.model, compact=True)
        return runtime, replace(
            options,
            project=bootstrap.project_instructions(self.launch),
            token_probabilities=settings.token_probabilities,
        )

    async def _read_project_instructions(self) -> None:
        """Read AGENTS.md for a conversation; later changes do not count in it. Raises UserError."""
        from agent import bootstrap

        project = await asyncio.to_thread(bootstrap.project_instructions, self.launch)
        self.options = replace(self.options, project=project)

    def _mark_welcomed(self) -> None:
        """Set ``first_start`` once, where the embedded model answers because there is no other."""
        runtime, marker = self.runtime, self.runtime.paths.state / "welcomed"
        has_choice = self.launch.model or self._continue_latest or self._resume is not None
        if runtime.model.embedded and runtime.script is None and not has_choice:
            self.first_start = not marker.exists()
            with contextlib.suppress(OSError):
                marker.touch()

    def _open_store(self, runtime: Runtime) -> Conversation:
        """Open the store and the conversation that was asked for, or a new one. Raises UserError."""
        from agent.conversation.conversation import Conversation
        from agent.errors import UserError
        from agent.store.conversations import Store, StoreError
        from agent.store.recorder import TurnRecorder
        from agent.util.ids import new_id

        resumed = self._continue_latest or bool(self._resume)
        try:
            self._store = Store(runtime.paths.store)
            self._recorder = TurnRecorder(self._store, self._on_store_error)
            if resumed:
                return self._store.load(self._resume)
        except StoreError as error:
            if resumed:
                raise UserError(str(error)) from error
            log.warning("%s", error)
        return Conversation(new_id("conv"))

    async def read_store(self, read: Callable[[Store], T]) -> T:
        """Run ``read`` in the store's thread. Raises UserError if there is no store."""
        store = self.store
        return await store.run(lambda: read(store))

    async def stored_turns(self) -> list[StoredTurn]:
        """The conversation's turns as they are stored; empty without a store."""
        name = self.conversation.id
        return await self.read_store(lambda store: store.turns(name)) if self._store else []

    async def stored_turn(self, response_id: str) -> StoredTurn | None:
        """One of them, by its response's id. Ended ones are read once: they do not change."""
        name, (conversation, ended) = self.conversation.id, self._turns_read
        if conversation == name and response_id in ended:
            return ended[response_id]
        turns = {turn.response.id: turn for turn in await self.stored_turns()}
        ended = {key: turn for key, turn in turns.items() if turn.response.status != "in_progress"}
        self._turns_read = name, ended
        return turns.get(response_id)

    def damage(self) -> list[str]:
        """Sentences about unreadable parts of the store that were not taken yet."""
        return self._store.damage.take() if self._store else []

    @property
    def is_stored(self) -> bool:
        return self._store is not None

    @property
    def examples(self) -> tuple[str, ...]:
        """Prompts to try; those for the demonstration tools where these run."""
        if self.launch.demo_tools:
            from tools.demo.settings import EXAMPLES

            return EXAMPLES
        return self.runtime.model.examples

    @property
    def model_notice(self) -> str | None:
        """Return a notice about the model for the person; None if there is none."""
        from agent.models.catalog import EMBEDDED_NOTICE

        embedded = self.runtime.model.embedded and self.runtime.script is None
        return EMBEDDED_NOTICE if embedded else None

    async def load(self, progress: Callable[[float], None]) -> None:
        """Load the model and wait for the tools; reports fractions of 1. Raises EngineError."""
        await self.runtime.ready(progress)

    def start_turn(
        self,
        prompt: str,
        approver: Approver,
        answerer: OnElicitation | None = None,
        login: OnLogin | None = None,
        begin: Begin | None = None,
    ) -> Turn:
        """Start a turn. ``answerer``: of MCP elicitations. ``begin``: what its answer begins with."""
        from agent.conversation.messages import User
        from agent.turn.interface import APP
        from agent.turn.loop import Turn

        options = replace(self._options, approver=approver, answerer=answerer, login=login)
        turn = Turn(
            self.runtime, self.conversation, [User(prompt)], options, interface=APP, begin=begin
        )
        turn.log.before_end(partial(self._remember_settings, turn))
        if self._recorder is not None:
            self._recorder.record(turn, prompt)
        return turn.start()

    def _remember_settings(self, turn: Turn, _: Terminal) -> None:
        self.turn_settings[turn.response.id] = turn.settings

    @property
    def _options(self) -> TurnOptions:
        return replace(self.options, tools=self.tool_selection.selected(self.runtime.host.tools()))

    def on_keystroke(self) -> None:
        """Postpone the runtime's idle work, which would delay the echo of the keys being typed."""
        if self._opened is not None:
            self.runtime.on_keystroke()

    def prefetch(self, draft: str, before: int | None = None) -> None:
        """Prefill up to entry ``before`` and a prompt's draft, if the model is idle and fits."""
        from agent.conversation.messages import User

        runtime = self.runtime
        if (loaded := runtime.loaded) is None or runtime.running_turns:
            return
        if self.conversation.vocabulary not in (None, loaded.vocabulary):
            return
        conversation = self.prompt_conversation(loaded.format, before)
        if draft:
            conversation.add(loaded.format, User(draft))
        # Unsent text is not written to disk.
        runtime.prefetch(
            conversation.ids(),
            head_tokens=len(conversation.header_ids),
            affinity_tokens=conversation.affinity_tokens,
            private=bool(draft),
        )

    def prompt_conversation(self, model_format: Format, before: int | None = None) -> Conversation:
        """A copy up to entry ``before``, with the current header: what the next prompt begins with."""
        conversation = self.conversation.branch(
            self.conversation.id, len(self.conversation.entries) if before is None else before
        )
        options, tools = self._options, self.runtime.host.tools()
        conversation.omit_answered_calls(model_format)
        conversation.set_header(
            model_format, options.prompt_header(tools if options.tools is None else options.tools)
        )
        return conversation

    async def untitled(self) -> str | None:
        """The title, where the model may write a better one: it is the first prompt's first line."""
        runtime = self.runtime
        is_script = runtime.script is not None
        is_off = is_script if self._titles is None else not self._titles
        if is_off or self._store is None or (runtime.model.embedded and not is_script):
            return None
        name = self.conversation.id
        return await self.read_store(lambda store: store.first_line_title(name))

    async def write_title(self) -> None:
        """Have the model write the title, unless a person gives one meanwhile; then prefill again."""
        from agent.conversation.title import write_title
        from agent.engine.protocol import EngineError

        runtime, conversation, before = self.runtime, self.conversation, await self.untitled()
        if (loaded := runtime.loaded) is None or before is None:
            return
        prompt = self.prompt_conversation(loaded.format).ids()
        try:
            title = await write_title(
                loaded.format,
                runtime.generate,
                prompt,
                self.options.sampling,
                affinity_tokens=conversation.affinity_tokens,
            )
        except EngineError as error:
            log.info("no title was written: %s", error)
            return
        runtime.prefetch(
            prompt,
            head_tokens=len(self.conversation.header_ids),
            affinity_tokens=self.conversation.affinity_tokens,
        )
        if title:
            name = conversation.id
            await self._write_store(lambda store: store.replace_title(name, before, title))

    def compact(self) -> Turn:
        from agent.turn.interface import APP
        from agent.turn.jobs import CompactionJob
        from agent.turn.loop import Turn

        job = CompactionJob()
        turn = Turn(self.runtime, self.conversation, [], self._options, interface=APP, job=job)
        if self._recorder is not None:
            self._recorder.save_after(turn)
        return turn.start()

    async def start_new(self) -> None:
        from agent.conversation.conversation import Conversation
        from agent.util.ids import new_id

        await self._read_project_instructions()
        self.runtime.host.builtins.end_conversation(self.conversation.id)
        self.conversation = Conversation(new_id("conv"))

    async def open(self, conversation_id: str) -> None:
        """Continue with a stored conversation, by its id or the beginning of it. Raises UserError."""
        from agent.errors import UserError
        from agent.store.conversations import StoreError

        try:
            conversation = await self.read_store(lambda store: store.load(conversation_id))
        except StoreError as error:
            raise UserError(str(error)) from error
        await self._read_project_instructions()
        before, after = self.conversation.id, conversation.id
        versions = await self.read_store(
            lambda store: [{name, *store.lineage(name)} for name in (before, after)]
        )
        self.runtime.host.builtins.end_conversation(
            before, None if versions[0].isdisjoint(versions[1]) else conversation.id
        )
        self.conversation = conversation

    def branch(self, start: int) -> None:
        """Continue with a copy up to entry ``start``, stored at its first turn; the original stays."""
        from agent.util.ids import new_id

        before = self.conversation
        self.conversation = branch = before.branch(new_id("conv"), start)
        self.runtime.host.builtins.end_conversation(before.id, branch.id)

    @property
    def next_entry(self) -> int:
        """Index of the entry with which the next turn starts."""
        return len(self.conversation.entries)

    async def branches_at(self, start: int) -> tuple[int, list[str]]:
        """The conversations that differ from entry ``start`` on, the oldest first, and this one's
        number, from 1; (0, []): there is only one. An unstored branch is the last of its origin's."""
        if self._store is None:
            return 0, []
        conversation = self.conversation
        return await self.read_store(lambda store: store.branches_at(conversation, start))

    # --- what the prompt has ---

    def refresh_header(self) -> None:
        """Give the conversation the header of its next turn: tools and instructions as they are now."""
        loaded = self.runtime.loaded
        if loaded is None or self.runtime.running_turns:
            return
        if self.conversation.vocabulary in (None, loaded.vocabulary):
            options = self._options
            tools = self.runtime.host.tools() if options.tools is None else options.tools
            self.conversation.set_header(loaded.format, options.prompt_header(tools))

    def measure_context(self) -> AgentContext:
        """Return the parts of the next prompt or generation. Raises UserError without a model."""
        from agent.turn.context_usage import header_parts, measure_context

        form = self.require_format()
        options, tools = self._options, self.runtime.host.tools()
        header = header_parts(form, options, tools if options.tools is None else options.tools)
        conversation = self.prompt_conversation(form)
        return measure_context(form, conversation, header, self.runtime.context_length)

    async def cached_tokens(self) -> int | None:
        """Tokens of the next prompt in memory; None: that is not known, as while a turn runs."""
        if self.runtime.loaded is None or self.runtime.running_turns or self.format is None:
            return None
        prompt = self.prompt_conversation(self.format).prompt(self.format)
        return await self.runtime.prefetcher.cached_tokens(prompt)

    async def change_prompt(
        self, choice: Callable[[Format, Conversation, int], None], at: int
    ) -> None:
        """Make or undo a choice of `agent.conversation.prompt_choices`; store it. Raises UserError."""
        from agent.conversation.prompt_choices import PromptChoiceError
        from agent.errors import UserError

        form = self.require_format()
        self._require_no_turn()
        try:
            choice(form, self.conversation, at)
        except PromptChoiceError as error:
            raise UserError(str(error)) from error
        chosen = replace(self.conversation, entries=[*self.conversation.entries])
        await self._write_store(lambda store: store.write_prompt_choices(chosen))

    def toggle_server_tools(self, server: str) -> None:
        """Switch all tools of a server off, or those on again that were. Raises UserError."""
        self._require_no_turn()
        host = self.runtime.host
        names = {tool.name for tool in host.all_tools() if tool.server == server}
        on = {name for name in names if not host.is_tool_disabled(server, name)}
        if on:
            self._switched_off[server] = on
        else:
            on = self._switched_off.pop(server, names)
        enabled = server not in self._switched_off
        for name in on:
            host.set_tool_enabled(server, name, enabled=enabled)

    def require_format(self) -> Format:
        """The model's chat format. Raises UserError until a model is loaded."""
        from agent.errors import UserError

        if self.format is None:
            raise UserError("The tokens can be counted once the model is loaded.")
        return self.format

    def _require_no_turn(self) -> None:
        from agent.errors import UserError

        if self.runtime.running_turns:
            raise UserError("A turn is running: change the prompt when it has ended.")

    async def switch_model(self, name: str, progress: Callable[[float], None]) -> str | None:
        """Load another model; a notice if the conversation was converted for it. Raises UserError,
        after switching back to the model before."""
        from agent import bootstrap
        from agent.engine.protocol import EngineError
        from agent.errors import UserError
        from agent.models import resolve

        runtime, before, options = self.runtime, self.runtime.model, self.options
        try:
            model = await asyncio.to_thread(
                resolve.resolve_model, name, runtime.paths, scripted=runtime.script is not None
            )
            await runtime.switch(model, context=self.launch.context)
            own = bootstrap.turn_options(self.launch, model)
            self.options = options.with_model_settings(own)
            await runtime.load(progress)
        except (EngineError, asyncio.CancelledError) as error:
            if runtime.model is not before:
                await runtime.switch(before, context=self.launch.context)
                self.options = options
            if isinstance(error, EngineError):
                raise UserError(str(error)) from error
            raise
        return await self._convert_conversation()

    async def _convert_conversation(self) -> str | None:
        """If the model has another vocabulary than the conversation, continue with a converted copy."""
        from agent.conversation.convert import convert_vocabulary

        theirs, loaded = self.conversation.vocabulary, self.runtime.loaded
        if loaded is None or theirs in (None, loaded.vocabulary):
            return None
        tools = self.runtime.host.all_tools()
        names = {(tool.server, tool.name): tool.model_name for tool in tools}
        before, turns = self.conversation.id, await self.stored_turns()
        past = [(turn.prompt, turn.response) for turn in turns]
        converted = convert_vocabulary(loaded.format, past, loaded.vocabulary, names)
        model = self.runtime.model.name
        await self._write_store(lambda store: store.save_converted(converted, before, turns, model))
        self.conversation = converted
        self.runtime.host.builtins.end_conversation(before, converted.id)
        return (
            f"The model reads other tokens than {theirs}, so this is a copy of the conversation,"
            " without its reasoning. The conversation before is kept as it was."
        )

    @property
    def store(self) -> Store:
        """The store of conversations. Raises UserError if it cannot be used."""
        from agent.errors import UserError

        if self._store is None:
            raise UserError("Conversations are not stored: the store cannot be written.")
        return self._store

    async def _write_store(self, write: Callable[[Store], None]) -> None:
        """Write to the store, in its thread; continue if that fails (a full disk)."""
        import sqlite3

        if self._store is None:
            return
        try:
            await self.read_store(write)
        except sqlite3.Error as error:
            self._on_store_error(error)

    def _on_store_error(self, error: sqlite3.Error) -> None:
        """Tell the person; the next turn writes what is missing of the conversation."""
        log.error("the store cannot be written", exc_info=error)
        self.store_error = (
            f"The conversation could not be stored: {error}. The next turn tries again."
        )

    def context_used(self) -> int | None:
        """Number of tokens that the next prompt starts with; None until a model is loaded."""
        if self.format is None:
            return None
        return len(self.prompt_conversation(self.format).prompt(self.format))

    @property
    def format(self) -> Format | None:
        """The model's chat format; None until a model is loaded."""
        return self.runtime.format

    async def close(self) -> None:
        """Close tools, engine and store, within a bounded time: the person has left already."""
        if self._opened is None:
            return
        try:
            await asyncio.wait_for(self.runtime.close(), CLOSE_TIMEOUT_SECONDS)
        except TimeoutError:
            log.warning("tools or engine did not end within %s s", CLOSE_TIMEOUT_SECONDS)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
