"""Chooses the version of MCP that a connection speaks.

The protocol has two eras: versions up to 2025-11-25 begin with a handshake (``initialize``), 2026-07-28
is stateless and begins with ``server/discover``. Many servers speak both and do less over the newer
one: ``ctx.elicit()`` of FastMCP 4 and of SDK 2 (Python and TypeScript) fails over it, because a server
can send no requests there. Their newer form of asking (``InputRequiredResult``) works over both, but
for FastMCP's own, for which a call is begun again (``NewerVersionError``). Measured in 2026-11.

So the older era is chosen where a server can ask questions in it: over stdio, and over HTTP where it
keeps sessions. That it does is seen by a GET without a session, which servers with sessions answer with
HTTP 400, and others with an empty stream or HTTP 405.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import mcp.types as T
from mcp import Client, MCPError
from mcp.client._probe import negotiate_auto
from mcp.client.session import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from tools.mcp import answers
from tools.mcp.mending import ResultMender

ASKS_REASON = "over newer versions it could ask no questions while a tool runs"
UNTRIED_REASON = (
    f"it was not asked for {MODERN_PROTOCOL_VERSIONS[-1]},"
    " over which it could ask no questions while a tool runs"
)
"""Reason for a server that has answered the handshake and may also support newer versions."""
FINAL_ERRORS = (T.CONNECTION_CLOSED, T.REQUEST_TIMEOUT)
"""Errors of the SDK in the handshake that say nothing about versions."""


async def _leave_result(name: str, result: T.CallToolResult) -> None:
    """In place of the SDK's comparison with the output schema, which drops results that do not fit."""


class NegotiatingClient(Client):
    """The SDK's client, with ``mode="legacy"`` as the beginning of the negotiation."""

    forced_version = ""
    """The version that the settings name; empty: the one that works best."""
    keeps_session: Callable[[], Awaitable[bool]] | None = None
    """Asks a server over HTTP whether it keeps sessions; None: it can always send requests."""
    reason = ""
    """Why the version was chosen: a clause."""
    mender: ResultMender
    _login_error: MCPError | None = None
    """The first refusal that asks for a login."""

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        session = await super()._build_session(exit_stack)
        send, handshake = session._dispatcher.send_raw_request, session.initialize

        async def send_raw_request(*args: Any, **settings: Any) -> dict[str, Any]:
            if args[0] == "server/discover" and self.forced_version:
                # The SDK waits 10 s and then tries an older version; a server may start for longer.
                args[2].pop("timeout", None)
            try:
                raw = await send(*args, **settings)
            except MCPError as error:
                if not answers.is_marked(error):
                    raise
                failure = answers.ServerError(error)
                if failure.challenge:
                    self._login_error = self._login_error or failure
                raise failure from None
            if session.discover_result is not None:
                # "Absent `resultType` is equivalent to 'complete'" (specification of 2026-07-28); the
                # SDK (2.3) takes such a result as invalid.
                raw.setdefault("resultType", "complete")
            self.mender.mend(args[0], raw, session.protocol_version or "2025-11-25")
            return raw

        async def initialize() -> Any:
            session.initialize = handshake  # type: ignore[method-assign]
            await self._negotiate(session)

        session._dispatcher.send_raw_request = send_raw_request  # type: ignore[method-assign]
        session.initialize = initialize  # type: ignore[method-assign]
        session.validate_tool_result = _leave_result  # type: ignore[method-assign]
        return session

    async def _negotiate(self, session: ClientSession) -> None:
        if self.forced_version:
            self.reason = self.reason or "as its settings say"
            if self.forced_version in MODERN_PROTOCOL_VERSIONS:
                await session.discover()
            else:
                await session.initialize()
        elif self.keeps_session is None:
            await self._shake_hands_or_discover(session)
        else:
            await self._discover_or_shake_hands(session, self.keeps_session)

    async def _shake_hands_or_discover(self, session: ClientSession) -> None:
        try:
            await session.initialize()
            self.reason = UNTRIED_REASON
        except MCPError as error:
            is_answer = isinstance(error, answers.ServerError)
            if error is self._login_error or (not is_answer and error.code in FINAL_ERRORS):
                raise
            try:
                await session.discover()
            except (MCPError, ValidationError, RuntimeError):
                raise error from None
            self.reason = "it refuses older versions"

    async def _discover_or_shake_hands(
        self, session: ClientSession, keeps_session: Callable[[], Awaitable[bool]]
    ) -> None:
        adopt, newer = session.adopt, list[T.DiscoverResult]()

        def adopt_later(result: T.InitializeResult | T.DiscoverResult) -> None:
            if isinstance(result, T.DiscoverResult):
                newer.append(result)
            else:
                adopt(result)

        session.adopt = adopt_later  # type: ignore[method-assign]
        try:
            await negotiate_auto(session)
            if not newer:
                self.reason = "it has no newer version"
            elif await keeps_session():
                await session.initialize()
                self.reason = ASKS_REASON
        except MCPError as error:
            if not newer:
                # A login that was demanded explains more than the answer to the handshake.
                raise self._login_error or error from None
        if newer and not self.reason:
            adopt(newer[-1])
            self.reason = "it keeps no session for older versions"
