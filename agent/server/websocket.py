"""WebSocket /v1/responses: a request is a message, its answer the events of a stream as messages.

Requests are answered one after the other, those of different ``stream_id`` side by side. A response
that is not stored can be gone on from as long as its connection lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from agent import events as ev
from agent.server.errors import ApiError, broken, invalid, too_long, too_many
from agent.server.parsing import asked, json_object
from agent.server.response_cache import Memory
from agent.server.schemas import InputItem
from agent.store.stored_response import Kept
from agent.turn.jobs import WarmTurn
from agent.turn.loop import Turn

if TYPE_CHECKING:
    from agent.server.app import Endpoint

log = logging.getLogger(__name__)

MOST_WAITING = 32
"""Requests of one connection that run or wait."""
MOST_NEAR, MOST_NEAR_BYTES = 32, 32 * 1024 * 1024
"""Responses that a connection remembers, and what they may take together."""
LONGEST_NAME = 256
"""Characters of a ``stream_id``."""


class Near(Memory):
    """What a connection remembers by itself, before what everybody may ask for."""

    def __init__(self, rest: Memory) -> None:
        super().__init__(None, MOST_NEAR, MOST_NEAR_BYTES)
        self._rest = rest

    def find(self, response_id: str) -> Kept | None:
        return super().find(response_id) or self._rest.find(response_id)

    def item(self, item_id: str) -> InputItem | None:
        return super().item(item_id) or self._rest.item(item_id)


def route(endpoint: Endpoint) -> WebSocketRoute:
    async def connect(socket: WebSocket) -> None:
        """A connection for many responses: each ``response.create`` message is a request, answered
        by its stream's events, a message each."""
        await socket.accept()
        await Connection(endpoint, socket).serve()

    return WebSocketRoute("/v1/responses", connect)


class Connection:
    """One client's; when it goes, what runs for it is stopped."""

    def __init__(self, endpoint: Endpoint, socket: WebSocket) -> None:
        self._endpoint, self._socket = endpoint, socket
        self._near = Near(endpoint.memory)
        self._work: set[asyncio.Task[None]] = set()
        self._last: dict[str | None, asyncio.Task[None]] = {}
        """By stream: the request that came last."""

    async def serve(self) -> None:
        try:
            while (message := await self._socket.receive())["type"] == "websocket.receive":
                await self._take(
                    (message.get("text") or "").encode() or message.get("bytes") or b""
                )
        except WebSocketDisconnect:
            pass
        finally:
            for task in self._work:
                task.cancel()
            if self._work:
                await asyncio.wait(self._work)

    async def _take(self, body: bytes) -> None:
        """Of one message: it is answered when those before it are."""
        stream = None
        try:
            if len(body) > self._endpoint.max_body:
                raise too_long(self._endpoint.max_body)
            value = json_object(body)
            stream = _stream(value)
            if len(self._work) >= MOST_WAITING:
                raise too_many(f"{MOST_WAITING} requests of this connection are waiting already.")
        except ApiError as error:
            await self._refuse(error, stream)
            return
        work = asyncio.create_task(self._in_turn(value, len(body), stream, self._last.get(stream)))
        self._last[stream] = work
        self._work.add(work)
        self._endpoint.awaited(work)
        work.add_done_callback(lambda work: self._done(work, stream))

    def _done(self, work: asyncio.Task[None], stream: str | None) -> None:
        self._work.discard(work)
        if self._last.get(stream) is work:
            del self._last[stream]

    async def _in_turn(
        self,
        value: dict[str, Any],
        size: int,
        stream: str | None,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        with contextlib.suppress(WebSocketDisconnect):
            try:
                await self._answer(value, size, stream)
            except ApiError as error:
                await self._refuse(error, stream)
            except WebSocketDisconnect:
                raise
            except Exception:
                log.exception("a request over a WebSocket broke")
                await self._refuse(broken(), stream)

    async def _answer(self, value: dict[str, Any], size: int, stream: str | None) -> None:
        if value.get("type") != "response.create":
            raise invalid("type", "The type of a message is 'response.create'.")
        # Of a connection every response is streamed, and none outlives it.
        wanted = asked({**value, "stream": True, "background": False}, size)
        kind = WarmTurn if value.get("generate") is False else Turn
        endpoint = self._endpoint
        turn = await endpoint.begin(wanted, kind, self._near)
        made = endpoint.running[turn]
        try:
            async for batch in turn.log.follow():
                for event in batch:
                    if isinstance(event, ev.Terminal):
                        await turn.done()
                        endpoint.ended(turn)
                        if wanted.store is False:
                            self._near.keep(made.kept())
                    if isinstance(event, ev.Official):
                        await self._send(endpoint.wire.json(event), stream)
        finally:
            # Not waited for: this task may be cancelled again, and the turn kept before its end.
            endpoint.abandon(turn)

    async def _refuse(self, error: ApiError, stream: str | None) -> None:
        log.info("WebSocket: %d %s", error.status, error.code)
        headers = {"headers": dict(error.headers)} if error.headers else {}
        told = {"type": "error", "status": error.status, "error": error.told | headers}
        await self._send(json.dumps(told, ensure_ascii=False), stream)

    async def _send(self, line: str, stream: str | None) -> None:
        if stream is not None:
            line = f'{line[:-1]},"stream_id":{json.dumps(stream)}}}'
        if self._socket.application_state is WebSocketState.DISCONNECTED:
            raise WebSocketDisconnect  # another stream's message has found that out
        await self._socket.send_text(line)


def _stream(value: dict[str, Any]) -> str | None:
    """Raises ApiError."""
    match value.get("stream_id"):
        case None:
            return None
        case str(name) if len(name) <= LONGEST_NAME:
            return name
        case _:
            message = f"'stream_id' is a string of {LONGEST_NAME} characters at most."
            raise invalid("stream_id", message)
