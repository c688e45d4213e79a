"""Checks whether a server can answer: after a failed request, for /health and for agent doctor."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx2

from agent.engine.remote.backends.base import Json, error_message


@dataclass(frozen=True, slots=True)
class RemoteTiming:
    """Durations in seconds of everything that waits for a server."""

    health_timeout: float = 2.0
    """For the answer of /health."""
    health_ttl: float = 1.0
    """For a result of `RemoteClient.cached_health`."""
    load_poll: float = 0.5
    """Between two checks of a server that is still loading when this engine is loaded."""
    retry_pauses: tuple[float, ...] = (0.2, 1.0, 3.0)
    """Before each retry of a completion request that has produced nothing yet."""
    retry_poll: float = 1.0
    """Between two checks of a server that a turn waits for."""
    loading_wait: float = 120.0
    """That a turn waits for a server that reports that it is not ready yet."""
    unreachable_wait: float = 15.0
    """That a turn waits for a server that refuses connections: it may be restarting, or gone."""
    usage_timeout: float = 1.0
    """For the usage report after the last token."""
    silence: float = 5.0
    """Without a message, after which the server is asked whether it is there: it may be stopped."""
    stall: float = 300.0
    """Without a message, after which a server is given up that still listens, but has begun to answer
    or does not report its health: it hangs. Reading a long prompt may take longer."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Why a server cannot answer now; str() is the predicate of a sentence."""

    loading: bool
    """Whether the server reports that it is not ready yet; else it is away or does not work."""
    reason: str
    refused: bool = False
    """Whether nothing listens there any more."""

    def __str__(self) -> str:
        return "is loading its model" if self.loading else f"does not answer ({self.reason})"

    def max_wait(self, wait: float | None, timing: RemoteTiming) -> float:
        """Return the seconds to wait for the problem's end. ``wait``: the setting of models.toml."""
        if wait is not None:
            return wait
        return timing.loading_wait if self.loading else timing.unreachable_wait


async def check_health(http: httpx2.AsyncClient, timeout: float) -> HealthProblem | None:
    """Ask the server for its health; None: it has no problem. ``timeout``: seconds."""
    try:
        async with asyncio.timeout(timeout):
            response = await request_twice(http, "GET", "/health")
    except TimeoutError:
        return HealthProblem(False, f"nothing within {timeout:g} s")
    except httpx2.ConnectError as error:
        return HealthProblem(False, describe_error(error), refused=True)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return HealthProblem(False, describe_error(error))
    if response.status_code < 500:
        return None
    reason = f"HTTP {response.status_code}: {error_message(response.text)}"
    return HealthProblem(response.status_code == 503, reason)


async def request_twice(
    http: httpx2.AsyncClient, method: str, path: str, body: Json | None = None
) -> httpx2.Response:
    """Make an idempotent request, twice if a pooled connection was closed in the meantime."""
    try:
        return await http.request(method, path, json=body)
    except (httpx2.ReadError, httpx2.RemoteProtocolError):
        return await http.request(method, path, json=body)


def describe_error(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
