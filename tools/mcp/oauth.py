"""Logs in to MCP servers over HTTP (OAuth 2.1 with a browser) and stores the tokens.

The SDK's ``OAuthClientProvider`` does the protocol; here are the local page that the browser is
redirected to, and the storage of tokens.
"""

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

from agent.errors import AgentError
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.version import program_version

LOGIN_TIMEOUT_SECONDS = 300.0
"""Time that the person has in the browser."""
RENEWAL_MARGIN_SECONDS = 30.0
"""How long before its expiry a token is renewed."""


class LoginError(AgentError):
    """The login failed; the message is one sentence for the person."""


async def stored_auth(config: ServerConfig, credentials: CredentialStore) -> httpx2.Auth | None:
    """Return the authentication of an earlier login; None if there was none, or if the settings
    have an Authorization header of their own."""
    if config.url is None or any(name.lower() == "authorization" for name in config.headers):
        return None
    stored = await asyncio.to_thread(credentials.load, config.url)
    return (
        _provider(config.url, _TokenStorage(config.url, credentials, stored), "")
        if stored
        else None
    )


def _print_url(url: str) -> None:
    print(f"Log in here: {url}", file=sys.stderr, flush=True)


async def log_in(
    config: ServerConfig,
    credentials: CredentialStore,
    *,
    browser: bool,
    show_url: Callable[[str], None] = _print_url,
) -> None:
    """Log in through a page whose address ``show_url`` gets; ``browser`` opens it too.

    Raises LoginError.
    """
    assert config.url is not None
    storage = _TokenStorage(config.url, credentials, {})
    async with _callback_server() as (redirect_url, wait_result):

        async def open_page(url: str) -> None:
            show_url(url)
            if browser:
                await asyncio.to_thread(webbrowser.open, url)

        auth = _provider(config.url, storage, redirect_url, open_page, wait_result)
        try:
            status = await _probe_auth(config, auth)
        except (OAuthFlowError, httpx2.HTTPError, OSError, ValueError) as error:
            raise LoginError(f"the login to {config.name} failed: {error}") from error
        except TimeoutError:
            raise LoginError("the login took too long; try again") from None
    if not storage.stored:
        outcome = f"answers with HTTP {status}" if status >= 400 else "requires no login"
        raise LoginError(f"the server {config.name} {outcome}")


def log_out(config: ServerConfig, credentials: CredentialStore) -> None:
    """Delete the stored tokens, so that a later run has to log in again."""
    if config.url is not None:
        credentials.save(config.url, {})


async def _probe_auth(config: ServerConfig, auth: httpx2.Auth) -> int:
    """Send an ``initialize`` request, which makes the server ask for a login; return the HTTP
    status of its final answer."""
    assert config.url is not None
    initialize = T.InitializeRequest(
        params=T.InitializeRequestParams(
            protocol_version="2025-11-25",
            capabilities=T.ClientCapabilities(),
            client_info=T.Implementation(name="agent", version=program_version()),
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
            json=None if sse else {"jsonrpc": "2.0", "id": 1, **initialize},
        ) as response,
    ):
        return response.status_code


def _provider(
    url: str,
    storage: _TokenStorage,
    redirect_url: str,
    open_page: Callable[[str], Awaitable[None]] | None = None,
    wait_result: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(
        client_name="agent",
        redirect_uris=[AnyUrl(redirect_url or "http://127.0.0.1/callback")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    provider = OAuthClientProvider(url, metadata, storage, open_page, wait_result)
    storage.attach(provider)
    return provider


class _TokenStorage:
    """The SDK's ``TokenStorage``, which also stores what a later process needs to renew a token
    and the SDK keeps in memory only: when the token expires, and the server's OAuth metadata."""

    def __init__(self, url: str, credentials: CredentialStore, stored: dict[str, Any]) -> None:
        self._url, self._credentials, self.stored = url, credentials, stored
        self._provider: OAuthClientProvider | None = None

    def attach(self, provider: OAuthClientProvider) -> None:
        """Restore the provider's memory from the store."""
        self._provider, context = provider, provider.context
        if not self.stored:
            return
        with contextlib.suppress(ValueError):
            context.token_expiry_time = self.stored.get("expires_at")
            if (metadata := self.stored.get("metadata")) is not None:
                context.oauth_metadata = OAuthMetadata.model_validate(metadata)
            if (resource := self.stored.get("resource")) is not None:
                context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                    resource
                )

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self.stored.get("tokens")
        return OAuthToken.model_validate(tokens) if tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.stored["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        lifetime = tokens.expires_in
        self.stored["expires_at"] = (
            None if lifetime is None else time.time() + max(lifetime - RENEWAL_MARGIN_SECONDS, 0)
        )
        if self._provider is not None:
            context = self._provider.context
            for key, value in (
                ("metadata", context.oauth_metadata),
                ("resource", context.protected_resource_metadata),
            ):
                self.stored[key] = value and value.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(self._credentials.save, self._url, self.stored)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        client = self.stored.get("client")
        return OAuthClientInformationFull.model_validate(client) if client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        # Written with the first token: without one it is of no use.
        self.stored["client"] = client_info.model_dump(mode="json", exclude_none=True)


@asynccontextmanager
async def _callback_server() -> AsyncIterator[
    tuple[str, Callable[[], Awaitable[AuthorizationCodeResult]]]
]:
    """Serve the page that the browser is redirected to; yield its address, and a function that
    waits for the authorization code. That raises TimeoutError and OAuthFlowError."""
    future: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            line = (await asyncio.wait_for(reader.readline(), 10)).decode("latin-1").split(" ")
            page = urlsplit(line[1] if len(line) > 1 else "")
            query = {key: values[0] for key, values in parse_qs(page.query).items()}
            good = page.path == "/callback" and ("code" in query or "error" in query)
            text = "You can close this page." if good else "There is nothing here."
            head = (
                f"HTTP/1.1 {'200 OK' if good else '404 Not Found'}\r\nContent-Type: text/plain\r\n"
            )
            writer.write(
                f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()
            )
            await writer.drain()
            if good and not future.done():
                _resolve(future, query)
        writer.close()

    async def wait_result() -> AuthorizationCodeResult:
        return await asyncio.wait_for(asyncio.shield(future), LOGIN_TIMEOUT_SECONDS)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/callback", wait_result
    finally:
        server.close()
        future.cancel()


def _resolve(future: asyncio.Future[AuthorizationCodeResult], query: dict[str, str]) -> None:
    """Complete the login with the query parameters of the redirect."""
    if "error" in query:
        reason = query.get("error_description") or query["error"]
        future.set_exception(OAuthFlowError(f"it was refused: {reason[:300]}"))
    else:
        future.set_result(
            AuthorizationCodeResult(
                code=query["code"], state=query.get("state"), iss=query.get("iss")
            )
        )
