"""One MCP server of a host: its settings, its state, and the task that keeps it connected.

``_supervise`` runs as a task from ``start`` to ``close`` and makes one ``Connection`` after the
other::

                      _on_ready(tools)
      ┌▶ connecting ───────────────────▶ ready ◀┐ _on_ready(tools): its tools have changed
      │    │   │ the server has ended     │   └─┘
      │    │   ▼                          │ the server has ended
      │    │  failed ◀────────────────────┘
      │    │   │
      └────┼───┘ after the backoff, or at once by connect_soon()
           └▶ connecting, in another mode

    restart()  from every state: connecting, at once
    close()    from every state: closed, for good

A built-in server waits before its first ``connecting`` until ``connect_soon``: its tools are known
without a connection, so a process that never calls them never imports the SDK.

**Modes.** Until a server has been ready once, each attempt takes the next of ``connect_modes``. A
URL whose transport is not configured is tried as streamable HTTP and then, at once and without
counting as failed, as SSE, unless it has asked for a login. Other servers are tried with the
handshake of older versions, and after the backoff without it ("newest"), for a server may end when it
is sent what it does not know.

**Events.** ``start_decided``: the start is decided, well or badly (stays set until ``restart``).
``_state_changed``: pulsed for those who wait in ``live_connection``. ``_wake``: ends the wait for
the first need of a built-in server, and the backoff.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from agent.errors import system_refusal
from tools.config.servers import ServerConfig, names_tool
from tools.mcp.context import HostContext
from tools.mcp.login import LoginChallenge, LoginError
from tools.mcp.start_wait import StartActivity, StartWait
from tools.results import replace_surrogates
from tools.sanitize import clean_text
from tools.types import ConnectionStatus, ServerState, Tool

if TYPE_CHECKING:
    from tools.mcp.connection import Connection, ConnectMode

log = logging.getLogger(__name__)

MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 60.0
"""Pause before the first restart, and the longest one: it doubles each time."""
ACTIVITY_CHECK_SECONDS = 0.2
"""Interval at which a turn checks the activity of a server that it waits for."""
HEALTHY_SECONDS = 30.0
"""Duration of a connection after which the backoff is reset to its minimum."""


class McpServer:
    """Keeps one server connected from ``start`` to ``close``."""

    def __init__(self, config: ServerConfig, context: HostContext) -> None:
        self.config, self._context = config, context
        self._tools: list[Tool] = list(config.builtin.tools) if config.builtin else []
        self._connection: Connection | None = None
        self._was_ready = False
        """Whether the current mode has ever worked."""
        self._task: asyncio.Task[None] | None = None
        self._ready = self._closing = self._restarting = self._needs_newest = False
        self._state_changed, self._wake = asyncio.Event(), asyncio.Event()
        self.start_decided = asyncio.Event()
        self.error: str | None = config.problem
        self.challenge: LoginChallenge | None = None
        """The login that it wants before it can be connected."""
        self.login_turn = asyncio.Lock()
        """Held while the person is asked for a login."""
        self.login_answers: tuple[bool, ...] = ()
        """For each time that the person was asked for a login: whether it was done."""
        self._stderr = ""
        if not config.enabled or config.problem:
            self.start_decided.set()

    def problem(self) -> str | None:
        """Return why nothing of the server can be called; None if it can, or is starting."""
        if not self.config.enabled:
            return "is disabled"
        if self.config.builtin is not None and not self._closing:
            return self.config.builtin.problem()
        return None if self._ready else self.error

    def offered_tools(self) -> list[Tool]:
        """Return the tools that the settings let the model see, as the server last listed them."""
        if not self.config.enabled or (self.config.builtin and self.config.builtin.problem()):
            return []
        return [tool for tool in self._tools if self.config.offers(tool.name)]

    @property
    def status(self) -> ConnectionStatus:
        if not self.config.enabled:
            return "disabled"
        if self.problem() is not None:
            return "failed"
        return "starting" if self.config.builtin is None and not self._ready else "ready"

    def state(self) -> ServerState:
        config, status = self.config, self.status
        error = self.problem() if status == "failed" else None
        names = [tool.name for tool in self._tools]
        enabled = config.enabled_tools or ()
        absent = [tool for tool in enabled if not any(names_tool([tool], name) for name in names)]
        if status == "ready" and absent:
            error = f"has no tool {', '.join(sorted(absent))}"
        tools = [clean_text(tool.name) for tool in self.offered_tools()]
        connection = self._connection
        transport = "built in" if config.builtin is not None else "stdio"
        if config.url is not None:
            transport = (connection and connection.transport.kind) or config.transport or "http"
        return ServerState(
            config.name,
            status,
            tools,
            error and replace_surrogates(error),
            config.required,
            protocol=connection.protocol if connection and self._ready else "",
            protocol_reason=connection.protocol_reason if connection and self._ready else "",
            stderr=replace_surrogates((connection and connection.transport.stderr) or self._stderr),
            transport=transport,
            needs_login=status == "failed" and self.challenge is not None,
            refused=status == "failed" and connection is not None and connection.refused,
            skipped=connection.skipped if connection and self._ready else {},
        )

    async def wait_idle(self, seconds: float | None) -> None:
        """Wait until its start is decided, as StartWait says; ``seconds``: None: no limit."""
        wait, clock = StartWait(), asyncio.get_running_loop().time
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.start_decided.is_set():
                    if wait.is_exhausted(await self._activity(), clock()):
                        return
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.start_decided.wait(), ACTIVITY_CHECK_SECONDS)

    async def _activity(self) -> StartActivity:
        if self._connection is None:
            return StartActivity(object())  # the SDK is being imported
        return await asyncio.to_thread(self._connection.activity)

    def start(self) -> None:
        """Start the supervisor task, unless it runs already or the server is not usable."""
        possible = self.config.enabled and not self.config.problem
        if self._task is None and not self._closing and possible:
            self._task = asyncio.create_task(self._supervise(), name=f"mcp {self.config.name}")

    def connect_soon(self) -> None:
        self.start()
        self._wake.set()

    def use_newest_version(self) -> None:
        """Connect again with the newest version of the protocol; it stays so until the process ends."""
        self._needs_newest = True
        self.restart()

    def restart(self) -> None:
        """Connect again, whatever became of the connection before; enables a disabled server."""
        if self.config.problem or self._closing or self.config.builtin is not None:
            return
        self.config = replace(self.config, enabled=True)
        self._ready, self.error, self.challenge = False, None, None
        self.start_decided.clear()
        if self._task is None:
            self.start()
            return
        self._restarting = True
        self._wake.set()
        if self._connection is not None:
            self._connection.stop()

    async def live_connection(self) -> Connection | None:
        """Return the connection, waiting while it is being made; None if that fails."""
        self.start()
        if self._task is None or self._closing:
            return None
        if self._ready and not (self._connection and self._connection.alive):
            await self._wait_state_change()  # it has just ended; the supervisor is about to see
        if not self._ready:
            self.connect_soon()
            await self._wait_state_change()
        return None if self.problem() else self._connection

    async def _wait_state_change(self) -> None:
        if not self._closing:
            self._state_changed.clear()
            await self._state_changed.wait()

    async def close(self) -> None:
        """End the connection for good, and with it the server's process."""
        self._closing = True
        self._wake.set()
        if self._connection is not None:
            self._connection.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
        self.error = self.error or "is closed"
        self.start_decided.set()
        if self.config.builtin is not None:
            await self.config.builtin.close()

    async def _supervise(self) -> None:
        try:
            if self.config.builtin is not None:
                await self.config.builtin.start()
                self.start_decided.set()  # its definitions were known from the beginning
                await self._wake.wait()
                if self._closing:
                    return
            # The SDK's import takes half a second; the first to be connected pays in a thread.
            module = await asyncio.to_thread(import_module, "tools.mcp.connection")
            delay = MIN_BACKOFF_SECONDS
            modes = itertools.cycle(connect_modes(self.config))
            mode, first_reason = next(modes), ""
            while not self._closing:
                self._restarting = False
                if self._needs_newest:
                    mode = "newest"
                self._connection = module.Connection(self.config, self._context, mode)
                began = asyncio.get_running_loop().time()
                reason = await self._connection.run(self._on_ready)
                self._stderr = self._connection.transport.stderr or self._stderr
                if self._restarting:
                    delay = MIN_BACKOFF_SECONDS
                    continue
                self.challenge = self._connection.challenge
                understood = self._connection.refused or self._connection.transport.cutoff_reason
                tries_sse = self.config.tries_sse and not understood
                if not self._was_ready and mode == "" and tries_sse:
                    # At once: it is still the same start.
                    mode, first_reason = next(modes), reason
                    continue
                if mode == "sse" and self._connection.transport.refuses_sse:
                    reason = first_reason or reason
                if not self._was_ready and not self._connection.refused:
                    mode = next(modes)
                self._on_failed(reason)
                if asyncio.get_running_loop().time() - began > HEALTHY_SECONDS:
                    delay = MIN_BACKOFF_SECONDS
                if not self._closing:
                    self._wake.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), delay)
                delay = min(delay * 2, MAX_BACKOFF_SECONDS)
        except Exception as error:
            log.exception("%s", self.config.name)
            self._on_failed(f"failed: {system_refusal(error) or error}")
        finally:
            self._closing = True
            self._connection = None
            self._mark_started()

    async def probe_login(self) -> LoginChallenge | None:
        """Connect once without a stored login; the login that it wants, if any. Raises LoginError."""
        make = (await asyncio.to_thread(import_module, "tools.mcp.connection")).Connection
        reason = ""
        for mode in connect_modes(self.config):
            connection: Connection = make(self.config, self._context, mode, login=False)
            reason = await connection.probe()
            if connection.protocol or connection.challenge:
                return connection.challenge
        raise LoginError(f"the server {self.config.name} {reason}")

    async def on_logged_in(self) -> None:
        if self._connection is not None and self._ready:
            if auth := self._connection.transport.auth:
                await auth.reload()
        elif self._task is not None:
            self.restart()

    def _on_ready(self, tools: list[Tool]) -> None:
        # A built-in server's definitions are its own, with the names the model was trained on.
        if self.config.builtin is None:
            self._tools = tools
        self._ready = self._was_ready = True
        self.error = None
        self._mark_started()
        for listener in self._context.listeners:
            listener(self.config.name)

    def _on_failed(self, reason: str) -> None:
        if not self._closing:
            log.warning("MCP server %s %s", self.config.name, reason)
        self._ready, self.error = False, reason
        self._mark_started()
        if self.challenge is not None and not self._closing:
            for listener in self._context.login_listeners:
                listener(self.config.name)

    def _mark_started(self) -> None:
        self.start_decided.set()
        self._state_changed.set()


def connect_modes(config: ServerConfig) -> tuple[ConnectMode, ...]:
    """Return the modes to try in turn; "" is over streamable HTTP if by URL."""
    if config.tries_sse:
        return ("", "sse")
    return ("",) if config.builtin or config.url or config.protocol else ("", "newest")
