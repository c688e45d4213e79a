"""Access control: the API key, local host names, origins of web pages, the framing of bodies."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from agent.server.errors import ApiError
from agent.server.json_response import error_response

PATHS_WITHOUT_KEY = frozenset({"/", "/health"})
"""What a probe asks before it knows a key: that this server is here, and whether it is ready."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address reaches this machine only."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class FramingMiddleware:
    """Refuses a body with two lengths, and closes the connection: a proxy may take the other one, and
    read different requests (request smuggling; RFC 9112, section 6.3)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            message = "A request has either a Content-Length or a Transfer-Encoding."
            error = ApiError(400, message, code="bad_framing", headers={"connection": "close"})
            await error_response(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class AccessMiddleware:
    """Refuses requests before the application sees them. A web page can make a browser send requests
    here, also under its own host name (DNS rebinding): a server on loopback answers only requests to
    loopback's names (``Host``), and of pages (``Origin``) only its own and those that were allowed."""

    def __init__(
        self, app: ASGIApp, *, key: str | None, loopback_only: bool, origins: Collection[str]
    ) -> None:
        """``origins``: web pages that may use the server, as ``https://host``."""
        self._app, self._loopback_only = app, loopback_only
        self._key = key.encode() if key else None
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope["path"], Headers(scope=scope))
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if self._loopback_only and not is_loopback(_hostname(host)):
            message = (
                f"This server answers to local names only, not to {host[:80]!r}: start it with"
                " --host 0.0.0.0 and --api-key KEY to have it answer to others."
            )
            raise ApiError(403, message, code="host_not_allowed")
        origins = headers.getlist("origin")
        if len(origins) > 1 or not all(
            self._is_allowed_origin(origin.lower(), host.lower()) for origin in origins
        ):
            message = "Pages of this origin may not use this server; --allow-origin allows them."
            raise ApiError(403, message, code="origin_not_allowed")
        if self._key is not None and path not in PATHS_WITHOUT_KEY and not self._has_key(headers):
            raise ApiError(
                401,
                "Incorrect or missing API key; send it in the Authorization header.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        return origin in self._origins or origin in (f"http://{host}", f"https://{host}")

    def _has_key(self, headers: Headers) -> bool:
        assert self._key is not None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        # Constant time: how long it takes does not depend on how much of the key is right.
        same = hmac.compare_digest(key.strip().encode("latin-1", "replace"), self._key)
        return scheme.lower() == "bearer" and same


def _hostname(host: str) -> str:
    """The host name in a ``Host`` header, without the port; empty where there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
