"""A stream of server-sent events that is never silent for long: Codex and Node's fetch give up after
300 s, nginx after 60 s, and a long prompt or a load can take longer."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from starlette.datastructures import Headers
from starlette.types import Send

EVENT_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy in between must not collect events
}
COMMENT = b": keepalive\n\n"
"""A line that clients of server-sent events ignore."""


def sse_data(value: Mapping[str, Any], event: str | None = None) -> bytes:
    """A server-sent event with a JSON object, of a type or without one."""
    head = "" if event is None else f"event: {event}\n"
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


class Heartbeat:
    """Calls ``beat`` before nothing was sent for ``seconds``, for the duration of its block."""

    def __init__(self, beat: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._beat, self._seconds = beat, seconds
        self.has_sent = True
        """Set by the one who sends; a flag, for it is set with each token."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)  # the client may have gone

    async def _run(self) -> None:
        while True:
            self.has_sent = False
            await asyncio.sleep(self._seconds / 2)
            if not self.has_sent:
                await self._beat()
                await asyncio.sleep(self._seconds / 2)


class LiveStream(Heartbeat):
    """Sends a response's head and its chunks; used as a block, which keeps the stream alive. The head
    comes with the first chunk or sign of life: until then an error can be a response of its own."""

    def __init__(
        self, send: Send, seconds: float, keepalive: Callable[[], bytes] = lambda: COMMENT
    ) -> None:
        """``seconds``: the longest silence. ``keepalive``: makes what is sent then."""
        super().__init__(self._send_keepalive, seconds)
        self._send, self._keepalive = send, keepalive
        self.has_begun = False

    async def begin(self, headers: Mapping[str, str] | None = None) -> None:
        """Send the head, unless that was done; ``headers``: more than those of every stream."""
        if not self.has_begun:
            self.has_begun = True
            raw = Headers({**EVENT_STREAM_HEADERS, **(headers or {})}).raw
            await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    def write(self, chunk: bytes) -> Awaitable[None]:
        """Send a chunk; no coroutine of its own, for there is one for each token."""
        self.has_sent = True
        return self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def _send_keepalive(self) -> None:
        await self.begin()
        await self.write(self._keepalive())
