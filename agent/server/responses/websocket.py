"""WebSocket ``/v1/responses``: each message is a request, its answer the stream's events as messages.

Requests are answered one after the other, those of different ``stream_id`` side by side::

    client  ──▶ {"type": "response.create", "input": …}            request A, stream None
            ──▶ {"type": "response.create", "stream_id": "b", …}   request B, stream "b", next to A
            ──▶ {"type": "response.create", "input": …}            request C, stream None, after A
    server  ◀── A's events, mixed with B's (these have "stream_id": "b"), then C's

A response with ``"store": false`` can be continued over its own connection, until that ends or a
request that continues it fails. `agent.server.responses.steering` has what a client may say while a
response runs."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from agent import events as ev
from agent.server.http.errors import ApiError, body_too_large, internal_error, invalid, rate_limited
from agent.server.http.request_body import BodyShare, check_json_size, parse_json_object
from agent.server.input.parsing import request_from_object, validate
from agent.server.input.stored_responses import ResponseCache
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import Heartbeat, SseEncoder, keepalive_json, official_batches
from agent.server.responses.steering import (
    MAX_PENDING_BYTES,
    MAX_PENDING_STEERS,
    Steer,
    SteeredResponse,
    SteerRequest,
    required_input,
)
from agent.store.records import ServedTurn
from agent.turn.jobs import prefill
from agent.util.ids import new_id

log = logging.getLogger(__name__)

MAX_WAITING_REQUESTS = 32
"""Requests of one connection that run or wait."""
MAX_CONNECTION_RESPONSES, MAX_CONNECTION_BYTES = 32, 32 * 1024 * 1024
"""Responses that a connection remembers, and what they may take together."""
MAX_STREAM_ID_CHARACTERS = 256
FRAME_FIELDS = ("type", "generate", "stream_id")
"""Fields of a message that are not those of a request."""


class ConnectionCache(ResponseCache):
    """The responses of one connection that are not stored; falls back to the server's cache."""

    def __init__(self, shared: ResponseCache) -> None:
        super().__init__(None, MAX_CONNECTION_RESPONSES, MAX_CONNECTION_BYTES)
        self._shared = shared

    async def find(self, response_id: str) -> ServedTurn | None:
        return await super().find(response_id) or await self._shared.find(response_id)

    async def response_with(self, item_id: str) -> ServedTurn | None:
        return await super().response_with(item_id) or await self._shared.response_with(item_id)


def route(service: ResponseService, encoder: SseEncoder) -> WebSocketRoute:
    async def connect(socket: WebSocket) -> None:
        """A connection for many responses: each ``response.create`` message is a request, answered
        by its stream's events, a message each."""
        await socket.accept()
        await WebSocketConnection(service, encoder, socket).serve()

    return WebSocketRoute("/v1/responses", connect)


class WebSocketConnection:
    """Answers the requests of one client; when it disconnects, its running responses are stopped."""

    def __init__(self, service: ResponseService, encoder: SseEncoder, socket: WebSocket) -> None:
        self._service, self._encoder, self._socket = service, encoder, socket
        self._cache = ConnectionCache(service.cache)
        self._requests: set[asyncio.Task[None]] = set()
        self._streams: WeakValueDictionary[str | None, asyncio.Lock] = WeakValueDictionary()
        """Each stream has a lock: its running request holds it, and the next ones wait for it."""
        self._running: dict[str, SteeredResponse] = {}
        self._pending: dict[tuple[str | None, str], SteeredResponse] = {}
        """Responses that wait for results, with what was said meanwhile."""

    async def serve(self) -> None:
        try:
            with contextlib.suppress(WebSocketDisconnect):
                while (message := await self._socket.receive())["type"] == "websocket.receive":
                    body = (message.get("text") or "").encode() or message.get("bytes") or b""
                    await self._accept(body)
        finally:
            for task in self._requests:
                task.cancel()
            if self._requests:
                await asyncio.wait(self._requests)

    async def _accept(self, body: bytes) -> None:
        stream_id, share = None, BodyShare(self._service.body_budget)
        try:
            if len(body) > self._service.options.max_body_bytes:
                raise body_too_large(self._service.options.max_body_bytes)
            await check_json_size(body)
            value = parse_json_object(body)
            if value.get("type") == "response.steer":
                await self._steer(value, len(body))
                return
            stream_id = _stream_id(value)
            if len(self._requests) >= MAX_WAITING_REQUESTS:
                why = f"{MAX_WAITING_REQUESTS} requests of this connection are waiting already."
                raise rate_limited(why)
            share.add(len(body))
        except ApiError as error:
            await self._refuse(error, stream_id)
            return
        lock = self._streams.setdefault(stream_id, asyncio.Lock())
        task = asyncio.create_task(self._answer_next(lock, value, share, stream_id))
        self._requests.add(task)
        self._service.track(task)
        task.add_done_callback(self._requests.discard)
        task.add_done_callback(lambda _: share.release())

    async def _answer_next(
        self, lock: asyncio.Lock, value: dict[str, Any], share: BodyShare, stream_id: str | None
    ) -> None:
        with contextlib.suppress(WebSocketDisconnect):
            async with lock:
                size = share.size
                share.release()
                name = str(value.get("previous_response_id"))
                steered = self._pending.pop((stream_id, name), None)
                wanted: dict[str, Any] | None = steered.joined(value) if steered else value
                is_sent = True
                while wanted is not None:
                    try:
                        steered = await self._answer(wanted, size, stream_id)
                        wanted, is_sent = await self._continuing(wanted, steered), False
                    except WebSocketDisconnect:
                        raise
                    except Exception as error:
                        if not isinstance(error, ApiError):
                            log.exception("a request over a WebSocket broke")
                        await self._evict_continued(wanted or value)
                        refusal = error if isinstance(error, ApiError) else internal_error()
                        if is_sent:
                            await self._refuse(refusal, stream_id)
                        if steered is not None:
                            code = "successor_creation_failed"
                            await self._return_input(steered.steers, code, str(refusal), steered)
                        return

    async def _answer(
        self, value: dict[str, Any], size: int, stream_id: str | None
    ) -> SteeredResponse:
        """Answer a request, and return its response once that has ended. Raises ApiError."""
        if value.get("type") != "response.create":
            raise invalid("type", "The type of a message must be 'response.create'.")
        if not isinstance(generate := value.get("generate"), bool | None):
            raise invalid("generate", "'generate' must be true or false.", "invalid_type")
        # Over a connection every response is streamed, and none outlives it.
        fields = {name: part for name, part in value.items() if name not in FRAME_FIELDS}
        fields |= {"stream": True, "background": False}
        wanted = request_from_object(fields, size, lenient=self._service.options.lenient)
        job = prefill if generate is False else None
        if job is not None and wanted.conversation_id is not None:
            # Its input comes again with the request that it prepares.
            wanted = wanted.model_copy(update={"store": False})
        service, running = self._service, None

        async def beat() -> None:
            await self._send(keepalive_json(running.number if running else 0), stream_id)

        async with Heartbeat(beat, service.options.keepalive_seconds) as heartbeat:
            turn = await service.begin(wanted, job, self._cache)
            plan, name = service.running[turn], turn.response.id
            running = self._running[name] = SteeredResponse(turn, stream_id)
            try:
                async for official in official_batches(turn, service):
                    for event in official:
                        if isinstance(event, ev.Terminal):
                            del self._running[name]  # nothing more is accepted
                            if event.response.status == "failed":
                                await self._evict_continued(value)
                            if wanted.store is False:
                                self._cache.add(plan.served_turn())
                        if running.inserted:
                            number = event.sequence_number + running.inserted
                            event = event.model_copy(update={"sequence_number": number})
                        running.number = event.sequence_number
                        heartbeat.has_sent = True
                        await self._send(self._encoder.json(event), stream_id)
            except WebSocketDisconnect:
                raise
            except Exception:
                self._running.pop(name, None)  # nothing more is accepted
                why = "The response broke."
                await self._return_input(running.steers, "response_not_active", why, running)
                raise
            finally:
                self._running.pop(name, None)
                # Not awaited: this task may be cancelled again, and the response stored before its end.
                service.abandon(turn)
        return running

    async def _steer(self, value: dict[str, Any], size: int) -> None:
        """Accept what the client says while a response runs, or say why not."""
        steer = Steer(str(value.get("previous_response_id")), value.get("input"), size)
        running, code = self._running.get(steer.target), "invalid_input"
        waiting = (*self._running.values(), *self._pending.values())
        sizes = [size, *(queued.size for each in waiting for queued in each.steers)]
        try:
            validate(SteerRequest, value, extra=None)
            if running is None:
                stored = await self._cache.find(steer.target)
                is_over = stored is not None and stored.response.status == "completed"
                code = "response_already_completed" if is_over else "response_not_found"
                raise invalid("previous_response_id", "This response does not run here.")
            if running.turn.response.conversation is not None:
                code = "steering_not_supported"
                raise invalid("previous_response_id", "It belongs to a conversation.")
            if len(sizes) > MAX_PENDING_STEERS or sum(sizes) > MAX_PENDING_BYTES:
                code = "too_many_pending_steers"
                limits = f"{MAX_PENDING_STEERS} inputs of {MAX_PENDING_BYTES:,} bytes together"
                raise invalid("input", f"At most {limits} may wait.")
        except ApiError as error:
            await self._return_input([steer], code, str(error), running)
        else:
            steer = replace(steer, id=new_id("steer"))
            running.steers.append(steer)
            running.turn.is_steered = True
            await self._tell("accepted", [steer], running)

    async def _continuing(
        self, value: dict[str, Any], ended: SteeredResponse
    ) -> dict[str, Any] | None:
        """Return the request that continues a steered response now; None: there is none."""
        response = ended.turn.response
        if ended.steers and (needed := required_input(response)):
            self._pending[ended.stream_id, response.id] = ended
            fields = {"reason": "waiting_for_required_input", "required_input": needed}
            await self._tell("pending", ended.steers, ended, **fields)
        elif response.status in ("failed", "cancelled"):
            why = f"The response is {response.status}."
            await self._return_input(ended.steers, "response_not_active", why, ended)
        elif ended.steers:
            return ended.continued(value)
        return None

    async def _return_input(
        self, steers: Sequence[Steer], code: str, message: str, response: SteeredResponse | None
    ) -> None:
        error = {"type": "invalid_request_error", "code": code, "message": message}
        await self._tell("failed", steers, response, error=error)

    async def _tell(
        self, kind: str, steers: Sequence[Steer], response: SteeredResponse | None, **fields: object
    ) -> None:
        """Send an event about each of these messages, numbered among those of the response."""
        for steer in steers:
            if response is not None:
                response.number, response.inserted = response.number + 1, response.inserted + 1
            number = 0 if response is None else response.number
            event = {"type": f"response.steer.{kind}", "sequence_number": number}
            named = {"previous_response_id": steer.target}
            named |= {"id": steer.id} if steer.id else {}
            named |= {"input": steer.sent} if kind == "failed" else {}
            line = json.dumps({**event, "steer": named, **fields}, ensure_ascii=False)
            await self._send(line, None if response is None else response.stream_id)

    async def _evict_continued(self, value: dict[str, Any]) -> None:
        """Forget the unstored response that a failed request continues, as OpenAI does."""
        if isinstance(name := value.get("previous_response_id"), str):
            await self._cache.delete(name)

    async def _refuse(self, error: ApiError, stream_id: str | None) -> None:
        log.info("WebSocket: %d %s", error.status, error.code)
        headers = {"headers": dict(error.headers)} if error.headers else {}
        message = {"type": "error", "status": error.status, "error": error.body | headers}
        await self._send(json.dumps(message, ensure_ascii=False), stream_id)

    async def _send(self, line: str, stream_id: str | None) -> None:
        """Send a JSON object, with the ``stream_id`` of its request as a further key."""
        if stream_id is not None:
            line = f'{line[:-1]},"stream_id":{json.dumps(stream_id)}}}'
        if self._socket.application_state is WebSocketState.DISCONNECTED:
            raise WebSocketDisconnect  # the message of another stream has noticed it
        await self._socket.send_text(line)


def _stream_id(value: dict[str, Any]) -> str | None:
    name = value.get("stream_id")
    if name is None or (isinstance(name, str) and len(name) <= MAX_STREAM_ID_CHARACTERS):
        return name
    message = f"'stream_id' must be a string of {MAX_STREAM_ID_CHARACTERS} characters at most."
    raise invalid("stream_id", message)
