"""Everything that can be called, behind one door: MCP servers and the built-in hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tools.builtin.base import Citable
from tools.config.servers import ServerConfig
from tools.mcp.client_requests import Caller, OnElicitation, OnSampling
from tools.mcp.context import Around
from tools.mcp.credentials import Tokens
from tools.mcp.server import Server
from tools.results import Results, encodable, failure
from tools.sanitize import model_names
from tools.types import (
    OnOutput,
    OnProgress,
    Prompt,
    Resource,
    ServerState,
    Source,
    Tool,
    ToolResult,
)

if TYPE_CHECKING:
    from mcp import Client

V = TypeVar("V")

INVALID_PARAMS, CONNECTION_CLOSED = -32602, -32000
"""JSON-RPC and MCP error codes (the SDK's names; importing it here would cost too much)."""


class Host:
    """Servers by name. One task per server owns its connection and restarts it; see Connection."""

    def __init__(
        self,
        servers: Sequence[ServerConfig] = (),
        *,
        limit: int = 32_000,
        results: Path | None = None,
        roots: Sequence[Path] = (),
        tokens: Path | None = None,
    ) -> None:
        """``limit``: characters of a result for the model. ``results``: the folder for whole
        results where they had to be cut (None: a temporary one). ``roots``: the folders that
        servers are told they may work in. ``tokens``: the file of logins where there is no keyring."""
        self._results = Results(limit, results)
        self._tokens = Tokens(tokens)
        self._around = around = Around(self._results, tuple(roots), self._tokens)
        self._servers = {config.name: Server(config, around) for config in servers}
        self.left_out: frozenset[str] = frozenset()
        self._others: Collection[str] = ()
        self._named: tuple[Tool, ...] = ()
        self._named_from: list[Tool] | None = None
        self._off: set[tuple[str, str]] = set()

    def joined(self, guests: Sequence[ServerConfig]) -> Host:
        """These servers and some more, which end when what this returns is closed."""
        host = Host()
        host.left_out = self.left_out
        host._results, host._others = self._results, frozenset(self._servers)
        around = Around(self._results, (), self._tokens)
        host._servers = self._servers | {one.name: Server(one, around) for one in guests}
        return host

    def config(self, server: str) -> ServerConfig | None:
        """The settings of a server, as the policy needs them."""
        found = self._servers.get(server)
        return found.config if found else None

    def add(self, servers: Sequence[ServerConfig]) -> None:
        """Further ones, which begin to connect."""
        for config in servers:
            self._servers[config.name] = Server(config, self._around)
            self._servers[config.name].start()

    def listen(self, callback: Callable[[str], None]) -> None:
        """Call back with the name of every server that gets ready, or offers something else than
        before."""
        self._around.listeners.append(callback)

    async def start(self) -> None:
        """Begin connecting, all at once, in the background; returns at once. The hands' connections
        wait for a call: what can be called is known without them."""
        for server in self._servers.values():
            server.start()

    def begin(self, name: str) -> None:
        """Begin connecting to this one, which is needed soon; returns at once."""
        if name in self._servers:
            self._servers[name].want()

    def begin_hands(self) -> None:
        """So that their first call need not wait; returns at once."""
        for server in self._servers.values():
            if server.config.hand is not None:
                server.want()

    async def settled(
        self, names: Collection[str] | None = None, *, patience: float | None = None
    ) -> None:
        """Until none of these servers (None: of all), nor a required one, is starting any more; each
        is bounded by its own startup timeout. ``patience``: seconds for those not required."""
        async with asyncio.TaskGroup() as group:
            for name, server in self._servers.items():
                required = server.config.required
                if names is None or name in names or required:
                    group.create_task(server.wait(None if required else patience))

    def servers(self) -> list[ServerState]:
        return [server.state() for server in self._servers.values()]

    def tools(self) -> Sequence[Tool]:
        """Of all servers that have been ready, also while one restarts: a conversation's tools do
        not come and go. In the order of the settings, ``model_name`` set and unique."""
        return [tool for tool in self.all_tools() if not self.is_off(tool.server, tool.name)]

    def all_tools(self) -> Sequence[Tool]:
        """Those that are switched off too."""
        tools = [tool for server in self._servers.values() for tool in server.offered()]
        if tools != self._named_from:
            names = model_names((tool.server, tool.name) for tool in tools)
            self._named_from = tools
            self._named = tuple(
                replace(tool, model_name=tool.model_name or names[tool.server, tool.name])
                for tool in tools
            )
        return self._named

    def is_off(self, server: str, tool: str) -> bool:
        return (server, tool) in self._off

    def switch(self, server: str, tool: str, *, on: bool) -> None:
        """For this process: whether the turns that begin from now on have the tool."""
        (self._off.discard if on else self._off.add)((server, tool))

    def reconnect(self, name: str) -> None:
        """End the connection, if there is one, and begin anew; also where settings disable it."""
        self._servers[name].restart()

    async def log_in(self, name: str, show: Callable[[str], None]) -> None:
        """To a server over HTTP, with the person's browser; ``show`` gets the page's address. Raises
        LoginFailed."""
        from tools.mcp.oauth import log_in

        server = self._servers[name]
        await log_in(server.config, self._tokens, browser=True, show=show)
        server.restart()

    def tool(self, name: str) -> Tool | None:
        """By ``server.tool``."""
        found = (tool for tool in self.tools() if name == f"{tool.server}.{tool.name}")
        return next(found, None)

    async def current(self, tool: Tool) -> Tool:
        """The tool as its server defines it now; one that restarts is waited for."""
        server = self._servers.get(tool.server)
        if server is not None and server.config.hand is None:
            await server.connection()
        same = (one for one in self.tools() if (one.server, one.name) == (tool.server, tool.name))
        return next(same, tool)

    async def call(
        self,
        tool: Tool,
        arguments: dict[str, Any],
        *,
        on_progress: OnProgress | None = None,
        on_output: OnOutput | None = None,
        on_elicitation: OnElicitation | None = None,
        on_sampling: OnSampling | None = None,
    ) -> ToolResult:
        """Run it. Cancelling the awaiting task cancels the tool. Never raises but CancelledError.

        What the server asks meanwhile is declined where nobody is given to answer it.
        """
        server = self._servers.get(tool.server)
        if server is None:
            return failure(f"no such server: {tool.server}", INVALID_PARAMS)
        caller = Caller(on_progress, on_output, on_elicitation, on_sampling)
        for _ in range(2):
            connection = await server.connection()
            if connection is None:
                return failure(f"the server {tool.server} {server.problem()}", CONNECTION_CLOSED)
            offered = next((one for one in server.offered() if one.name == tool.name), None)
            if offered is None:
                return failure(f"the server {tool.server} has no tool {tool.name}", INVALID_PARAMS)
            if replace(offered, model_name=tool.model_name) != tool:
                # What was approved is not what would run.
                what = f"the server {tool.server} has just changed {tool.name}; call it again"
                return failure(what, INVALID_PARAMS)
            try:
                return await connection.call(tool.name, arguments, caller)
            except connection.Lost:
                # It was restarted and has not run the call: the only one that may be made again.
                continue
        return failure(f"the server {tool.server} lost the session again", CONNECTION_CLOSED)

    # --- what servers have beside tools ---

    async def resources(self, server: str) -> list[Resource]:
        """Those with an address, and templates. Raises ValueError with a sentence, as do these all."""
        from tools.mcp import listing

        return await self._fetch(server, listing.list_resources)

    async def read_resource(self, server: str, uri: str) -> ToolResult:
        """As a tool's result: what is no text lies in files."""
        from tools.mcp import listing

        blocks = await self._fetch(server, lambda client: listing.read_resource(client, uri))
        return await asyncio.to_thread(self._results.of, blocks)

    async def prompts(self, server: str) -> list[Prompt]:
        from tools.mcp import listing

        return await self._fetch(server, listing.list_prompts)

    async def prompt(
        self, server: str, name: str, arguments: dict[str, str]
    ) -> list[tuple[str, str]]:
        """A prompt's messages: role and text."""
        from tools.mcp import listing

        messages = await self._fetch(
            server, lambda client: listing.get_prompt(client, name, arguments)
        )
        return [(role, self._results.of([block]).text) for role, block in messages]

    async def _fetch(self, name: str, work: Callable[[Client], Awaitable[V]]) -> V:
        server = self._servers.get(name)
        connection = await server.connection() if server else None
        if server is None or connection is None:
            raise ValueError(f"the server {name} {server.problem() if server else 'is not known'}")
        return await connection.fetch(work)

    async def preview(self, tool: Tool, arguments: dict[str, Any]) -> str | None:
        """What a hand's call would change, for the person who is asked. Never raises."""
        config = self.config(tool.server)
        if config is None or config.hand is None:
            return None
        try:
            shown = await asyncio.to_thread(config.hand.preview, tool.name, arguments)
            return shown and encodable(shown)
        except Exception as error:
            return encodable(str(error))

    def source(self, cursor: int, line: int) -> Source | None:
        """What an answer cites by a page's cursor and a line of it."""
        for server in self._servers.values():
            hand = server.config.hand
            if isinstance(hand, Citable) and (found := hand.source(cursor, line)) is not None:
                return found
        return None

    async def close(self) -> None:
        """End every server; nothing is left running."""
        own = (server for name, server in self._servers.items() if name not in self._others)
        await asyncio.gather(*(server.close() for server in own))
