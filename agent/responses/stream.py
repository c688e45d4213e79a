"""A turn over HTTP: its official events as server-sent events, or its final response as one body.

Both watch the client: when it goes away, its turn is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent import events as ev
from agent.turn import Turn

DONE = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy in between must not collect events
]

Ended = Callable[[Turn], None]
Write = Callable[[ev.Official], bytes]
"""An event as its client reads it; nothing for one that it is not told of."""


def sse(event: ev.Official) -> bytes:
    """An event of the Responses API."""
    return f"event: {event.type}\ndata: {event.model_dump_json()}\n\n".encode()


def body(response: ev.Response) -> bytes:
    return response.model_dump_json().encode()


class EventStream(Response):
    """The turn's events as they come; ``agent.*`` events stay inside."""

    def __init__(self, turn: Turn, ended: Ended, write: Write = sse) -> None:
        """``ended`` is called before the client sees the terminal event."""
        super().__init__()
        self._turn, self._ended, self._write = turn, ended, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn, write = self._turn, self._write
        async with _watched(turn, receive, self._ended):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for batch in turn.log.follow():
                official = [event for event in batch if isinstance(event, ev.Official)]
                if not official:
                    continue
                if isinstance(official[-1], ev.Terminal):
                    await turn.done()
                    self._ended(turn)
                if sent := b"".join(map(write, official)):
                    await send({"type": "http.response.body", "body": sent, "more_body": True})
            await send({"type": "http.response.body", "body": DONE, "more_body": False})


class Body(Response):
    """The final response, once the turn has ended: what the stream's last event holds."""

    def __init__(
        self, turn: Turn, ended: Ended, shape: Callable[[ev.Response], bytes | Response] = body
    ) -> None:
        """``shape``: the body, or the whole answer where it is not always a success."""
        super().__init__(media_type="application/json")
        self._turn, self._ended, self._shape = turn, ended, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn = self._turn
        async with _watched(turn, receive, self._ended):
            response = await turn.done()
            self._ended(turn)
        shaped = self._shape(response)
        if not isinstance(shaped, Response):
            shaped = Response(shaped, media_type=self.media_type)
        await shaped(scope, receive, send)


@contextlib.asynccontextmanager
async def _watched(turn: Turn, receive: Receive, ended: Ended) -> AsyncIterator[None]:
    """Stops the turn when the client leaves, and in every case waits for its end."""
    watch = asyncio.create_task(_stop_when_gone(turn, receive))
    try:
        yield
    finally:
        watch.cancel()
        turn.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await turn.done()
        ended(turn)


async def _stop_when_gone(turn: Turn, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    turn.stop()
