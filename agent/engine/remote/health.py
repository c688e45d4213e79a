"""Whether a server can answer: asked where a request to it failed, by /health and by agent doctor."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx2

from agent.engine.remote.backends import Json, message

ANSWER = 2.0
"""Seconds that a server has to say how it is."""
LOADING, GONE = 120.0, 15.0
"""Seconds that a turn waits for a server that says that it is not ready yet, and for one that is not
there: it may be started again right now, or never."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a server cannot answer now."""

    loading: bool
    """It says itself that it is not ready yet; else there is none, or nothing that works."""
    why: str

    def __str__(self) -> str:
        return "is loading its model" if self.loading else f"does not answer ({self.why})"

    def patience(self, wait: float | None) -> float:
        """Seconds to wait for its end. ``wait``: what models.toml says."""
        if wait is not None:
            return wait
        return LOADING if self.loading else GONE


async def trouble(client: httpx2.AsyncClient) -> Trouble | None:
    """What keeps the server from answering; None: nothing that it knows of."""
    try:
        async with asyncio.timeout(ANSWER):
            response = await ask(client, "GET", "/health")
    except TimeoutError:
        return Trouble(False, f"nothing within {ANSWER:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return Trouble(False, why(error))
    if response.status_code < 500:
        return None
    said = f"HTTP {response.status_code}: {message(response.text)}"
    return Trouble(response.status_code == 503, said)


async def ask(
    client: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
) -> httpx2.Response:
    """The answer to what may be asked twice: a server may close a kept connection just as it is used
    again."""
    try:
        return await client.request(method, path, json=body)
    except (httpx2.ReadError, httpx2.RemoteProtocolError):
        return await client.request(method, path, json=body)


def why(error: Exception) -> str:
    """An exception in a few words."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
