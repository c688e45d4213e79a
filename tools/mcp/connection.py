"""One MCP server while it is connected. Imports the SDK, which takes most of a second: the host
imports this module in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, TypeVar

import anyio
import mcp.types as T
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import ValidationError

from tools.builtin.base import emit, serve
from tools.config.servers import ServerConfig
from tools.mcp import listing
from tools.mcp.call_scope import Running
from tools.mcp.client_callbacks import Answers
from tools.mcp.client_requests import Caller
from tools.mcp.context import Around
from tools.mcp.diagnostics import explain, reason
from tools.mcp.http import Remote
from tools.mcp.oauth import stored_auth
from tools.mcp.stdio import Child
from tools.results import failure
from tools.types import Tool, ToolResult
from tools.version import version

RELIST_PAUSE = 0.5
"""Seconds between two readings of lists that a server keeps changing."""
MODERN = "2026-07-28"
"""From this version on, changes are heard of by listening only."""

V = TypeVar("V")
Way = Literal["", "legacy", "sse"]
"""legacy: initialize at once, for a server that the probe of newer versions upsets."""
_running: ContextVar[Running | None] = ContextVar("running", default=None)


class SessionLost(Exception):
    """The server has forgotten us, and has not run the call."""


class Connection:
    """From the start of a server to its end; a restart is a new one."""

    Lost = SessionLost

    def __init__(self, config: ServerConfig, around: Around, way: Way = "") -> None:
        self.config = config
        self.protocol = ""
        self._around, self._results, self._way = around, around.results, way
        self._client: Client | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopped = False
        self._child = Child(config) if config.command else None
        self._remote: Remote | None = None
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()
        self._running: list[Running] = []
        self._own: frozenset[str] = frozenset()
        """Tools that stand for something else of the server's: its resources."""

    async def run(self, ready: Callable[[list[Tool]], None]) -> str:
        """Connect, call ``ready`` with the tools (again when they change), stay until the server
        ends or ``stop``.

        Answers with a sentence that says why it ended. Everything is entered and left in this one
        task: the SDK's cancel scopes allow nothing else. Calls come from other tasks.
        """
        timeout = self.config.startup_timeout_sec
        watching: list[asyncio.Task[None]] = []
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + timeout) as self._scope:
                if self._stopped:
                    return "was stopped"
                async with await self._connected() as client:
                    tools = await self._list(client)
                    self._scope.deadline = math.inf
                    self._client, self.protocol = client, client.protocol_version
                    ready(tools)
                    watching += self._watch(client, ready)
                    await (self._child.ended if self._child else self._lost).wait()
            if self._stopped:
                return "was stopped"
            if self._client is None and self._scope.cancelled_caught:
                return self._explain(f"did not answer within {timeout:g} s of its start")
            return self._explain("ended")
        except Exception as error:
            return self._explain(reason(error, self.config, self._refusal))
        finally:
            self._client = None
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    @property
    def alive(self) -> bool:
        ended = self._child.ended if self._child else self._lost
        return self._client is not None and not ended.is_set()

    @property
    def transport(self) -> str:
        """Of a server over HTTP: ``http`` or ``sse``."""
        return self._remote.transport if self._remote else ""

    @property
    def stderr(self) -> str:
        return self._child.stderr() if self._child else ""

    def stop(self) -> None:
        """Make ``run`` return, also while it is still connecting."""
        self._stopped = True
        if self._scope is not None:
            self._scope.cancel()

    # --- calls ---

    async def call(self, name: str, arguments: dict[str, Any], caller: Caller) -> ToolResult:
        """Run a tool. Raises SessionLost; else only being cancelled is an exception."""
        if name == listing.LIST_RESOURCES and name in self._own:
            return await self._request(caller, self._listed)
        if name == listing.READ_RESOURCE and name in self._own:
            uri = str(arguments.get("uri", ""))
            return await self._request(caller, lambda _: self._read(uri), name)
        return await self._request(caller, lambda run: self._call(name, arguments, run), name)

    async def fetch(self, work: Callable[[Client], Awaitable[V]]) -> V:
        """Ask the server for something that is no call; raises ValueError with a sentence."""
        found: list[V] = []

        async def fetched(running: Running) -> ToolResult:
            found.append(await work(self._ready_client()))
            return ToolResult("")

        try:
            result = await self._request(Caller(), fetched)
        except SessionLost:
            result = self._failure("lost the session", T.CONNECTION_CLOSED)
        if not found:
            raise ValueError(result.text)
        return found[0]

    def _ready_client(self) -> Client:
        if self._client is None:
            raise MCPError(T.CONNECTION_CLOSED, "not connected")
        return self._client

    async def _request(
        self, caller: Caller, work: Callable[[Running], Awaitable[ToolResult]], name: str = ""
    ) -> ToolResult:
        config = self.config
        # A hand bounds its own time, more gently than by being cancelled.
        timeout = None if config.hand else config.timeout(name)
        running = Running(caller, timeout)
        output, current = emit.set(running.output), _running.set(running)
        self._running.append(running)
        try:
            async with running:
                result = await work(running)
            return self._results.noted(result, running.notes)
        except TimeoutError:
            return self._failure(f"did not answer within {timeout:g} s", T.REQUEST_TIMEOUT)
        except MCPError as error:
            return await self._refused(name, error)
        except ValidationError:
            return self._failure("gave a result that is not valid MCP", T.INTERNAL_ERROR)
        except RuntimeError as error:
            return self._failure(f"gave a wrong result: {str(error)[:2000]}", T.INTERNAL_ERROR)
        except SessionLost:
            raise
        except Exception as error:
            return self._failure(f"could not be called: {error}", T.INTERNAL_ERROR)
        finally:
            emit.reset(output)
            _running.reset(current)
            self._running.remove(running)

    async def _call(self, name: str, arguments: dict[str, Any], running: Running) -> ToolResult:
        result = await self._ready_client().call_tool(
            name, arguments, progress_callback=running.progress
        )
        content = [
            block.model_dump(mode="json", by_alias=True, exclude_none=True)
            for block in result.content
        ]
        # Megabytes to join and write; not on the event loop.
        return await asyncio.to_thread(
            self._results.of, content, result.structured_content, failed=bool(result.is_error)
        )

    async def _listed(self, running: Running) -> ToolResult:
        text = listing.listing(await listing.list_resources(self._ready_client()))
        return await asyncio.to_thread(self._results.of, [{"type": "text", "text": text}])

    async def _read(self, uri: str) -> ToolResult:
        blocks = await listing.read_resource(self._ready_client(), uri)
        return await asyncio.to_thread(self._results.of, blocks)

    async def _refused(self, name: str, error: MCPError) -> ToolResult:
        match error.code:
            case T.REQUEST_TIMEOUT:
                what = "did not answer in time"
            case T.CONNECTION_CLOSED:
                if self._child:
                    # How it ended is known a moment later.
                    with anyio.move_on_after(1):
                        await self._child.gone()
                self._lost.set()
                what = self._explain("ended before it answered")
            case T.INVALID_REQUEST if self._refusal == 404:
                self._lost.set()
                raise SessionLost
            case T.METHOD_NOT_FOUND | T.INVALID_PARAMS:
                what = f"refused the call of {name}: {error.message}"
            case T.URL_ELICITATION_REQUIRED:
                pages = UrlElicitationRequiredError.from_error(error.error).elicitations
                where = "; ".join(f"{page.message} {page.url}" for page in pages)
                what = f"wants the user to visit a page first: {where}"
            case _:
                what = f"answered with an error: {error.message}"
                if self._refusal in (401, 403):
                    what = reason(error, self.config, self._refusal)
        return self._failure(what, error.code)

    def _failure(self, what: str, code: int) -> ToolResult:
        return failure(f"the server {self.config.name} {what}", code)

    @property
    def _refusal(self) -> int | None:
        return self._remote.refusal if self._remote else None

    def _explain(self, what: str) -> str:
        return explain(what, self._child) if self._child else what

    # --- the connection ---

    async def _connected(self) -> Client:
        target: Any
        if self.config.hand:
            target = serve(self.config.hand)
        elif self._child:
            target = self._child.connect()
        else:
            guest = self.config.guest
            auth = None if guest else await stored_auth(self.config, self._around.tokens)
            sse = "sse" in (self._way, self.config.transport)
            self._remote = Remote(self.config, "sse" if sse else "http", auth)
            target = self._remote.connect()
        answers = Answers(self.config.name, self._around.roots, self._asked_by)
        return Client(
            target,
            mode="legacy" if self._way == "legacy" else "auto",
            cache=None,  # what has changed is read again when the server says so
            logging_callback=self._logged,
            log_level="info",
            message_handler=self._heard,
            elicitation_callback=answers.elicit,
            sampling_callback=answers.sample,
            list_roots_callback=answers.list_roots,
            client_info=T.Implementation(name="agent", version=version()),
        )

    async def _list(self, client: Client) -> list[Tool]:
        tools, self._own = await listing.list_tools(client, self.config.name)
        return [replace(tool, constrained=self.config.constrain) for tool in tools]

    def _watch(
        self, client: Client, ready: Callable[[list[Tool]], None]
    ) -> list[asyncio.Task[None]]:
        """Tasks that hear of changes and read the lists again."""
        if self.config.hand:
            return []
        tasks = [self._relist(client, ready)]
        offers = client.server_capabilities
        changing = (offers.tools, offers.prompts, offers.resources)
        if client.protocol_version >= MODERN and any(one and one.list_changed for one in changing):
            tasks.append(self._listen(client))
        return [asyncio.create_task(task) for task in tasks]

    async def _relist(self, client: Client, ready: Callable[[list[Tool]], None]) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(MCPError, ValueError):
                ready(await self._list(client))
            await asyncio.sleep(RELIST_PAUSE)

    async def _listen(self, client: Client) -> None:
        while True:
            try:
                async with client.listen(
                    tools_list_changed=True,
                    prompts_list_changed=True,
                    resources_list_changed=True,
                ) as on:
                    async for _ in on:
                        self._changed.set()
            except SubscriptionLost:
                self._changed.set()  # what was missed meanwhile
            except (MCPError, RuntimeError, TimeoutError):
                return  # it does not have it
            await asyncio.sleep(RELIST_PAUSE)

    def _asked_by(self) -> Running | None:
        """The call that a request of the server's belongs to: older versions do not say."""
        if (running := _running.get()) in self._running:
            return running
        # A guess must not show one conversation's question in another.
        if len({running.conversation for running in self._running}) != 1:
            return None
        return self._running[-1]

    async def _heard(self, message: Any) -> None:
        match message:
            case (
                T.ToolListChangedNotification()
                | T.PromptListChangedNotification()
                | T.ResourceListChangedNotification()
            ):
                self._changed.set()

    async def _logged(self, params: T.LoggingMessageNotificationParams) -> None:
        # A log message names no request; with several calls under way, all of them show it.
        text = params.data if isinstance(params.data, str) else str(params.data)
        for running in list(self._running):
            running.output("log", f"{text}\n")
