"""Access to the server: spellings of paths, requests' ids, API keys, local host names, web origins."""

import ipaddress
import re
from collections.abc import Awaitable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.server.http.clients import CLIENT_SCOPE_KEY, Client, Clients, act_for
from agent.server.http.errors import ApiError
from agent.server.http.json_response import error_response
from agent.util.ids import new_id

_ROOT = (
    r"(?:responses|chat/completions|completions|messages|models|embeddings|conversations|files|batches)"
    r"(?:/|\Z)"
)
_WITHOUT_VERSION = re.compile(f"/{_ROOT}")
_BEFORE_VERSION = re.compile(rf"\A(?:(?:/v1)+(?=/v1(?:/|\Z))|.+(?=/v1/{_ROOT}))")
PATHS_WITHOUT_KEY = frozenset({"/", "/health", "/page/app.js", "/page/style.css"})
"""Paths for probes without a key (whether the server runs, and is ready), and the page's files."""


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
        if (path := intended_path(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}

        def accept_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "websocket.accept":
                message["headers"] = [*message.get("headers", ()), *request_id_headers()]
            return send(message)

        is_socket = scope["type"] == "websocket"
        await self._app(scope, receive, accept_with_id if is_socket else send)


def is_loopback(host: str) -> bool:
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class AccessMiddleware:
    """Refuses requests before the application sees them. A web page can make a browser send requests
    here, also under its own host name (DNS rebinding): a server on loopback answers only requests to
    loopback's names (``Host``), and of pages (``Origin``) only its own and those that were allowed."""

    def __init__(
        self, app: ASGIApp, *, clients: Clients, loopback_only: bool, origins: Collection[str]
    ) -> None:
        """``origins``: web pages that may use the server, as ``https://host``."""
        self._app, self._loopback_only = app, loopback_only
        self._clients = clients
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            act_for(self._check(scope, Headers(scope=scope)))
        except ApiError as error:
            await error_response(error, scope)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope, headers: Headers) -> Client:
        """The client of a request. Raises ApiError."""
        inside: Client | None = scope.get(CLIENT_SCOPE_KEY)
        if inside is not None:
            return inside
        host = headers.get("host", "")
        if self._loopback_only and not is_loopback(_hostname(host)):
            message = (
                f"This server answers to local names only, not to {host[:80]!r}: start it with"
                " --host 0.0.0.0 and --api-key KEY to have it answer to others."
            )
            raise ApiError(403, message, code="host_not_allowed")
        origins = headers.getlist("origin")
        own = (f"http://{host}".lower(), f"https://{host}".lower())
        allowed = all(each.lower() in (*self._origins, *own) for each in origins)
        if len(origins) > 1 or not allowed:
            message = "Pages of this origin may not use this server; --allow-origin allows them."
            raise ApiError(403, message, code="origin_not_allowed")
        for key in _sent_keys(headers):
            client = self._clients.with_key(key.strip().encode("latin-1", "replace"))
            if client is not None:
                return client
        if scope["path"] in PATHS_WITHOUT_KEY:
            return Client(has_unowned=False)
        message = "Incorrect or missing API key; send it in the header Authorization or x-api-key."
        raise ApiError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def _sent_keys(headers: Headers) -> tuple[str, str]:
    """The keys of a request; a client of Anthropic's API may have two, of which either is enough."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
