"""Who may talk to the server: a key where one is set, no foreign web pages, no endless bodies."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.server.errors import ApiError, too_long

OPEN = frozenset({"/health"})
"""Paths that need no key."""


def is_loopback(host: str) -> bool:
    """Whether this name or address means this machine only."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware.

    A web page can make a browser send requests to this machine, also under the page's own name (DNS
    rebinding). So a server on loopback answers only to loopback's names, and a browser's request
    from a page (it has an Origin) only where that page is the server's own or was allowed.
    """

    def __init__(
        self, app: ASGIApp, *, key: str | None, local: bool, origins: Collection[str]
    ) -> None:
        """``local``: bound to loopback. ``origins``: pages that may use it (``https://host``)."""
        self._app, self._local = app, local
        self._key = key.encode() if key else None
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope["path"], Headers(scope=scope))
        except ApiError as error:
            await error.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._local and not is_loopback(_hostname(host)):
            raise ApiError(403, "This server answers to local names only.", code="host_not_allowed")
        origin = headers.get("origin")
        if origin is not None and not self._own(origin.lower(), host.lower()):
            message = "Pages of this origin may not use this server (--allow-origin names those)."
            raise ApiError(403, message, code="origin_not_allowed")
        if self._key is not None and path not in OPEN and not self._has_key(headers):
            raise ApiError(
                401,
                "Incorrect or missing API key; it belongs into the Authorization header.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _own(self, origin: str, host: str) -> bool:
        return origin in self._origins or origin in (f"http://{host}", f"https://{host}")

    def _has_key(self, headers: Headers) -> bool:
        assert self._key is not None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared in constant time, so that the time tells nothing of how much was right.
        same = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._key)
        return scheme.lower() == "bearer" and same


def _hostname(host: str) -> str:
    """Of a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def read_body(request: Request, most: int) -> bytes:
    """The body, if it is not too long. Raises ApiError."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > 2 * most:
        raise too_long(most)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            chunks.append(chunk)
        elif size > 2 * most:  # a little more is read and dropped: who still sends hears no answer
            raise too_long(most)
    if size > most:
        raise too_long(most)
    return b"".join(chunks)
