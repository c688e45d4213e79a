"""One server: its settings, its state, and the task that keeps it running."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from tools.config.servers import ServerConfig
from tools.mcp.context import Around
from tools.results import encodable
from tools.sanitize import clean
from tools.types import ServerState, Tool

if TYPE_CHECKING:
    from tools.mcp.connection import Connection, Way

log = logging.getLogger(__name__)

BACKOFF = (0.5, 60.0)
"""Seconds before the first restart, and at most: it doubles each time."""
HEALTHY = 30.0
"""A server that ran for so many seconds starts again at the first step."""


class Server:
    """``start()`` it; it is connected again and again until ``close()``."""

    def __init__(self, config: ServerConfig, around: Around) -> None:
        self.config, self._around = config, around
        self._tools: list[Tool] = list(config.hand.tools) if config.hand else []
        self._connection: Connection | None = None
        self._ready = False
        self._reached = False
        """It was ready once, this way."""
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._again = False
        """Somebody wants another connection at once."""
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
            transport=self._transport,
        )

    @property
    def _transport(self) -> str:
        config = self.config
        if config.url is not None:
            return (self._connection and self._connection.transport) or config.transport or "http"
        return "built in" if config.hand is not None else "stdio"

    async def wait(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settled.wait(), seconds)

    def start(self) -> None:
        possible = self.config.enabled and not self.config.problem
        if self._task is None and not self._closing and possible:
            self._task = asyncio.create_task(self._own(), name=f"mcp {self.config.name}")

    def want(self) -> None:
        """Start it; its connection is needed soon."""
        self.start()
        self._wanted.set()

    def restart(self) -> None:
        """Connect anew, whatever became of the connection before."""
        if self.config.problem or self._closing or self.config.hand is not None:
            return
        self.config = replace(self.config, enabled=True)
        self._ready, self.error = False, None
        self.settled.clear()
        if self._task is None:
            self.start()
            return
        self._again = True
        self._wanted.set()
        if self._connection is not None:
            self._connection.stop()

    async def connection(self) -> Connection | None:
        """The live connection; while it starts, once it has; None where that fails."""
        self.start()
        if self._task is None or self._closing:
            return None
        if self._ready and not self._alive():
            await self._outcome()  # it has just ended, and its owner is about to say so
        if not self._ready:
            self.want()  # also cuts a wait between two attempts short
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
                await self._wanted.wait()
                if self._closing:
                    return
            # The SDK's import takes half a second; the first to be connected pays in a thread.
            module = await asyncio.to_thread(import_module, "tools.mcp.connection")
            delay = BACKOFF[0]
            ways = itertools.cycle(_ways(self.config))
            way = next(ways)
            while not self._closing:
                self._again = False
                self._connection = module.Connection(self.config, self._around, way)
                began = asyncio.get_running_loop().time()
                reason = await self._connection.run(self._publish)
                self._stderr = self._connection.stderr or self._stderr
                if self._again:
                    delay = BACKOFF[0]
                    continue
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
        for tell in self._around.listeners:
            tell(self.config.name)

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
