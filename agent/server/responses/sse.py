"""A turn over HTTP: its official events as server-sent events
(https://html.spec.whatwg.org/multipage/server-sent-events.html), or its final response as one body.
When the client disconnects, its turn is stopped.

A stream is never silent for long: Codex and Node's fetch give up after 300 s, nginx after 60 s, and a
long prompt or a load can take longer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent import events as ev
from agent.server.http.errors import ApiError, failed
from agent.server.input.parsing import ignored_header
from agent.server.responses.service import ResponseService
from agent.turn.loop import Turn

DONE_MESSAGE = b"data: [DONE]\n\n"
OPEN_RESPONSES_NAMES = {
    f"response.reasoning_text.{end}": f"response.reasoning.{end}" for end in ("delta", "done")
}
"""Event types that https://www.openresponses.org/specification calls differently."""
EVENT_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy in between must not collect events
}
COMMENT = b": keepalive\n\n"
"""A line that clients of server-sent events ignore."""
EncodeEvent = Callable[[ev.OfficialEvent], bytes]
"""Writes an event for a client; empty for an event that this client does not get."""


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


class StreamEncoder(ABC):
    """Writes the turns that answer a request for a client; ``number``: that of the event before."""

    done = DONE_MESSAGE

    @abstractmethod
    def choice(self, index: int) -> EncodeEvent:
        """Return the encoder of the events of one turn."""

    @abstractmethod
    def error(self, error: ApiError, number: int) -> bytes: ...

    def keepalive(self, number: int) -> bytes:
        return COMMENT

    def end(self, responses: Sequence[ev.Response]) -> bytes:
        """Encode the end of the stream, after all turns have ended."""
        return b""


class SseEncoder(StreamEncoder):
    """Writes events of the Responses API as server-sent events."""

    def __init__(self, renames: Mapping[str, str] | None = None) -> None:
        """``renames``: event types, and what this client calls them."""
        self._renames = renames or {}

    def __call__(self, event: ev.OfficialEvent) -> bytes:
        return self.encode_line(event.model_dump_json())

    def encode_line(self, line: str) -> bytes:
        """Write an event that is JSON already: ``{"type":"…",…}``."""
        line = self._renamed(line)
        return f"event: {_event_type(line)}\ndata: {line}\n\n".encode()

    def json(self, event: ev.OfficialEvent) -> str:
        """Write an event as the text of a WebSocket message."""
        return self._renamed(event.model_dump_json())

    def keepalive(self, number: int) -> bytes:
        """Write a sign of life, as OpenAI does: not a comment, which Codex takes for silence."""
        return self.encode_line(keepalive_json(number))

    def error(self, error: ApiError, number: int) -> bytes:
        fields = {name: error.body[name] for name in ("code", "message", "param")}
        event = {"type": "error", **fields, "sequence_number": number}
        return self.encode_line(json.dumps(event))

    def choice(self, index: int) -> SseEncoder:
        return self

    def _renamed(self, line: str) -> str:
        if not self._renames:
            return line
        kind = _event_type(line)
        return line.replace(kind, self._renames.get(kind, kind), 1)


def _event_type(line: str) -> str:
    return line.split('"', 4)[3]


def keepalive_json(number: int) -> str:
    """A sign of life; ``number``: that of the event before, for it is neither stored nor repeated."""
    return f'{{"type":"keepalive","sequence_number":{number}}}'


class EventStream(Response):
    """Streams the official events of turns as they come; ``agent.*`` events are left out."""

    def __init__(
        self,
        begun: Awaitable[Sequence[Turn]],
        service: ResponseService,
        encoder: StreamEncoder,
        *,
        after: int = -1,
        outlives_client: bool = False,
    ) -> None:
        """``begun``: begins the turns, which may load a model; may raise ApiError. ``after``: a
        sequence number. ``outlives_client``: the turns continue without it. Responses are stored
        before the client sees the terminal event."""
        super().__init__()
        self._begun, self._service, self._encoder = begun, service, encoder
        self._after = self._sent = after
        self._outlives_client = outlives_client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI). Raises ApiError as long as nothing was sent."""
        service, encoder = self._service, self._encoder
        keepalive = lambda: encoder.keepalive(max(self._sent, 0))  # noqa: E731
        async with LiveStream(send, service.options.keepalive_seconds, keepalive) as stream:
            try:
                turns = await self._begun
            except ApiError as error:
                if not stream.has_begun:
                    raise
                await stream.end(encoder.error(error, 0) + encoder.done)
                return
            # All turns of a request have passed over the same. None: streamed again, it has ended.
            plan = service.running.get(turns[0])
            headers = ignored_header(plan.ignored if plan is not None else ())
            async with stop_on_disconnect(turns, receive, service, self._outlives_client):
                await stream.begin(headers)
                # In tasks, so that a token does not resume every middleware.
                async with asyncio.TaskGroup() as group:
                    for index, turn in enumerate(turns):
                        group.create_task(self._follow(turn, encoder.choice(index), stream))
                await stream.end(encoder.end([turn.response for turn in turns]) + encoder.done)

    async def _follow(self, turn: Turn, encode: EncodeEvent, stream: LiveStream) -> None:
        async for official in official_batches(turn, self._service, after=self._after):
            self._sent = official[-1].sequence_number
            if chunk := b"".join(map(encode, official)):
                await stream.write(chunk)


async def final_response(
    request: Request,
    turns: Sequence[Turn],
    service: ResponseService,
    shape: Callable[[Sequence[ev.Response]], bytes],
) -> Response:
    """Wait until all turns that answer a request have ended; ``shape`` makes the body. Raises ApiError
    where one has failed, as ``shape`` may."""
    # The turns of a request have passed over the same.
    headers = ignored_header(service.running[turns[0]].ignored)
    async with stop_on_disconnect(turns, request.receive, service):
        responses = [await turn.done() for turn in turns]
        for turn in turns:
            service.finish(turn)
    for response in responses:
        if response.error is not None:
            raise failed(response.error.code, response.error.message)
    return Response(shape(responses), media_type="application/json", headers=headers)


async def official_batches(
    turn: Turn, service: ResponseService, after: int = -1
) -> AsyncIterator[Sequence[ev.OfficialEvent]]:
    """Yield official events behind ``after``; the turn is finished before the terminal event."""
    async for batch in turn.log.follow():
        official = [
            event
            for event in batch
            if isinstance(event, ev.OfficialEvent) and event.sequence_number > after
        ]
        if not official:
            continue
        if isinstance(official[-1], ev.Terminal):
            await turn.done()
            service.finish(turn)
        yield official


@contextlib.asynccontextmanager
async def stop_on_disconnect(
    turns: Sequence[Turn], receive: Receive, service: ResponseService, outlives_client: bool = False
) -> AsyncIterator[None]:
    """Stop the turns when the client disconnects, unless they outlive it: then output is lost."""
    if outlives_client:
        yield
        return

    async def stop() -> None:
        await wait_disconnected(receive)
        for turn in turns:
            turn.stop()

    watch = asyncio.create_task(stop())
    try:
        yield
    finally:
        watch.cancel()
        # Not awaited: this task may be cancelled again, and the response stored before its end.
        for turn in turns:
            service.abandon(turn)


async def wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
