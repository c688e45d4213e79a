"""The app's session: conversation, runtime, store and the options of turns, without the screen. Heavy
imports are in ``begin()``, in a thread, after the first paint."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agent.errors import UserError, user_errors
from agent.util.ids import new_id
from tui.next_prompt import NextPrompt
from tui.session_storage import SessionStorage

if TYPE_CHECKING:
    from agent.config.launch import LaunchOptions
    from agent.conversation.conversation import Conversation
    from agent.runtime.runtime import Runtime
    from agent.turn.constraints import TurnSettings
    from agent.turn.continuation import Begin
    from agent.turn.loop import Turn
    from agent.turn.options import TurnOptions
    from tools.builtin.files.journal import ChangeJournal
    from tools.mcp.client_requests import OnElicitation
    from tools.mcp.login import OnLogin
    from tools.types import Approver
    from tui.state.turn_view import TurnView

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
        """``resume``: an id; empty: a list. ``replay``: play the conversation first, at this speed."""
        self.launch, self.serving, self.first_prompt = launch, serving, first_prompt
        self._continue_latest, self._resume = continue_latest, resume
        self.replay_speed = replay
        self.first_start = False
        """Whether the embedded model answers for the first time: the welcome screen is due."""
        self.choose_conversation = resume == ""
        """Whether the list of conversations is to be opened first."""
        self.storage = SessionStorage()
        self.turn_settings: dict[str, TurnSettings] = {}
        """Settings of turns that have ended here, by the ids of their responses."""
        self.titles: bool | None = None
        """Whether the model writes titles; None: unless it is a script."""
        self._next_prompt: NextPrompt | None = None
        self._adding = asyncio.Lock()
        """Held while AGENTS.md is read, changed and written."""

    async def begin(self) -> None:
        """Read the configuration, open the store, begin to connect the tools. Raises UserError."""
        runtime, options = await asyncio.to_thread(self._create_runtime)
        conversation = await asyncio.to_thread(self._open_conversation, runtime)
        self._next_prompt = NextPrompt(runtime, options, conversation, self.storage)
        self._mark_welcomed()
        await runtime.start()

    @property
    def next_prompt(self) -> NextPrompt:
        """The prompt of the next turn. Raises RuntimeError before `begin` is through."""
        if self._next_prompt is None:
            raise RuntimeError("the session has not begun")
        return self._next_prompt

    @property
    def has_begun(self) -> bool:
        return self._next_prompt is not None

    @property
    def runtime(self) -> Runtime:
        return self.next_prompt.runtime

    @property
    def options(self) -> TurnOptions:
        return self.next_prompt.options

    @options.setter
    def options(self, options: TurnOptions) -> None:
        self.next_prompt.options = options

    @property
    def conversation(self) -> Conversation:
        return self.next_prompt.conversation

    @conversation.setter
    def conversation(self, conversation: Conversation) -> None:
        self.next_prompt.conversation = conversation

    def _create_runtime(self) -> tuple[Runtime, TurnOptions]:
        import importlib

        from agent import bootstrap
        from agent.config.settings import load_settings

        # The widgets of a turn import Markdown, which the first paint does without.
        importlib.import_module("tui.widgets.exchange")
        runtime = bootstrap.create_runtime(self.launch)
        settings = load_settings(runtime.paths)
        self.titles = settings.titles
        runtime.token_events = True  # the token view and the live speed show them
        return runtime, replace(
            bootstrap.turn_options(self.launch, runtime.model, compact=True),
            project=bootstrap.project_instructions(self.launch),
            mode=bootstrap.person_mode(self.launch),
            token_probabilities=settings.token_probabilities,
        )

    async def _read_project_instructions(self) -> None:
        """Read AGENTS.md for a conversation; later changes do not count in it. Raises UserError."""
        from agent import bootstrap

        project = await asyncio.to_thread(bootstrap.project_instructions, self.launch)
        self.options = replace(self.options, project=project)

    async def add_instruction(self, instruction: str) -> str:
        """Add a line to the project's AGENTS.md, and read it again for this conversation; a notice of
        that. Raises UserError."""
        from agent.conversation.project_instructions import add_instruction

        async with self._adding:
            path, line = await asyncio.to_thread(add_instruction, self.launch.root, instruction)
            await self._read_project_instructions()
        project = self.options.project
        effect = "The model reads it from the next turn on."
        if not project.files:
            effect = "The model does not read it: project instructions are turned off."
        return " ".join([f'Added "{line}" to {path}.', *(project.notices or [effect])])

    def _mark_welcomed(self) -> None:
        """Set ``first_start`` once, where the embedded model answers because there is no other."""
        runtime, marker = self.runtime, self.runtime.paths.state / "welcomed"
        has_choice = self.launch.model or self._continue_latest or self._resume is not None
        if runtime.model.embedded and runtime.script is None and not has_choice:
            self.first_start = not marker.exists()
            with contextlib.suppress(OSError):
                marker.touch()

    def _open_conversation(self, runtime: Runtime) -> Conversation:
        """Open the store and the conversation that was asked for, or a new one. Raises UserError."""
        from agent.conversation.conversation import Conversation
        from agent.store.conversations import StoreError

        resumed = self._continue_latest or bool(self._resume)
        try:
            self.storage.open(runtime.paths.store, self.launch.root)
            if resumed:
                return self.storage.store.load(self._resume)
        except StoreError as error:
            if resumed:
                raise UserError(str(error)) from error
            log.warning("%s", error)
        return Conversation(new_id("conv"))

    @property
    def examples(self) -> tuple[str, ...]:
        if self.launch.demo_tools:
            from tools.demo.settings import EXAMPLES

            return EXAMPLES
        return self.runtime.model.examples

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
        from agent.turn.loop import Turn
        from agent.turn.options import APP

        options = self.next_prompt.turn_options()
        options = replace(options, approver=approver, answerer=answerer, login=login)
        messages = options.prompt_messages(prompt)
        turn = Turn(self.runtime, self.conversation, messages, options, interface=APP, begin=begin)
        turn.log.before_end(lambda _: self.turn_settings.update({turn.response.id: turn.settings}))
        if self.storage.recorder is not None:
            self.storage.recorder.record(turn, prompt)
        return turn.start()

    def on_keystroke(self) -> None:
        """Postpone the runtime's idle work, which would delay the echo of the keys being typed."""
        if self.has_begun:
            self.runtime.on_keystroke()

    @cached_property
    def journal(self) -> ChangeJournal:
        """The changes that built-in tools have made below the root. Raises UserError."""
        from agent import bootstrap

        return bootstrap.open_journal(self.launch.root, self.runtime.paths)

    async def turn_prompts(self) -> dict[str, str]:
        """The prompts of the conversation's turns, by the ids of their responses, as the journal names
        turns; empty ones without a store."""
        if not self.storage.is_open:
            return dict.fromkeys(self.turn_settings, "")
        turns = await self.storage.turns(self.conversation.id)
        return {turn.response.id: turn.prompt for turn in turns}

    async def find_branches(self, turn: TurnView) -> None:
        if turn.start is not None:
            position, branches = await self.storage.branches_at(self.conversation, turn.start)
            turn.branch_position = (position, len(branches)) if branches else None

    def compact(self) -> Turn:
        from agent.turn.jobs import compact_conversation
        from agent.turn.loop import Turn
        from agent.turn.options import APP

        options, job = self.next_prompt.turn_options(), compact_conversation
        turn = Turn(self.runtime, self.conversation, [], options, interface=APP, job=job)
        if self.storage.recorder is not None:
            self.storage.recorder.save_after(turn)
        return turn.start()

    async def start_new(self) -> None:
        from agent.conversation.conversation import Conversation

        await self._read_project_instructions()
        self.runtime.host.builtins.end_conversation(self.conversation.id)
        self.conversation = Conversation(new_id("conv"))

    async def open(self, conversation_id: str) -> None:
        """Continue with a stored conversation, by its id or the beginning of it. Raises UserError."""
        from agent.store.conversations import StoreError

        with user_errors(StoreError):
            conversation = await self.storage.read(lambda store: store.load(conversation_id))
        await self._read_project_instructions()
        before, after = self.conversation.id, conversation.id
        versions = await self.storage.read(
            lambda store: [{name, *store.tree.lineage(name)} for name in (before, after)]
        )
        self.runtime.host.builtins.end_conversation(
            before, None if versions[0].isdisjoint(versions[1]) else conversation.id
        )
        self.conversation = conversation

    def branch(self, start: int) -> None:
        """Continue with a copy up to entry ``start``, stored at its first turn; the original stays."""
        before = self.conversation
        self.conversation = branch = before.branch(new_id("conv"), start)
        self.runtime.host.builtins.end_conversation(before.id, branch.id)

    async def switch_model(self, name: str, progress: Callable[[float], None]) -> str | None:
        """Load another model; a notice if the conversation was converted for it. Raises UserError,
        after switching back to the model before."""
        from agent import bootstrap
        from agent.engine.protocol import EngineError
        from agent.models import resolve

        runtime, before, options = self.runtime, self.runtime.model, self.options
        try:
            model = await asyncio.to_thread(
                resolve.resolve_model, name, runtime.paths, scripted=runtime.script is not None
            )
            await runtime.switch(model, context=self.launch.context)
            self.options = options.with_model_settings(bootstrap.turn_options(self.launch, model))
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
        before = self.conversation.id
        turns = await self.storage.turns(before)
        past = [(turn.prompt, turn.response) for turn in turns]
        converted = convert_vocabulary(loaded.format, past, loaded.vocabulary, names)
        name = self.runtime.model.name
        await self.storage.write(lambda store: store.save_converted(converted, before, turns, name))
        self.conversation = converted
        self.runtime.host.builtins.end_conversation(before, converted.id)
        return (
            f"The model reads other tokens than {theirs}, so this is a copy of the conversation,"
            " without its reasoning. The conversation before is kept as it was."
        )

    async def close(self) -> None:
        """Close tools, engine and store, within a bounded time: the person has left already."""
        if not self.has_begun:
            return
        try:
            await asyncio.wait_for(self.runtime.close(), CLOSE_TIMEOUT_SECONDS)
        except TimeoutError:
            log.warning("tools or engine did not end within %s s", CLOSE_TIMEOUT_SECONDS)
        await self.storage.close()
