"""One session of an editor: a conversation of the store, with the tools of the editor's folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import acp.schema as S
from acp import helpers
from acp.exceptions import RequestError
from acp.helpers import ContentBlock

from agent import events as ev
from agent.acp.prompt import prompt_text
from agent.acp.updates import Content, TurnUpdates, diffs, text_content
from agent.conversation.attachments import split_attachments
from agent.conversation.conversation import Conversation
from agent.errors import UserError
from agent.runtime.runtime import Runtime
from agent.store.event_codec import merge_deltas
from agent.store.recorder import TurnRecorder
from agent.store.records import StoredTurn
from agent.turn.context_usage import part_name
from agent.turn.jobs import TurnJob, compact_conversation
from agent.turn.loop import Turn
from agent.turn.options import ACP, TurnOptions
from agent.turn.response_builder import response_events
from tools.builtin.files.changes import FileChange
from tools.builtin.files.server import FilesServer
from tools.builtin_server import ToolError
from tools.factory import Toolbox
from tools.policy.approvals import ASK_REASON
from tools.types import MODES, Answer, Tool

if TYPE_CHECKING:
    from acp.interfaces import Client

EFFORTS = ("low", "medium", "high")
COMMANDS = (
    ("compact", "Summarise the oldest turns", None),
    ("context", "Show what fills the context", None),
    ("effort", "Set how long the model thinks", "low, medium or high"),
    ("mode", "Choose which calls run without asking", "ask, plan or accept-edits"),
    ("accept", "Have the plan of mode plan carried out", None),
)
EDITOR_SECONDS = 10.0
"""Time that the editor has to read or write a file before the one on disk counts."""


class EditorSession:
    """Answers the prompts of one session, one at a time."""

    def __init__(
        self,
        client: Client,
        files: S.FileSystemCapabilities,
        runtime: Runtime,
        recorder: TurnRecorder | None,
        toolbox: Toolbox,
        options: TurnOptions,
        conversation: Conversation,
        root: Path,
        folder: str,
    ) -> None:
        """``files``: what the editor offers to read and write. ``folder``: a new conversation's."""
        self.id, self.root, self.toolbox = conversation.id, root, toolbox
        self._client, self._files, self._runtime, self._recorder = client, files, runtime, recorder
        self.options = replace(options, approver=self._approve)
        self._conversation, self._folder = conversation, folder
        self._context: ev.AgentContext | None = None
        self._prompting, self._cancelled = asyncio.Lock(), False
        self._turn: Turn | None = None
        self._updates = self._new_updates()
        self._questions = asyncio.Queue[ev.AgentApprovalRequested]()
        """Those of the turn's calls that the editor knows; each has an `_approve` that waits."""
        self.notices: Sequence[str] = ()
        """Sentences about the folder and its servers, for the person."""
        self.models: Sequence[str] = ()
        self._loop = asyncio.get_running_loop()
        config = toolbox.host.server_config("files")
        self._files_server = None if config is None else config.builtin
        if isinstance(server := self._files_server, FilesServer):
            server.on_change = self._on_change
            if files.read_text_file:
                server.root.unsaved = self._unsaved

    def _new_updates(self, *, replayed: bool = False) -> TurnUpdates:
        return TurnUpdates(self.root, self._runtime.model.name, replayed=replayed)

    async def send(self, update: Any) -> None:
        """Send an update; nothing once the editor is gone."""
        with contextlib.suppress(OSError):
            await self._client.session_update(self.id, update)

    async def show_notice(self, notice: str) -> None:
        await self.send(helpers.update_agent_thought_text(f"{notice}\n\n"))

    async def replay(self, turns: Sequence[tuple[StoredTurn, Sequence[ev.Event]]]) -> None:
        """Send what was said in the conversation so far."""
        for turn, events in turns:
            words, attachments = split_attachments(turn.prompt)
            await self.send(helpers.update_user_message_text(words))
            for each in attachments:
                path = (self.root / each.source).as_uri()
                block = helpers.resource_link_block(each.source, path)
                await self.send(helpers.update_user_message(block))
            if not events or not isinstance(events[-1], ev.Terminal):  # not stored to their end
                events = response_events(turn.response)
            updates = self._new_updates(replayed=True)
            for event in events:
                await self._show(event, updates)

    async def announce(self) -> None:
        """Tell the editor the commands, and the person the notices."""
        commands = []
        for name, description, hint in COMMANDS:
            field = S.AvailableCommandInput(S.UnstructuredCommandInput(hint=hint)) if hint else None
            commands.append(S.AvailableCommand(name=name, description=description, input=field))
        await self.send(helpers.update_available_commands(commands))
        for notice in self.notices:
            await self.show_notice(notice)

    # --- prompts ---

    async def prompt(self, blocks: Sequence[ContentBlock]) -> S.StopReason:
        """Answer a prompt. Raises UserError, and RequestError for a turn that failed."""
        if self._prompting.locked() and not self._cancelled:
            message = "A prompt of this session is being answered: cancel it first."
            raise RequestError(-32600, message)
        async with self._prompting:
            self._cancelled = False
            text = await prompt_text(blocks, self._read_file)
            command, _, argument = text.removeprefix("/").partition(" ")
            if text.startswith("/") and command in (name for name, *_ in COMMANDS):
                return await self._run_command(command, argument.strip())
            return await self._run(text)

    def cancel(self) -> None:
        if self._prompting.locked():
            self._cancelled = True
            if self._turn is not None:
                self._turn.stop()

    async def close(self) -> None:
        """Wait until the prompt that was cancelled has ended, and end the tools."""
        async with self._prompting:
            await self.toolbox.host.close()

    async def _run(self, text: str, job: TurnJob | None = None) -> S.StopReason:
        before = self._conversation.id
        turn = Turn(
            self._runtime, self._conversation,
            [] if job else self.options.prompt_messages(text), self.options,
            interface=ACP, host=self.toolbox.host, policy=self.toolbox.policy, job=job,
        )  # fmt: skip
        if self._recorder is not None and job is None:
            self._recorder.record(turn, text, folder=self._folder)
        elif self._recorder is not None:
            self._recorder.save_after(turn)
        self._turn, self._updates, self._questions = turn, self._new_updates(), asyncio.Queue()
        turn.start()
        if self._cancelled:
            turn.stop()
        try:
            await self._follow(turn)
            response = await turn.done()
        finally:
            turn.stop()
            self._turn = None
        if self._conversation.id != before:
            notice = "Another program has continued this conversation: this turn is in a branch."
            await self.send(helpers.update_agent_thought_text(notice))
        if response.status == "cancelled":
            return "cancelled"
        if response.error is not None:
            code = -32602 if response.error.code == "invalid_prompt" else -32603
            raise RequestError(code, response.error.message)
        return "max_tokens" if response.status == "incomplete" else "end_turn"

    async def _follow(self, turn: Turn) -> None:
        async for batch in turn.log.follow():
            for event in merge_deltas(batch):
                await self._show(event, self._updates)
                if isinstance(event, ev.AgentApprovalRequested):
                    self._questions.put_nowait(event)

    async def _show(self, event: ev.Event, updates: TurnUpdates) -> None:
        if isinstance(event, ev.AgentContext):
            self._context = event
        for update in updates.of(event):
            await self.send(update)

    async def _run_command(self, command: str, argument: str) -> S.StopReason:
        match command:
            case "compact":
                return await self._run("", compact_conversation)
            case "effort":
                self.set_effort(argument)
                text = f"Effort: {argument}"
                await self._send_config_options()
            case "mode":
                self.set_mode(argument)
                text = f"Mode {argument}: {MODES[self.options.mode]}."
                await self.send_mode()
            case "accept":
                if self.options.mode != "plan":
                    raise UserError("There is no plan to accept: /mode plan asks for one.")
                self.set_mode("ask")
                await self.send_mode()
                return await self._run("Carry out the plan.")
            case _:
                text = _describe_context(self._context)
        await self.send(helpers.update_agent_message_text(text))
        return "end_turn"

    # --- settings ---

    def set_effort(self, effort: str) -> None:
        """Set the effort of later turns. Raises UserError."""
        if effort not in EFFORTS:
            raise UserError(f"The effort must be {', '.join(EFFORTS)}, not {effort!r}.")
        chosen = cast(Literal["low", "medium", "high"], effort)
        self.options = replace(self.options, effort=chosen)

    def set_mode(self, mode: str) -> None:
        """Set which calls run in later turns. Raises UserError."""
        if mode not in MODES:
            raise UserError(f"The mode must be {', '.join(MODES)}, not {mode!r}.")
        self.options = replace(self.options, mode=mode)

    def modes(self) -> S.SessionModeState:
        modes = [S.SessionMode(id=m, name=m.capitalize(), description=d) for m, d in MODES.items()]
        return S.SessionModeState(current_mode_id=self.options.mode, available_modes=modes)

    async def send_mode(self) -> None:
        """Tell the editor the mode, which is a setting too for editors that know settings."""
        await self.send(helpers.update_current_mode(self.options.mode))
        await self._send_config_options()

    async def _send_config_options(self) -> None:
        options = self.config_options()
        await self.send(
            S.ConfigOptionUpdate(session_update="config_option_update", config_options=options)
        )

    def config_options(self) -> list[Any]:
        model = self._runtime.model.name
        choices: dict[str, tuple[Literal["model", "thought_level", "mode"], str, Sequence[str]]] = {
            "model": ("model", model, self.models),
            "effort": ("thought_level", self.options.effort, EFFORTS),
            "mode": ("mode", self.options.mode, [*MODES]),
        }
        return [
            S.SessionConfigOptionSelect(
                id=name,
                name=name.capitalize(),
                category=category,
                type="select",
                current_value=current,
                options=[S.SessionConfigSelectOption(value=value, name=value) for value in values],
            )
            for name, (category, current, values) in choices.items()
        ]

    # --- the editor's files ---

    async def _read_file(self, path: Path) -> str | None:
        if not self._files.read_text_file:
            return None
        try:
            async with asyncio.timeout(EDITOR_SECONDS):
                read = await self._client.read_text_file(session_id=self.id, path=str(path))
        except (RequestError, OSError, ValueError):  # of pydantic too
            return None
        return read.content

    def _unsaved(self, path: Path) -> bytes | None:
        """The editor's text of a file, in a thread of the files tools."""
        text = asyncio.run_coroutine_threadsafe(self._read_file(path), self._loop).result()
        return None if text is None else text.encode("utf-8", "replace")

    def _on_change(self, name: str, arguments: dict[str, Any], changes: list[FileChange]) -> None:
        """Show changes of files, and put them into the editor; in a thread of the files tools."""
        showing = self._show_change(name, arguments, changes)
        asyncio.run_coroutine_threadsafe(showing, self._loop).result()

    async def _show_change(
        self, name: str, arguments: dict[str, Any], changes: list[FileChange]
    ) -> None:
        for call in self._updates.calls.values():
            if (call.server, call.name, call.arguments) == ("files", name, arguments):
                call.content += diffs(changes)
                break
        for change in changes if self._files.write_text_file else ():
            if change.after is None:
                continue
            # The file is written: an editor that fails has the content of before.
            with contextlib.suppress(RequestError, OSError, ValueError):
                async with asyncio.timeout(EDITOR_SECONDS):
                    await self._client.write_text_file(
                        session_id=self.id,
                        path=str(change.path),
                        content=change.after.decode("utf-8", "replace"),
                    )

    # --- approvals ---

    async def _approve(self, tool: Tool, arguments: str) -> Answer:
        """Ask the person in the editor whether a call may run; an ``Approver``."""
        request = await self._questions.get()
        call = self._updates.calls[request.item_id]
        question = S.ToolCallUpdate(
            tool_call_id=call.id,
            title=call.title,
            kind=call.kind,
            status="pending",
            content=await self._question_content(request),
            raw_input=call.arguments,
        )
        try:
            response = await self._client.request_permission(
                session_id=self.id, tool_call=question, options=_permission_options(request)
            )
        except (RequestError, OSError, ValueError):
            return Answer("no", "the editor did not answer")
        chosen = getattr(response.outcome, "option_id", None)
        if chosen is None and self._turn is not None:
            self._turn.stop()
        return Answer(chosen if chosen in ("once", "session", "always") else "no")

    async def _question_content(self, request: ev.AgentApprovalRequested) -> list[Content]:
        content: list[Content] = []
        if isinstance(server := self._files_server, FilesServer) and request.server == "files":
            arguments = json.loads(request.arguments)
            with contextlib.suppress(ToolError, OSError):
                content = diffs(await asyncio.to_thread(server.plan, request.tool, arguments))
        reason = "" if request.reason == ASK_REASON else request.reason
        texts = (reason, request.diff, "" if content else request.preview)
        return content + [text_content(text) for text in texts if text]


def _permission_options(request: ev.AgentApprovalRequested) -> list[S.PermissionOption]:
    if (rules := request.rules) is None:
        rules = [f"{request.server}.{request.tool} with any arguments"]
    allowed = "; ".join(rules)
    options = [("once", "Allow once", "allow_once")]
    if allowed:
        options.append(("session", f"Allow until this program ends: {allowed}", "allow_always"))
        options.append(("always", f"Always allow in this folder: {allowed}", "allow_always"))
    options.append(("no", "Deny", "reject_once"))
    return [
        S.PermissionOption(option_id=name, name=label, kind=cast(S.PermissionOptionKind, kind))
        for name, label, kind in options
    ]


def _describe_context(context: ev.AgentContext | None) -> str:
    if context is None:
        return "There are no messages yet."
    rows = [f"\n| {part_name(part)} | {part.tokens:,} |" for part in context.parts]
    return (
        f"{context.tokens:,} of {context.context_length:,} tokens;"
        f" /compact frees up to {context.compactable:,}.\n\n| part | tokens |\n|---|---:|"
        f"{''.join(rows)}"
    )
