"""The host: one object behind which all tools are called, of MCP servers and built-in ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tools.builtin_server import BuiltinServers
from tools.config.servers import ServerConfig
from tools.mcp import login
from tools.mcp.call_scope import NewerVersionError, SessionLostError
from tools.mcp.client_requests import CallHandlers, OnElicitation, OnSampling
from tools.mcp.context import HostContext
from tools.mcp.credentials import CredentialStore
from tools.mcp.login import LoginChallenge, OnLogin
from tools.mcp.server import McpServer
from tools.results import ResultBuilder, protocol_failure
from tools.sanitize import model_names
from tools.types import OnOutput, OnProgress, Prompt, Resource, ServerState, Tool, ToolResult

if TYPE_CHECKING:
    from mcp import Client

    from tools.mcp.sandboxed import ServerSandbox

V = TypeVar("V")

MAX_LOGINS_PER_CALL = 2
"""One because there is none, one for the scope that the call needs."""
INVALID_PARAMS, CONNECTION_CLOSED = -32602, -32000
"""JSON-RPC and MCP error codes (the SDK's names; importing it here would cost too much)."""


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


class Host:
    """All servers by name. Each has a task that connects and restarts it (see McpServer)."""

    def __init__(
        self,
        servers: Sequence[ServerConfig] = (),
        *,
        max_result_chars: int = 32_000,
        results_folder: Path | None = None,
        roots: Sequence[Path] = (),
        credentials_file: Path | None = None,
        sandbox: ServerSandbox | None = None,
    ) -> None:
        """``results_folder``: for full texts of shortened results (None: a temporary one)."""
        results = ResultBuilder(max_result_chars, results_folder)
        credentials = CredentialStore(credentials_file)
        self._context = context = HostContext(results, tuple(roots), credentials, sandbox)
        self._servers = {config.name: McpServer(config, context) for config in servers}
        self.builtins = BuiltinServers(c.builtin for c in servers if c.builtin is not None)
        self.unselected: frozenset[str] = frozenset()
        """Names that the model may know but that were not selected (see ``unselected_names``)."""
        self.withheld = ""
        """Why the model gets no tools, as a sentence; empty: it gets them."""
        self._borrowed: Collection[str] = ()
        """Servers of another host, which this one does not close."""
        self._named: tuple[Tool, ...] = ()
        self._named_from: list[Tool] | None = None
        self._disabled_tools: set[tuple[str, str]] = set()

    def with_client_servers(self, client_servers: Sequence[ServerConfig]) -> Host:
        """A host with these servers and some that an API client brought for one request, which get no
        roots of the person's; closing it ends the client's servers only."""
        host = Host()
        host.unselected = self.unselected
        host._borrowed, host._servers = frozenset(self._servers), dict(self._servers)
        host._context = replace(
            self._context, roots=(), sandbox=None, listeners=[], login_listeners=[]
        )
        host.add_servers(client_servers, connect=False)
        host.builtins = self.builtins
        return host

    def server_config(self, name: str) -> ServerConfig | None:
        server = self._servers.get(name)
        return server.config if server else None

    def add_servers(self, servers: Sequence[ServerConfig], *, connect: bool = True) -> None:
        for config in servers:
            self._servers[config.name] = McpServer(config, self._context)
            if connect:
                self._servers[config.name].start()

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Call back with the name of a server whenever it becomes ready or changes its offers."""
        self._context.listeners.append(callback)

    def subscribe_logins(self, callback: Callable[[str], None]) -> None:
        """Call back with the name of a server whenever it cannot be connected without a login."""
        self._context.login_listeners.append(callback)

    async def start(self) -> None:
        """Begin to connect all servers in the background; built-in ones connect when called."""
        for server in self._servers.values():
            server.start()

    def connect(self, name: str) -> None:
        if name in self._servers:
            self._servers[name].connect_soon()

    async def wait_started(self, names: Collection[str] | None = None) -> None:
        """Wait until none of these (None: all) nor a required server starts; each has its timeout."""
        async with asyncio.TaskGroup() as group:
            for name, server in self._servers.items():
                if names is None or name in names or server.config.required:
                    group.create_task(server.start_decided.wait())

    async def iter_started(self, names: Sequence[str]) -> AsyncIterator[str]:
        """Yield each of these servers when its start has succeeded or failed."""
        events = {name: self._servers[name].start_decided for name in names}
        waits = {asyncio.create_task(event.wait()): name for name, event in events.items()}
        while waits:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in [wait for wait in waits if wait in done]:
                yield waits.pop(wait)

    async def wait_for_turn(
        self, text: str = "", names: Collection[str] | None = None, *, timeout: float | None = None
    ) -> None:
        """Wait for servers that a turn of these names (None: of all) needs: required ones and those
        that ``text`` names until their start is decided, others ``timeout`` seconds while active."""
        async with asyncio.TaskGroup() as group:
            for name, server in self._servers.items():
                wanted = names is None or name in names
                if server.config.required or (wanted and _mentions(text, name)):
                    group.create_task(server.start_decided.wait())
                elif wanted:
                    group.create_task(server.wait_idle(timeout))

    def count_servers(self) -> tuple[int, int]:
        """Return the number of ready servers and of enabled ones, without the built-in ones."""
        statuses = [s.status for s in self._servers.values() if s.config.builtin is None]
        return statuses.count("ready"), len(statuses) - statuses.count("disabled")

    def server_states(self) -> list[ServerState]:
        """Return the state of each server, in the order of the settings."""
        return [server.state() for server in self._servers.values()]

    def tools(self) -> Sequence[Tool]:
        """The enabled tools, with unique ``model_name``s, in order; also while a server restarts. None
        of them while all are `withheld`."""
        tools = () if self.withheld else self.all_tools()
        return [tool for tool in tools if not self.is_tool_disabled(tool.server, tool.name)]

    def all_tools(self) -> Sequence[Tool]:
        """Return the tools including those that are disabled or `withheld`."""
        tools = [tool for server in self._servers.values() for tool in server.offered_tools()]
        if tools != self._named_from:
            names = model_names((tool.server, tool.name) for tool in tools)
            self._named_from = tools
            self._named = tuple(
                replace(tool, model_name=tool.model_name or names[tool.server, tool.name])
                for tool in tools
            )
        return self._named

    def is_tool_disabled(self, server: str, tool: str) -> bool:
        return (server, tool) in self._disabled_tools

    def set_tool_enabled(self, server: str, tool: str, *, enabled: bool) -> None:
        """Decide for this process whether turns that begin from now on have the tool."""
        disabled = self._disabled_tools
        (disabled.discard if enabled else disabled.add)((server, tool))

    def reconnect(self, name: str) -> None:
        """End a server's connection, if there is one, and connect again; enables it if disabled."""
        self._servers[name].restart()

    async def log_in(
        self,
        name: str,
        dialog: login.LoginDialog,
        challenge: LoginChallenge | None = None,
        *,
        scopes: Sequence[str] = (),
    ) -> None:
        """Log in; ``challenge``: the server's (None: it is asked). Raises LoginError."""
        # Imports the MCP SDK.
        from tools.mcp.oauth import log_in

        server = self._servers[name]
        challenge = challenge or await server.probe_login()
        await log_in(server.config, self._context.credentials, dialog, challenge, scopes)
        await server.on_logged_in()

    async def offer_logins(self, text: str, on_login: OnLogin) -> None:
        """Ask the person for the logins that a turn needs: of servers that want one and are required,
        were named on the command line, or are named by ``text``."""
        for name, server in self._servers.items():
            wanted = server.config.required or server.config.trusted or _mentions(text, name)
            if wanted and await self.offer_login(name, on_login):
                await server.start_decided.wait()

    async def offer_login(self, name: str, on_login: OnLogin) -> bool:
        """Ask the person for the login that a server wants which failed; return whether it was done."""
        server = self._servers[name]
        if (challenge := server.challenge) is None:
            return False
        return await self._ask_login(server, challenge, server.login_answers, on_login)

    async def _ask_login(
        self,
        server: McpServer,
        challenge: LoginChallenge,
        known_answers: Sequence[bool],
        on_login: OnLogin | None,
    ) -> bool:
        """Ask the person to log in, unless they have answered since ``known_answers``."""
        if on_login is None or not login.logs_in(server.config):
            return False
        async with server.login_turn:
            if server.login_answers != known_answers:
                return server.login_answers[-1]
            name = server.config.name
            log_in = partial(self.log_in, name, challenge=challenge)
            request = login.LoginRequest(name, f"The server {name} {challenge.wish}.", log_in)
            server.login_answers += (await on_login(request),)
            return server.login_answers[-1]

    def find_tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools() if name == f"{tool.server}.{tool.name}"), None)

    async def refresh_definition(self, tool: Tool) -> Tool:
        """Return the tool as its server defines it now; waits for a server that restarts."""
        server = self._servers.get(tool.server)
        if server is not None and server.config.builtin is None:
            await server.live_connection()
        key = (tool.server, tool.name)
        return next((now for now in self.tools() if (now.server, now.name) == key), tool)

    async def call(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        *,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
        on_elicitation: OnElicitation | None = None,
        on_sampling: OnSampling | None = None,
        on_login: OnLogin | None = None,
    ) -> ToolResult:
        """Run a tool if its definition is still ``tool``; cancelling the task cancels it. The server's
        requests without a handler are declined. Raises nothing but CancelledError."""
        server = self._servers.get(tool.server)
        if server is None:
            return protocol_failure(f"no such server: {tool.server}", INVALID_PARAMS)
        handlers = CallHandlers(on_progress, on_output, on_elicitation, on_sampling)
        lost = changes = logins = 0
        while True:
            known_answers = server.login_answers
            connection = await server.live_connection()
            if connection is None:
                reason, challenge = server.problem(), server.challenge
            else:
                offered = (offer for offer in server.offered_tools() if offer.name == tool.name)
                current = next(offered, None)
                if current is None:
                    reason = f"the server {tool.server} has no tool {tool.name}"
                    return protocol_failure(reason, INVALID_PARAMS)
                if replace(current, model_name=tool.model_name) != tool:
                    # The approved definition is not the one that would run.
                    reason = f"the server {tool.server} has just changed {tool.name}; call it again"
                    return protocol_failure(reason, INVALID_PARAMS)
                try:
                    return await connection.call(tool.name, arguments, handlers)
                except SessionLostError as error:
                    # It has not run the call: it may be made again, as after a login, and no other
                    # may.
                    if isinstance(error, NewerVersionError):
                        server.use_newest_version()
                    else:
                        lost += 1
                    changes += 1
                    if lost < 2 and changes < 3:
                        continue
                    reason, challenge = f"lost the session again: it {error}", None
                except login.LoginRequiredError as required:
                    reason = connection.transport.describe_challenge(required.challenge)
                    satisfied = connection.transport.has_scope(required.challenge)
                    challenge = None if satisfied else required.challenge
            logins += 1
            if (
                challenge is None
                or logins > MAX_LOGINS_PER_CALL
                or not await self._ask_login(server, challenge, known_answers, on_login)
            ):
                return protocol_failure(f"the server {tool.server} {reason}", CONNECTION_CLOSED)

    # --- resources and prompts ---

    async def resources(self, server: str) -> list[Resource]:
        """Return a server's resources and templates; raises ValueError with a sentence."""
        return await self._fetch(server, lambda module, client: module.list_resources(client))

    async def read_resource(self, server: str, uri: str) -> str:
        """Return a resource as a tool's result would show it; raises ValueError with a sentence."""
        blocks = await self._fetch(server, lambda module, client: module.read_resource(client, uri))
        return (await asyncio.to_thread(self._context.results.build, blocks)).text

    async def prompts(self, server: str) -> list[Prompt]:
        """Return a server's prompts; raises ValueError with a sentence."""
        return await self._fetch(server, lambda module, client: module.list_prompts(client))

    async def get_prompt(
        self, server: str, name: str, arguments: dict[str, str]
    ) -> list[tuple[str, str]]:
        """Return a prompt's messages: role and text; raises ValueError with a sentence."""
        messages = await self._fetch(
            server, lambda module, client: module.get_prompt(client, name, arguments)
        )
        return [(role, self._context.results.build([block]).text) for role, block in messages]

    async def _fetch(self, name: str, work: Callable[[Any, Client], Awaitable[V]]) -> V:
        """Make a request by a function of the module ``listing``, which imports the MCP SDK."""
        from tools.mcp import listing

        server = self._servers.get(name)
        connection = await server.live_connection() if server else None
        if server is None or connection is None:
            raise ValueError(f"the server {name} {server.problem() if server else 'is not known'}")
        return await connection.fetch(lambda client: work(listing, client))

    async def close(self) -> None:
        """End all servers; no process of theirs is left running."""
        own = (server for name, server in self._servers.items() if name not in self._borrowed)
        await asyncio.gather(*(server.close() for server in own))
