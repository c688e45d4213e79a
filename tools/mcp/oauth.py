"""Logging in to servers over HTTP, with the browser; the tokens are kept for later runs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp.types as T
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from tools.config.servers import ServerConfig
from tools.mcp.credentials import Tokens
from tools.version import version

PATIENCE = 300.0
"""Seconds that the person has in the browser."""
EARLY = 30.0
"""Seconds before its end at which a token is renewed."""


class LoginFailed(Exception):
    """In one sentence."""


async def stored_auth(config: ServerConfig, tokens: Tokens) -> httpx2.Auth | None:
    """What an earlier login left; None where there was none, or the settings carry their own."""
    if config.url is None or any(name.lower() == "authorization" for name in config.headers):
        return None
    kept = await asyncio.to_thread(tokens.load, config.url)
    return _provider(config.url, _Storage(config.url, tokens, kept), "") if kept else None


def _on_stderr(page: str) -> None:
    print(f"Log in here: {page}", file=sys.stderr, flush=True)


async def log_in(
    config: ServerConfig,
    tokens: Tokens,
    *,
    browser: bool,
    show: Callable[[str], None] = _on_stderr,
) -> None:
    """Through the browser, or the page whose address ``show`` gets. Raises LoginFailed."""
    assert config.url is not None
    storage = _Storage(config.url, tokens, {})
    async with _redirects() as (address, result):

        async def visit(page: str) -> None:
            show(page)
            if browser:
                await asyncio.to_thread(webbrowser.open, page)

        auth = _provider(config.url, storage, address, visit, result)
        try:
            status = await _knock(config, auth)
        except (OAuthFlowError, httpx2.HTTPError, OSError, ValueError) as error:
            raise LoginFailed(f"the login to {config.name} failed: {error}") from error
        except TimeoutError:
            raise LoginFailed("nobody logged in in time; try again") from None
    if not storage.kept:
        what = f"answers with HTTP {status}" if status >= 400 else "wants no login"
        raise LoginFailed(f"the server {config.name} {what}")


def forget(config: ServerConfig, tokens: Tokens) -> None:
    """A later run has to log in again."""
    if config.url is not None:
        tokens.save(config.url, {})


async def _knock(config: ServerConfig, auth: httpx2.Auth) -> int:
    """A first request, which the login comes before; its HTTP status."""
    assert config.url is not None
    hello = T.InitializeRequest(
        params=T.InitializeRequestParams(
            protocol_version="2025-11-25",
            capabilities=T.ClientCapabilities(),
            client_info=T.Implementation(name="agent", version=version()),
        )
    ).model_dump(mode="json", by_alias=True, exclude_none=True)
    sse = config.transport == "sse"
    accept = "text/event-stream" if sse else "application/json, text/event-stream"
    async with (
        httpx2.AsyncClient(auth=auth, headers=dict(config.headers), timeout=30) as client,
        client.stream(
            "GET" if sse else "POST",
            config.url,
            headers={"Accept": accept},
            json=None if sse else {"jsonrpc": "2.0", "id": 1, **hello},
        ) as response,
    ):
        return response.status_code


def _provider(
    url: str,
    storage: _Storage,
    redirect: str,
    visit: Callable[[str], Awaitable[None]] | None = None,
    result: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(
        client_name="agent",
        redirect_uris=[AnyUrl(redirect or "http://127.0.0.1/callback")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    provider = OAuthClientProvider(url, metadata, storage, visit, result)
    storage.attach(provider)
    return provider


class _Storage:
    """What the SDK keeps, and beside it what a later process needs to renew a token: when it ends
    and whom to ask."""

    def __init__(self, url: str, tokens: Tokens, kept: dict[str, Any]) -> None:
        self._url, self._tokens, self.kept = url, tokens, kept
        self._provider: OAuthClientProvider | None = None

    def attach(self, provider: OAuthClientProvider) -> None:
        self._provider, context = provider, provider.context
        if not self.kept:
            return
        with contextlib.suppress(ValueError):
            context.token_expiry_time = self.kept.get("expires_at")
            if (found := self.kept.get("metadata")) is not None:
                context.oauth_metadata = OAuthMetadata.model_validate(found)
            if (found := self.kept.get("resource")) is not None:
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                    found
                )

    async def get_tokens(self) -> OAuthToken | None:
        found = self.kept.get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        ends = tokens.expires_in
        self.kept["expires_at"] = None if ends is None else time.time() + max(ends - EARLY, 0)
        if self._provider is not None:
            context = self._provider.context
            for key, value in (
                ("metadata", context.oauth_metadata),
                ("resource", context.protected_resource_metadata),
            ):
                self.kept[key] = value and value.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(self._tokens.save, self._url, self.kept)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self.kept.get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        # Kept with the first token: without one it is of no use.
        self.kept["client"] = client_info.model_dump(mode="json", exclude_none=True)


@asynccontextmanager
async def _redirects() -> AsyncIterator[
    tuple[str, Callable[[], Awaitable[AuthorizationCodeResult]]]
]:
    """A page on this machine that the browser is sent back to: its address, and what it brought."""
    came: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            line = (await asyncio.wait_for(reader.readline(), 10)).decode("latin-1").split(" ")
            page = urlsplit(line[1] if len(line) > 1 else "")
            given = {key: values[0] for key, values in parse_qs(page.query).items()}
            good = page.path == "/callback" and ("code" in given or "error" in given)
            text = "You can close this page." if good else "There is nothing here."
            head = (
                f"HTTP/1.1 {'200 OK' if good else '404 Not Found'}\r\nContent-Type: text/plain\r\n"
            )
            writer.write(
                f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()
            )
            await writer.drain()
            if good and not came.done():
                _take(came, given)
        writer.close()

    async def result() -> AuthorizationCodeResult:
        return await asyncio.wait_for(asyncio.shield(came), PATIENCE)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/callback", result
    finally:
        server.close()
        came.cancel()


def _take(came: asyncio.Future[AuthorizationCodeResult], given: dict[str, str]) -> None:
    if "error" in given:
        why = given.get("error_description") or given["error"]
        came.set_exception(OAuthFlowError(f"it was refused: {why[:300]}"))
    else:
        came.set_result(
            AuthorizationCodeResult(
                code=given["code"], state=given.get("state"), iss=given.get("iss")
            )
        )
