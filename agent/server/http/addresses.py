"""Requests by their addresses: the spellings of a path that clients send, and each request's id."""

from __future__ import annotations

import re
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.server.http.errors import ApiError
from agent.server.http.json_response import error_response
from agent.util.ids import new_id

_API_ROOTS = (
    "responses",
    "chat/completions",
    "completions",
    "messages",
    "models",
    "embeddings",
    "conversations",
    "files",
    "batches",
)
_ROOT = rf"(?:{'|'.join(_API_ROOTS)})(?:/|\Z)"
_WITHOUT_VERSION = re.compile(f"/{_ROOT}")
_BEFORE_VERSION = re.compile(rf"\A(?:(?:/v1)+(?=/v1(?:/|\Z))|.+(?=/v1/{_ROOT}))")


def request_id_headers() -> list[tuple[bytes, bytes]]:
    """Return the headers with a new request's id: OpenAI's and Anthropic's."""
    name = new_id("req").encode()
    return [(b"x-request-id", name), (b"request-id", name)]


def intended_path(path: str) -> str:
    """Return the path that is meant: one ``/v1``, single slashes, none at the end. Base URLs lack or
    double ``/v1``, have a path before it (``/api``), or end in an endpoint."""
    path = re.sub(r"//+", "/", path)
    if len(path) > 1:
        path = path.removesuffix("/")
    path = _BEFORE_VERSION.sub("", path)
    return f"/v1{path}" if _WITHOUT_VERSION.match(path) else path


class AddressMiddleware:
    """ASGI middleware that corrects a request's path, and gives a WebSocket an ``x-request-id`` (other
    answers get it where their head is written, in `agent.server.http.connections`). It refuses a body
    with two lengths, and closes the connection: a proxy may take the other one, and read different
    requests (request smuggling; RFC 9112, section 6.3)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            message = "A request has either a Content-Length or a Transfer-Encoding."
            error = ApiError(400, message, code="bad_framing", headers={"connection": "close"})
            await error_response(error, scope)(scope, receive, send)
            return
        path = intended_path(scope["path"])
        if path != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        if scope["type"] == "http":
            await self._app(scope, receive, send)
            return

        def accept_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "websocket.accept":
                message["headers"] = [*message.get("headers", ()), *request_id_headers()]
            return send(message)

        await self._app(scope, receive, accept_with_id)
