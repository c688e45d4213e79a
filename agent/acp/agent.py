"""The methods of the protocol that an editor calls."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import acp.schema as S
from acp import PROTOCOL_VERSION
from acp.exceptions import RequestError
from acp.helpers import ContentBlock

from agent import bootstrap
from agent.acp.session import EditorSession
from agent.config.launch import LaunchOptions
from agent.config.text_files import project_name
from agent.conversation.conversation import Conversation
from agent.engine.protocol import EngineError
from agent.errors import UserError, user_errors
from agent.models.listing import list_models
from agent.models.resolve import resolve_model
from agent.runtime.runtime import Runtime
from agent.store.conversations import Store, StoreError
from agent.store.recorder import TurnRecorder
from agent.util.ids import new_id
from tools.config.servers import ServerConfig
from tools.version import program_version

if TYPE_CHECKING:
    from acp.interfaces import Client

McpServer = S.HttpMcpServer | S.SseMcpServer | S.AcpMcpServer | S.McpServerStdio
PAGE_SESSIONS = 50


class AcpAgent:
    """Serves the sessions of one editor."""

    def __init__(self, runtime: Runtime, launch: LaunchOptions, store: Store | None) -> None:
        self._runtime, self._launch, self._store = runtime, launch, store
        self._recorder = None if store is None else TurnRecorder(store, self._on_store_failure)
        self.client: Client | None = None
        self._files = S.FileSystemCapabilities()
        self._sessions: dict[str, EditorSession] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def _on_store_failure(self, error: Exception) -> None:
        for session in self._sessions.values():
            self._start(session.show_notice(f"The conversation cannot be stored: {error}."))

    def on_connect(self, client: Client) -> None:
        self.client = client

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: S.ClientCapabilities | None = None,
        **_: Any,
    ) -> S.InitializeResponse:
        if client_capabilities is not None and client_capabilities.fs is not None:
            self._files = client_capabilities.fs
        stored = self._store is not None
        return S.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=S.Implementation(name="agent", title="agent", version=program_version()),
            agent_capabilities=S.AgentCapabilities(
                load_session=stored,
                prompt_capabilities=S.PromptCapabilities(
                    image=False, audio=False, embedded_context=True
                ),
                mcp_capabilities=S.McpCapabilities(http=True, sse=True),
                session_capabilities=S.SessionCapabilities(
                    list=S.SessionListCapabilities() if stored else None,
                    resume=S.SessionResumeCapabilities() if stored else None,
                    close=S.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Nothing: there is no login."""

    # --- sessions ---

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> S.NewSessionResponse:
        session = await self._open(Conversation(new_id("conv")), cwd, mcp_servers)
        return S.NewSessionResponse(session_id=session.id, **self._offered(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> S.LoadSessionResponse:
        session = await self._open_stored(session_id, cwd, mcp_servers)
        assert self._store is not None
        store = self._store

        def read() -> Any:
            return [
                (turn, [event for _, event in store.events(turn.response.id)])
                for turn in store.turns(session.id)
            ]

        await session.replay(await store.run(read))
        return S.LoadSessionResponse(**self._offered(session))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> S.ResumeSessionResponse:
        session = await self._open_stored(session_id, cwd, mcp_servers)
        return S.ResumeSessionResponse(**self._offered(session))

    def _offered(self, session: EditorSession) -> dict[str, Any]:
        """The choices of a session for its editor, which hears of commands after the answer."""
        self._start(session.announce())
        return {"modes": session.modes(), "config_options": session.config_options()}

    async def _open_stored(
        self, session_id: str, cwd: str, mcp_servers: Sequence[McpServer] | None
    ) -> EditorSession:
        if self._store is None:
            raise RequestError(-32603, "Conversations are not stored.")
        if session_id in self._sessions:
            await self.close_session(session_id)
        store = self._store
        try:
            conversation = await store.run(lambda: store.load(session_id))
        except StoreError as error:
            raise RequestError(-32002, str(error)) from error
        if conversation.id != session_id:
            raise RequestError(-32002, f"There is no session {session_id}.")
        return await self._open(conversation, cwd, mcp_servers)

    async def _open(
        self, conversation: Conversation, cwd: str, servers: Sequence[McpServer] | None
    ) -> EditorSession:
        root = _absolute(cwd)
        if not root.is_dir():
            raise RequestError(-32602, f"cwd must be the absolute path of a folder, not {cwd!r}.")
        launch = replace(self._launch, root=root)
        others = [session.root for session in self._sessions.values()]
        brought = [_server_config(server, root) for server in servers or ()]
        try:
            toolbox = await asyncio.to_thread(bootstrap.create_toolbox, launch, others, brought)
            options = bootstrap.turn_options(launch, self._runtime.model, compact=True)
            options = replace(options, mode=bootstrap.person_mode(launch))
            project = await asyncio.to_thread(bootstrap.project_instructions, launch)
            folder = await asyncio.to_thread(project_name, root)
        except UserError as error:
            raise RequestError(-32603, str(error)) from error
        await toolbox.host.start()
        assert self.client is not None
        session = EditorSession(
            self.client, self._files, self._runtime, self._recorder, toolbox,
            replace(options, project=project), conversation, root, folder,
        )  # fmt: skip
        self._sessions[session.id] = session
        problems = [s for s in toolbox.host.server_states() if s.status == "failed" and s.error]
        session.notices = [*project.notices, *(f"{s.name} {s.error}" for s in problems)]
        rows = await asyncio.to_thread(list_models, self._runtime.paths)
        runnable = [row.name for row in rows if row.runnable]
        session.models = [*dict.fromkeys([self._runtime.model.name, *runnable])]
        return session

    def _start(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send once the editor has the answer to the request that is being handled."""
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> Any:
        if self._store is None:
            raise RequestError(-32603, "Conversations are not stored.")
        if cursor is not None and not (cursor.isascii() and cursor.isdecimal()):
            raise RequestError(-32602, "The cursor is not one of this list.")
        start, store = int(cursor or 0), self._store
        summaries = await store.run(store.summaries)
        if cwd is not None:
            folder = await asyncio.to_thread(project_name, _absolute(cwd))
            summaries = [each for each in summaries if each.folder == folder]
        unknown, end = str(self._launch.root.resolve()), start + PAGE_SESSIONS
        return S.ListSessionsResponse(
            sessions=[
                S.SessionInfo(
                    session_id=each.id,
                    cwd=cwd or each.folder or unknown,
                    title=each.title,
                    updated_at=datetime.fromtimestamp(each.updated, UTC).isoformat(),
                )
                for each in summaries[start:end]
            ],
            next_cursor=str(end) if end < len(summaries) else None,
        )

    async def close_session(self, session_id: str, **_: Any) -> S.CloseSessionResponse:
        session = self._session(session_id)
        del self._sessions[session_id]
        session.cancel()
        await session.close()
        return S.CloseSessionResponse()

    def _session(self, session_id: str) -> EditorSession:
        if (session := self._sessions.get(session_id)) is None:
            raise RequestError(-32002, f"There is no session {session_id}.")
        return session

    # --- prompts and settings ---

    async def prompt(
        self, session_id: str, prompt: Sequence[ContentBlock], **_: Any
    ) -> S.PromptResponse:
        try:
            return S.PromptResponse(stop_reason=await self._session(session_id).prompt(prompt))
        except UserError as error:
            raise RequestError(-32602, str(error)) from error

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        session = self._session(session_id)
        try:
            session.set_mode(mode_id)
        except UserError as error:
            raise RequestError(-32602, str(error)) from error
        self._start(session.send_mode())

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> S.SetSessionConfigOptionResponse:
        session = self._session(session_id)
        try:
            match config_id:
                case "effort":
                    session.set_effort(str(value))
                case "model":
                    await self._switch_model(session, str(value))
                case "mode":
                    session.set_mode(str(value))
                    self._start(session.send_mode())
                case _:
                    known = "known: model, effort, mode"
                    raise UserError(f"There is no setting {config_id!r}; {known}.")
        except UserError as error:
            raise RequestError(-32602, str(error)) from error
        return S.SetSessionConfigOptionResponse(config_options=session.config_options())

    async def _switch_model(self, session: EditorSession, name: str) -> None:
        """Use another model, in all sessions: one is in memory. Raises UserError."""
        runtime = self._runtime
        with user_errors(EngineError):
            model = await asyncio.to_thread(
                resolve_model, name, runtime.paths, scripted=runtime.script is not None
            )
            if model.name != runtime.model.name:
                await runtime.switch(model, context=self._launch.context)
        own = bootstrap.turn_options(self._launch, runtime.model)
        for each in self._sessions.values():
            each.options = each.options.with_model_settings(own)

    async def close(self) -> None:
        """Stop what runs; each turn is stored as far as it came."""
        for session in self._sessions.values():
            session.cancel()
        await asyncio.gather(*(session.close() for session in self._sessions.values()))


def _absolute(cwd: str) -> Path:
    if not (path := Path(cwd)).is_absolute() or "\0" in cwd:
        raise RequestError(-32602, f"cwd must be the absolute path of a folder, not {cwd!r}.")
    return path


def _server_config(server: McpServer, root: Path) -> ServerConfig:
    """An editor's server, as one of mcp.json without rules of its own."""
    if isinstance(server, S.McpServerStdio):
        return ServerConfig(
            server.name,
            command=server.command,
            args=tuple(server.args),
            env={each.name: each.value for each in server.env},
            cwd=str(root),
            command_line=shlex.join([server.command, *server.args]),
            from_project=True,
        )
    if isinstance(server, S.AcpMcpServer):
        raise RequestError(-32602, "MCP servers over ACP are not supported.")
    return ServerConfig(
        server.name,
        url=server.url,
        transport="sse" if isinstance(server, S.SseMcpServer) else "http",
        headers={each.name: each.value for each in server.headers},
        command_line=server.url,
        from_project=True,
    )
