"""The way to one MCP server, and what is known of why it fails."""

import asyncio
from typing import Any, Literal

from tools.builtin_server import as_mcp_server
from tools.config.servers import ServerConfig
from tools.mcp.bearer_auth import BearerAuth
from tools.mcp.diagnostics import describe_refusal, innermost
from tools.mcp.login import LoginChallenge
from tools.mcp.start_wait import StartActivity


class Transport:
    """The transport of one connection; this one reaches a built-in server, in memory."""

    kind: Literal["", "http", "sse"] = ""
    """http or sse: the server is reached by a URL."""
    error_status: int | None = None
    """The last HTTP status that was an error."""
    cutoff_reason: str | None = None
    """Why we cut off the server, or its last answer that was: a clause."""
    was_ready = False
    """Whether the server has been connected."""
    keeps_no_session = False
    """Whether the server cannot send requests of its own."""
    auth: BearerAuth | None = None
    """The login that requests are sent with."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.ended = asyncio.Event()
        """Set when the connection cannot be used any more."""

    def connect(self) -> Any:
        """Return what the SDK's client connects to."""
        assert self.config.builtin is not None
        return as_mcp_server(self.config.builtin)

    @property
    def stderr(self) -> str:
        return ""

    def activity(self) -> StartActivity:
        return StartActivity(None)

    async def lose_session(self) -> None:
        """Take note that the connection was closed; the reason may be known a moment later."""
        self.ended.set()

    @property
    def refuses_sse(self) -> bool:
        """Whether the older transport is not spoken: its GET fails, but not for a login or address."""
        status = self.error_status
        return status is not None and 400 <= status < 500 and status not in (401, 403, 404)

    def cutoff_sentence(self, error: BaseException) -> str | None:
        """Return what is wrong, if the error is about an HTTP response that was cut off."""
        reason = self.cutoff_reason
        return f"was cut off: {reason}" if reason and reason in str(innermost(error)) else None

    def describe_exit(self, reason: str) -> str:
        """Complete why the server cannot be used, the predicate of a sentence."""
        return reason

    def describe_challenge(self, challenge: LoginChallenge) -> str:
        if self.has_scope(challenge):
            scope = " and ".join(challenge.scope.split())
            return f"refuses this, though the login has the scope {scope} (HTTP 403)"
        return describe_refusal(self.config, challenge.status, challenge)

    def has_scope(self, challenge: LoginChallenge) -> bool:
        """Return whether a login has the scope already without which the server refuses a request."""
        scopes = set(challenge.scope.split()) if challenge.status == 403 else set()
        return bool(scopes) and self.auth is not None and scopes <= self.auth.granted_scopes
