"""The connection to an MCP server over HTTP: streamable HTTP, or the older SSE transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, cast

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from tools.config.servers import ServerConfig
from tools.mcp.challenge import Challenges
from tools.mcp.http_bodies import BoundedBody, LargeMessages, content_type
from tools.mcp.limits import bound_message
from tools.mcp.start_wait import StartActivity
from tools.safe_fetch import ALL_NETWORKS, GuardedTransport

CONNECT_SECONDS = 30.0
"""Timeout of the network's part of a request; a call's own timeout is CallScope's affair."""


class HttpTransport:
    """One connection to a server's URL."""

    def __init__(
        self,
        config: ServerConfig,
        kind: Literal["http", "sse"],
        auth: httpx2.Auth | None,
        shared_turn: asyncio.Lock | None = None,
    ) -> None:
        self._shared_turn = shared_turn
        self._config, self.kind, self._auth = config, kind, auth
        self.error_status: int | None = None
        """The last HTTP status that was an error."""
        self.has_session = False
        """Whether the server has begun a session, in which it can send requests of its own."""
        self.challenges = Challenges()
        self._connected: httpx2.AsyncClient | None = None
        self.cutoff_reason: str | None = None
        """Why the last answer that was cut off was cut off."""
        self._large_messages = LargeMessages()
        self._responses = 0

    def activity(self) -> StartActivity:
        return StartActivity(None, self._responses)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        assert self._config.url is not None
        if self.kind == "sse":
            async with sse_client(
                self._config.url,
                headers=dict(self._config.headers),
                timeout=CONNECT_SECONDS,
                sse_read_timeout=None,  # type: ignore[arg-type]  # httpx's word for: no limit
                httpx_client_factory=self._client,
                auth=self._auth,
            ) as (incoming, outgoing):
                yield _BoundedReceiver(incoming, self._large_messages), outgoing
        else:
            client = self._client(
                dict(self._config.headers), httpx2.Timeout(CONNECT_SECONDS, read=None), self._auth
            )
            self._connected = client
            async with (
                client,
                streamable_http_client(
                    self._config.url, http_client=client, max_sse_event_size=None
                ) as (incoming, outgoing),
            ):
                yield _BoundedReceiver(incoming, self._large_messages), outgoing

    async def keeps_session(self) -> bool:
        """Ask whether the server keeps sessions, which versions up to 2025-11-25 may have."""
        assert self._config.url is not None and self._connected is not None
        headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        try:
            async with self._connected.stream(
                "GET", self._config.url, headers=headers, timeout=CONNECT_SECONDS
            ) as response:
                return response.status_code == 400  # there is a session missing
        except httpx2.HTTPError:
            return False

    def _client(
        self,
        headers: dict[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Make the HTTP client; one for a client's server checks each address it connects to."""
        network = self._config.client_network
        allowed = () if network == "public" else ALL_NETWORKS
        return _Client(
            self._inspect,
            transport=GuardedTransport(allowed) if network else None,
            trust_env=not network,
            headers=headers,
            timeout=timeout or httpx2.Timeout(CONNECT_SECONDS),
            auth=auth,
            event_hooks={"response": [self._bound_response]},
        )

    async def _inspect(self, response: httpx2.Response) -> httpx2.Response:
        """Look at the answer to a request, after a renewed token, say; return what stands for it."""
        self._responses += 1
        self.has_session = self.has_session or "mcp-session-id" in response.headers
        if response.status_code >= 400:
            self.error_status = response.status_code
        if (refusal := self.challenges.replace(response)) is None:
            return response
        await response.aclose()
        return refusal

    async def _bound_response(self, response: httpx2.Response) -> None:
        timeouts = (self._config.tool_timeout_sec, *self._config.tool_timeouts.values())
        seconds = max(self._config.startup_timeout_sec, *timeouts)
        response.stream = BoundedBody(
            response, seconds, self._large_messages, self._cut_off, self._shared_turn
        )
        # The body is decoded there, and MCP's text is UTF-8.
        for name in ("Content-Encoding", "Content-Length"):
            response.headers.pop(name, None)
        if "Content-Type" in response.headers:
            response.headers["Content-Type"] = content_type(response)

    def _cut_off(self, reason: str) -> None:
        self.cutoff_reason = reason


class _Client(httpx2.AsyncClient):
    """Passes each answer through a function, after all that authentication has sent for it."""

    def __init__(
        self, inspect: Callable[[httpx2.Response], Awaitable[httpx2.Response]], **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._inspect = inspect

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        return await self._inspect(await super().send(request, **settings))


class _BoundedReceiver:
    """The SDK's stream of messages: large ones put back, each shortened by ``bound_message``."""

    def __init__(self, stream: Any, large_messages: LargeMessages) -> None:
        self._stream, self._large_messages = stream, large_messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._stream.receive()
            if not isinstance(item, SessionMessage):
                return cast(Exception, item)
            self._large_messages.restore(item.message)
            if message := bound_message(item):
                return message

    def __aiter__(self) -> _BoundedReceiver:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _BoundedReceiver:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()
