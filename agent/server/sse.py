"""A turn over HTTP: its official events as server-sent events, or its final response as one body.

Both watch the client: when it goes away, its turn is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent import events as ev
from agent.turn.loop import Turn

if TYPE_CHECKING:
    from agent.server.app import Endpoint

DONE = b"data: [DONE]\n\n"
EVENTS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy in between must not collect events
}
_HEADERS = [(name.encode(), value.encode()) for name, value in EVENTS.items()]
OPEN_RESPONSES = {
    f"response.reasoning_text.{end}": f"response.reasoning.{end}" for end in ("delta", "done")
}
"""What the Open Responses specification calls raw reasoning."""

Write = Callable[[ev.Official], bytes]
"""An event as its client reads it; nothing for one that it is not told of."""


class Wire:
    """Events of the Responses API as server-sent events."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """``names``: events that are called otherwise here."""
        self._names = names or {}

    def __call__(self, event: ev.Official) -> bytes:
        return self._framed(event.type, event.model_dump_json())

    def frame(self, line: str) -> bytes:
        """Of an event's JSON."""
        return self._framed(line.removeprefix(_TYPE).partition('"')[0], line)

    def json(self, event: ev.Official) -> str:
        """As a message of a WebSocket."""
        return self._renamed(event.type, event.model_dump_json())

    def _renamed(self, kind: str, line: str) -> str:
        name = self._names.get(kind)
        return line if name is None else f"{_TYPE}{name}{line[len(_TYPE) + len(kind) :]}"

    def _framed(self, kind: str, line: str) -> bytes:
        name = self._names.get(kind, kind)
        return f"event: {name}\ndata: {self._renamed(kind, line)}\n\n".encode()


_TYPE = '{"type":"'
"""How every event's JSON begins."""


def body(response: ev.Response) -> bytes:
    return response.model_dump_json().encode()


class EventStream(Response):
    """The turn's events as they come; ``agent.*`` events stay inside."""

    def __init__(
        self, turn: Turn, endpoint: Endpoint, write: Write, *, after: int = -1, stays: bool = False
    ) -> None:
        """The endpoint has kept the turn before the client sees the terminal event. ``after``: the
        number of the event behind which it begins. ``stays``: the turn goes on when the client
        leaves."""
        super().__init__()
        self._turn, self._endpoint, self._write = turn, endpoint, write
        self._after, self._stays = after, stays

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn, write = self._turn, self._write
        async with _watched(turn, receive, self._endpoint, self._stays):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for batch in turn.log.follow():
                official = [
                    event
                    for event in batch
                    if isinstance(event, ev.Official) and event.sequence_number > self._after
                ]
                if not official:
                    continue
                if isinstance(official[-1], ev.Terminal):
                    await turn.done()
                    self._endpoint.ended(turn)
                if sent := b"".join(map(write, official)):
                    await send({"type": "http.response.body", "body": sent, "more_body": True})
            await send({"type": "http.response.body", "body": DONE, "more_body": False})


class Body(Response):
    """The final response, once the turn has ended: what the stream's last event holds."""

    def __init__(
        self,
        turn: Turn,
        endpoint: Endpoint,
        shape: Callable[[ev.Response], bytes | Response] = body,
    ) -> None:
        """``shape``: the body, or the whole answer where it is not always a success."""
        super().__init__(media_type="application/json")
        self._turn, self._endpoint, self._shape = turn, endpoint, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        turn = self._turn
        async with _watched(turn, receive, self._endpoint):
            response = await turn.done()
            self._endpoint.ended(turn)
        shaped = self._shape(response)
        if not isinstance(shaped, Response):
            shaped = Response(shaped, media_type=self.media_type)
        await shaped(scope, receive, send)


@contextlib.asynccontextmanager
async def _watched(
    turn: Turn, receive: Receive, endpoint: Endpoint, stays: bool = False
) -> AsyncIterator[None]:
    """Stops the turn when the client leaves; one that ``stays`` goes on, and what is sent to nobody
    is lost."""
    if stays:
        yield
        return
    watch = asyncio.create_task(_stop_when_gone(turn, receive))
    try:
        yield
    finally:
        watch.cancel()
        # Not waited for: this task may be cancelled again, and the turn kept before its end.
        endpoint.abandon(turn)


async def _stop_when_gone(turn: Turn, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    turn.stop()
