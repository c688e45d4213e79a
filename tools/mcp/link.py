"""The way to one MCP server: its process or its HTTP requests, and what is known of why it fails."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import anyio

from tools.builtin_server import as_mcp_server
from tools.config.servers import ServerConfig
from tools.mcp.bearer_auth import BearerAuth
from tools.mcp.context import HostContext
from tools.mcp.diagnostics import describe_error, describe_exit, innermost
from tools.mcp.http import HttpTransport
from tools.mcp.login import LoginChallenge, LoginRequiredError, logs_in
from tools.mcp.start_wait import StartActivity
from tools.mcp.stdio import StdioTransport


class ServerLink:
    """The transport of one connection."""

    def __init__(self, config: ServerConfig, context: HostContext, *, sends_login: bool) -> None:
        """``sends_login``: whether requests have the token of a stored login."""
        self._config, self._context = config, context
        self._sends_login = sends_login and logs_in(config)
        self._auth: BearerAuth | None = None
        self._process = StdioTransport(config, context.sandbox) if config.command else None
        self.http: HttpTransport | None = None
        self.session_lost = asyncio.Event()
        self.was_ready = False
        """Whether the server has been connected."""

    def target(self, kind: Literal["http", "sse"]) -> Any:
        """Return what the SDK's client connects to. ``kind``: of a server that is reached by a URL."""
        config, context = self._config, self._context
        if config.builtin:
            return as_mcp_server(config.builtin)
        if self._process:
            return self._process.connect()
        if self._sends_login:
            self._auth = BearerAuth(config, context.credentials)
        turn = context.client_turn if config.client_network else None
        self.http = HttpTransport(config, kind, self._auth, turn)
        return self.http.connect()

    @property
    def ended(self) -> asyncio.Event:
        return self._process.ended if self._process else self.session_lost

    @property
    def transport(self) -> str:
        """``http`` or ``sse`` if the server is reached by a URL, else empty."""
        return self.http.kind if self.http else ""

    @property
    def stderr(self) -> str:
        return self._process.stderr() if self._process else ""

    @property
    def error_status(self) -> int | None:
        return self.http.error_status if self.http else None

    @property
    def cutoff_reason(self) -> str | None:
        transport = self._process or self.http
        return transport.cutoff_reason if transport else None

    def activity(self) -> StartActivity:
        transport = self._process or self.http
        return transport.activity() if transport else StartActivity(None)

    async def lose_session(self) -> None:
        """Note that the connection has been closed; the reason of a process's end is known a moment
        later."""
        if self._process:
            with anyio.move_on_after(1):
                await self._process.wait_exited()
        self.session_lost.set()

    @property
    def keeps_no_session(self) -> bool:
        return self.http is not None and self.http.kind == "http" and not self.http.has_session

    @property
    def refuses_sse(self) -> bool:
        """Whether the older transport is not spoken: its GET fails, but not for a login or address."""
        status = self.error_status
        return status is not None and 400 <= status < 500 and status not in (401, 403, 404)

    def cutoff_sentence(self, error: BaseException) -> str | None:
        """Return what is wrong, if the error is about an HTTP response that was cut off."""
        reason = self.http.cutoff_reason if self.http else None
        return f"was cut off: {reason}" if reason and reason in str(innermost(error)) else None

    def describe_exit(self, reason: str) -> str:
        if self._process is None:
            return reason
        return describe_exit(reason, self._process, was_ready=self.was_ready)

    def find_challenge(self, error: BaseException) -> LoginChallenge | None:
        return self.http.challenges.find(innermost(error)) if self.http else None

    def describe_challenge(self, challenge: LoginChallenge) -> str:
        if self.has_scope(challenge):
            scope = " and ".join(challenge.scope.split())
            return f"refuses this, though the login has the scope {scope} (HTTP 403)"
        return describe_error(
            LoginRequiredError(challenge), self._config, challenge.status, challenge
        )

    def has_scope(self, challenge: LoginChallenge) -> bool:
        """Return whether a login has the scope already without which the server refuses a request."""
        scopes = set(challenge.scope.split()) if challenge.status == 403 else set()
        return bool(scopes) and self._auth is not None and scopes <= self._auth.granted_scopes

    async def reload_login(self) -> None:
        if self._auth is not None:
            await self._auth.reload()
