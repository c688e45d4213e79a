"""Everything that can be called, behind one door: MCP servers and the built-in hands."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tools.around import Around
from tools.base import (
    OnOutput,
    OnProgress,
    Prompt,
    Resource,
    ServerState,
    Source,
    Tool,
    ToolResult,
)
from tools.config import ServerConfig
from tools.hands import Citable
from tools.naming import clean, model_names
from tools.questions import Caller, OnElicitation, OnSampling
from tools.results import Results, encodable, failure
from tools.tokens import Tokens

if TYPE_CHECKING:
    from mcp import Client

    from tools.connection import Connection, Way

log = logging.getLogger(__name__)
V = TypeVar("V")

BACKOFF = (0.5, 60.0)
"""Seconds before the first restart, and at most: it doubles each time."""
HEALTHY = 30.0
"""A server that ran for so many seconds starts again at the first step."""
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
        around = Around(self._results, tuple(roots), self._tokens)
        self._servers = {config.name: _Server(config, around) for config in servers}
        self.left_out: frozenset[str] = frozenset()
        self._others: Collection[str] = ()
        self._named: tuple[Tool, ...] = ()
        self._named_from: list[Tool] | None = None

    def joined(self, guests: Sequence[ServerConfig]) -> Host:
        """These servers and some more, which end when what this returns is closed."""
        host = Host()
        host.left_out = self.left_out
        host._results, host._others = self._results, frozenset(self._servers)
        around = Around(self._results, (), self._tokens)
        host._servers = self._servers | {one.name: _Server(one, around) for one in guests}
        return host

    def config(self, server: str) -> ServerConfig | None:
        """The settings of a server, as the policy needs them."""
        found = self._servers.get(server)
        return found.config if found else None

    async def start(self) -> None:
        """Begin connecting, all at once, in the background; returns at once."""
        for server in self._servers.values():
            server.start()

    async def begin(self, name: str) -> None:
        """Begin connecting to this one only; returns at once."""
        if name in self._servers:
            self._servers[name].start()

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
        tools = [tool for server in self._servers.values() for tool in server.offered()]
        if tools != self._named_from:
            names = model_names((tool.server, tool.name) for tool in tools)
            self._named_from = tools
            self._named = tuple(
                replace(tool, model_name=tool.model_name or names[tool.server, tool.name])
                for tool in tools
            )
        return self._named

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
        from tools import catalogue

        return await self._fetch(server, catalogue.list_resources)

    async def read_resource(self, server: str, uri: str) -> ToolResult:
        """As a tool's result: what is no text lies in files."""
        from tools import catalogue

        blocks = await self._fetch(server, lambda client: catalogue.read_resource(client, uri))
        return await asyncio.to_thread(self._results.of, blocks)

    async def prompts(self, server: str) -> list[Prompt]:
        from tools import catalogue

        return await self._fetch(server, catalogue.list_prompts)

    async def prompt(
        self, server: str, name: str, arguments: dict[str, str]
    ) -> list[tuple[str, str]]:
        """A prompt's messages: role and text."""
        from tools import catalogue

        messages = await self._fetch(
            server, lambda client: catalogue.get_prompt(client, name, arguments)
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


class _Server:
    """A server's settings, its state, and the task that keeps it running."""

    def __init__(self, config: ServerConfig, around: Around) -> None:
        self.config, self._around = config, around
        self._tools: list[Tool] = list(config.hand.tools) if config.hand else []
        self._connection: Connection | None = None
        self._ready = False
        self._reached = False
        """It was ready once, this way."""
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self.settled = asyncio.Event()
        self.error: str | None = config.problem
        self._stderr = ""
        if not config.enabled or config.problem:
            self.settled.set()

    def problem(self) -> str | None:
        """Why nothing of it can be called; a hand's connection is made when it is needed."""
        if not self.config.enabled:
            return "is disabled"
        if self.config.hand is not None and not self._closing:
            return self.config.hand.problem()
        return None if self._ready else self.error

    def offered(self) -> list[Tool]:
        if not self.config.enabled or (self.config.hand and self.config.hand.problem()):
            return []
        return [tool for tool in self._tools if self.config.offers(tool.name)]

    def state(self) -> ServerState:
        config, error = self.config, self.problem()
        status: Literal["starting", "ready", "failed", "disabled"]
        if not config.enabled:
            status, error = "disabled", None
        elif error is not None:
            status = "failed"
        elif config.hand is None and not self._ready:
            status = "starting"
        else:
            status = "ready"
            if absent := set(config.enabled_tools or ()) - {tool.name for tool in self._tools}:
                error = f"has no tool {', '.join(sorted(absent))}"
        tools = [clean(tool.name) for tool in self.offered()]
        connection = self._connection
        return ServerState(
            config.name,
            status,
            tools,
            error and encodable(error),
            config.required,
            protocol=connection.protocol if connection and self._ready else "",
            stderr=encodable((connection and connection.stderr) or self._stderr),
        )

    async def wait(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settled.wait(), seconds)

    def start(self) -> None:
        possible = self.config.enabled and not self.config.problem
        if self._task is None and not self._closing and possible:
            self._task = asyncio.create_task(self._own(), name=f"mcp {self.config.name}")

    async def connection(self) -> Connection | None:
        """The live connection; while it starts, once it has; None where that fails."""
        self.start()
        if self._task is None or self._closing:
            return None
        if self._ready and not self._alive():
            await self._outcome()  # it has just ended, and its owner is about to say so
        if not self._ready:
            self._wanted.set()  # cuts a wait between two attempts short
            await self._outcome()
        return None if self.problem() else self._connection

    def _alive(self) -> bool:
        return self._connection is not None and self._connection.alive

    async def _outcome(self) -> None:
        if not self._closing:
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        self._closing = True
        self._wanted.set()
        if self._connection is not None:
            self._connection.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
        self.error = self.error or "is closed"
        self.settled.set()
        if self.config.hand is not None:
            await self.config.hand.close()

    async def _own(self) -> None:
        """Connect, again and again, until closed."""
        try:
            if self.config.hand is not None:
                await self.config.hand.start()
                self.settled.set()  # its definitions were known from the beginning
            # The SDK's import takes most of a second; the first server to come pays in a thread.
            module = await asyncio.to_thread(import_module, "tools.connection")
            delay = BACKOFF[0]
            ways = itertools.cycle(_ways(self.config))
            way = next(ways)
            while not self._closing:
                self._connection = module.Connection(self.config, self._around, way)
                began = asyncio.get_running_loop().time()
                reason = await self._connection.run(self._publish)
                self._stderr = self._connection.stderr or self._stderr
                if not self._reached and way == "" and self.config.tries_sse:
                    way = next(ways)  # at once: it is still the same start
                    continue
                if not self._reached:
                    way = next(ways)
                self._fail(reason)
                if asyncio.get_running_loop().time() - began > HEALTHY:
                    delay = BACKOFF[0]
                await self._pause(delay)
                delay = min(delay * 2, BACKOFF[1])
        except Exception as error:
            log.exception("%s", self.config.name)
            self._fail(f"failed: {error}")
        finally:
            self._closing = True
            self._connection = None
            self._settle()

    def _publish(self, tools: list[Tool]) -> None:
        # A hand's definitions are its own, with the names that the model was trained on.
        if self.config.hand is None:
            self._tools = tools
        self._ready = self._reached = True
        self.error = None
        self._settle()

    def _fail(self, reason: str) -> None:
        if not self._closing:
            log.warning("MCP server %s %s", self.config.name, reason)
        self._ready, self.error = False, reason
        self._settle()

    def _settle(self) -> None:
        self.settled.set()
        self._changed.set()

    async def _pause(self, seconds: float) -> None:
        if self._closing:
            return
        self._wanted.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), seconds)


def _ways(config: ServerConfig) -> tuple[Way, ...]:
    """How to connect: where one way has never worked, the next attempt takes another."""
    if config.hand:
        return ("",)
    return ("", "sse") if config.tries_sse else ("", "legacy")
