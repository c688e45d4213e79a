"""How a server is reached: a child process, or HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tools.builtin.browser.safe_fetch import ANYWHERE, Guard
from tools.config.servers import ServerConfig
from tools.mcp.stdio import MAX_MESSAGE

CONNECT_SECONDS = 30.0
"""For the network's part of a request; how long a tool may take is the call's own affair."""

Way = Literal["http", "sse"]


class Remote:
    """One connection to a server's URL."""

    def __init__(self, config: ServerConfig, way: Way, auth: httpx2.Auth | None) -> None:
        self._config, self.transport, self._auth = config, way, auth
        self.refusal: int | None = None
        """The last HTTP status that was an error."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        assert self._config.url is not None
        if self.transport == "sse":
            async with sse_client(
                self._config.url,
                headers=dict(self._config.headers),
                timeout=CONNECT_SECONDS,
                sse_read_timeout=None,  # type: ignore[arg-type]  # httpx's word for: no limit
                httpx_client_factory=self._client,
                auth=self._auth,
            ) as streams:
                yield streams
        else:
            client = self._client(
                dict(self._config.headers), httpx2.Timeout(CONNECT_SECONDS, read=None), self._auth
            )
            async with (
                client,
                streamable_http_client(
                    self._config.url, http_client=client, max_sse_event_size=MAX_MESSAGE
                ) as streams,
            ):
                yield streams

    def _client(
        self,
        headers: dict[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        guest = self._config.guest
        return httpx2.AsyncClient(
            transport=Guard(() if guest == "public" else ANYWHERE) if guest else None,
            trust_env=not guest,
            headers=headers,
            timeout=timeout or httpx2.Timeout(CONNECT_SECONDS),
            auth=auth,
            event_hooks={"response": [self._seen]},
        )

    async def _seen(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.refusal = response.status_code
