"""Several turns that answer one request, as one stream of server-sent events or as one body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent import events as ev
from agent.server.service import ResponseService
from agent.server.sse import (
    DONE_MESSAGE,
    RAW_STREAM_HEADERS,
    EncodeEvent,
    official_batches,
    stop_on_disconnect,
)
from agent.turn.loop import Turn


class ChoicesStream(Response):
    """Streams the events of all turns as they come; a disconnect stops all."""

    def __init__(
        self,
        turns: Sequence[Turn],
        service: ResponseService,
        encoders: Sequence[EncodeEvent],
        encode_end: Callable[[Sequence[ev.Response]], bytes],
    ) -> None:
        """``encoders``: one for each turn. ``encode_end``: what follows when all have ended."""
        super().__init__()
        self._turns, self._service, self._encoders = turns, service, encoders
        self._encode_end = encode_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI)."""

        async def write(body: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": more})

        async def follow(turn: Turn, encode: EncodeEvent) -> None:
            async for batch in official_batches(turn, self._service):
                if chunk := b"".join(map(encode, batch)):
                    await write(chunk)

        async with stop_on_disconnect(self._turns, receive, self._service):
            await send(
                {"type": "http.response.start", "status": 200, "headers": RAW_STREAM_HEADERS}
            )
            async with asyncio.TaskGroup() as group:
                for turn, encode in zip(self._turns, self._encoders, strict=True):
                    group.create_task(follow(turn, encode))
            end = self._encode_end([turn.response for turn in self._turns])
            await write(end + DONE_MESSAGE, more=False)


class ChoicesBody(Response):
    """Sends one body once all turns have ended."""

    def __init__(
        self,
        turns: Sequence[Turn],
        service: ResponseService,
        shape: Callable[[Sequence[ev.Response]], bytes],
    ) -> None:
        """``shape``: makes the body; may raise ApiError."""
        super().__init__(media_type="application/json")
        self._turns, self._service, self._shape = turns, service, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the ends of the turns and send the body (ASGI)."""
        async with stop_on_disconnect(self._turns, receive, self._service):
            responses = [await turn.done() for turn in self._turns]
            for turn in self._turns:
                self._service.finish(turn)
        body = Response(self._shape(responses), media_type=self.media_type)
        await body(scope, receive, send)
