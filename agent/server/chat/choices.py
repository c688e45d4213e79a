"""Several turns that answer one request, as one stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent import events as ev
from agent.server.http.errors import ApiError
from agent.server.http.live_stream import LiveStream
from agent.server.input.field_rules import ignored_header
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import (
    DONE_MESSAGE,
    EncodeEvent,
    official_batches,
    stop_on_disconnect,
)
from agent.turn.loop import Turn


class ChoicesStream(Response):
    """Streams the events of all turns as they come; a disconnect stops all."""

    def __init__(
        self,
        begun: Awaitable[Sequence[Turn]],
        service: ResponseService,
        encoder: Callable[[int], EncodeEvent],
        encode_end: Callable[[Sequence[ev.Response]], bytes],
    ) -> None:
        """``begun``: begins the turns; may raise ApiError. ``encode_end``: what follows all ends."""
        super().__init__()
        self._begun, self._service, self._encoder = begun, service, encoder
        self._encode_end = encode_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI). Raises ApiError as long as nothing was sent."""
        async with LiveStream(send, self._service.options.keepalive_seconds) as stream:
            try:
                turns = await self._begun
            except ApiError as error:
                if not stream.has_begun:
                    raise
                body = json.dumps({"error": error.body}).encode()
                await stream.end(b"data: %b\n\n%b" % (body, DONE_MESSAGE))
                return
            await self._send_events(stream, turns, receive)

    async def _send_events(
        self, stream: LiveStream, turns: Sequence[Turn], receive: Receive
    ) -> None:
        async def follow(turn: Turn, encode: EncodeEvent) -> None:
            async for batch in official_batches(turn, self._service):
                if chunk := b"".join(map(encode, batch)):
                    await stream.write(chunk)

        headers = ignored_header(self._service.running[turns[0]].ignored)  # all have the same
        async with stop_on_disconnect(turns, receive, self._service):
            await stream.begin((name.encode(), value.encode()) for name, value in headers.items())
            async with asyncio.TaskGroup() as group:
                for index, turn in enumerate(turns):
                    group.create_task(follow(turn, self._encoder(index)))
            end = self._encode_end([turn.response for turn in turns])
            await stream.end(end + DONE_MESSAGE)
