"""The connection to an MCP server over HTTP: streamable HTTP, or the older SSE transport."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any, Literal, cast

import httpx2
import mcp.types as T
from anyio.abc import ObjectReceiveStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from tools.config.servers import ServerConfig
from tools.mcp import answers
from tools.mcp.bearer_auth import BearerAuth, read_challenge
from tools.mcp.diagnostics import innermost
from tools.mcp.http_bodies import BoundedBody, LargeMessages, content_type
from tools.mcp.limits import bound_message
from tools.mcp.login import LoginChallenge
from tools.mcp.start_wait import StartActivity
from tools.mcp.transport import Transport
from tools.safe_fetch import ALL_NETWORKS, GuardedTransport
from tools.version import program_version

CONNECT_SECONDS = 30.0
"""Timeout of the network's part of a request; a call's own timeout is CallScope's affair."""
ERROR_BODY_SECONDS = 5.0
"""Time for the body of an HTTP error, which is only read for its words."""


class HttpTransport(Transport):
    """One connection to a server's URL."""

    def __init__(
        self,
        config: ServerConfig,
        kind: Literal["http", "sse"],
        auth: BearerAuth | None,
        shared_turn: asyncio.Lock | None = None,
    ) -> None:
        super().__init__(config)
        self._shared_turn = shared_turn
        self.kind, self.auth = kind, auth
        self.keeps_no_session = kind == "http"
        self._connected: httpx2.AsyncClient | None = None
        self._large_messages = LargeMessages()
        self._responses = 0

    def activity(self) -> StartActivity:
        return StartActivity(None, self._responses)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        assert self.config.url is not None
        if self.kind == "sse":
            async with sse_client(
                self.config.url,
                headers=dict(self.config.headers),
                timeout=CONNECT_SECONDS,
                sse_read_timeout=None,  # type: ignore[arg-type]  # httpx's word for: no limit
                httpx_client_factory=self._client,
                auth=self.auth,
            ) as (incoming, outgoing):
                yield _BoundedReceiver(incoming, self._large_messages), outgoing
        else:
            timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
            client = self._client(dict(self.config.headers), timeout, self.auth)
            self._connected = client
            async with (
                client,
                streamable_http_client(
                    self.config.url, http_client=client, max_sse_event_size=None
                ) as (incoming, outgoing),
            ):
                yield _BoundedReceiver(incoming, self._large_messages), outgoing

    async def keeps_session(self) -> bool:
        """Ask whether the server keeps sessions, which versions up to 2025-11-25 may have."""
        assert self.config.url is not None and self._connected is not None
        headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        try:
            async with self._connected.stream(
                "GET", self.config.url, headers=headers, timeout=CONNECT_SECONDS
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
        network = self.config.client_network
        named = httpx2.Headers({"User-Agent": f"agent/{program_version()}"})
        named.update(headers)
        allowed = () if network == "public" else ALL_NETWORKS
        return _Client(
            self._inspect,
            transport=GuardedTransport(allowed) if network else None,
            trust_env=not network,
            headers=named,
            timeout=timeout or httpx2.Timeout(CONNECT_SECONDS),
            auth=auth,
            event_hooks={"response": [self._bound_response]},
        )

    async def _inspect(self, response: httpx2.Response) -> httpx2.Response:
        """Look at the answer to a request, after a renewed token, say; return what stands for it."""
        self._responses += 1
        if "mcp-session-id" in response.headers:
            self.keeps_no_session = False
        if response.status_code < 400:
            return response
        self.error_status = response.status_code
        if challenge := read_challenge(response):
            error = T.ErrorData(code=T.INTERNAL_ERROR, message="requires a login")
            answers.from_server(error, challenge=asdict(challenge))
        else:
            body = b""
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                body = await response.aread()
            error = answers.http_error(response, body)
        await response.aclose()
        if self.kind == "sse" and response.request.method == "POST":
            # No answer to it comes on the stream of events, and the SDK ends its writer.
            words = f": {error.message}" if error.message else ""
            self._cut_off(f"it answered with HTTP {response.status_code}{words}")
            self.ended.set()
        return _stand_in(response, error)

    async def _bound_response(self, response: httpx2.Response) -> None:
        timeouts = (self.config.tool_timeout_sec, *self.config.tool_timeouts.values())
        seconds, request_id = max(self.config.startup_timeout_sec, *timeouts), None
        if response.status_code >= 400:
            seconds = min(seconds, ERROR_BODY_SECONDS)
        elif self.kind == "http":
            request_id = _request_id(response.request)
        response.stream = BoundedBody(
            response, seconds, self._large_messages, self._cut_off, self._shared_turn, request_id
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


class _BoundedReceiver(ObjectReceiveStream[SessionMessage | Exception]):
    """The SDK's stream of messages: large ones put back, each shortened by ``bound_message``."""

    def __init__(self, stream: Any, large_messages: LargeMessages) -> None:
        self._stream, self._large_messages = stream, large_messages

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._stream.receive()
            if not isinstance(item, SessionMessage):
                return cast(Exception, item)
            self._large_messages.restore(item.message)
            if message := bound_message(item):
                return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def last_context(self) -> Any:
        """The context of the request that the last message belongs to, which the SDK reads."""
        return getattr(self._stream, "last_context", None)


def find_challenge(error: BaseException) -> LoginChallenge | None:
    """Return the login that a failed request needs."""
    match innermost(error):
        case httpx2.HTTPStatusError(response=response):  # of the SSE transport
            return read_challenge(response)
        case answers.ServerError(challenge=challenge):
            return challenge
    return None


def _stand_in(response: httpx2.Response, error: T.ErrorData) -> httpx2.Response:
    """Return a JSON-RPC error in place of an HTTP error, which the SDK raises in the failed request."""
    headers = {"Content-Type": "application/json"}
    if asked := response.headers.get("WWW-Authenticate"):
        headers["WWW-Authenticate"] = asked
    return httpx2.Response(
        response.status_code,
        headers=headers,
        content=json.dumps({"jsonrpc": "2.0", "id": None, "error": error.model_dump(mode="json")}),
        request=response.request,
        extensions={"words": error.message},
    )


def _request_id(request: httpx2.Request) -> Any:
    """Return the id of the JSON-RPC request that an HTTP request sends; None: it sends none."""
    if request.method != "POST" or request.headers.get("Content-Type") != "application/json":
        return None  # it opens the stream of a session, or is one of a login
    message = json.loads(request.content)
    return message.get("id") if "method" in message else None
