"""Reads the bodies of HTTP responses within bounds, before the SDK sees any of them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import mcp.types as T

from tools.mcp import answers, limits

MAX_FIELD_BYTES = 1024
"""Limit of an event's name, id and retry; longer ones are ignored."""
MIN_RETRY_MS, MAX_RETRY_MS = 500, 60_000
"""Longest pause before the next connection that a server may demand."""
MAX_LARGE_MESSAGES = 16
"""Messages that are kept until the SDK passes them on; it does not report those that it drops."""
_TOKEN_KEY = "agent.large_message"
_INVALID = b"a large message that is no JSON-RPC"


class LargeMessages:
    """Parses the large messages of events, which the SDK would copy and print into a log line: it
    passes on a small one with a token, which ``restore`` replaces."""

    def __init__(self) -> None:
        self._contents: dict[str, dict[str, Any]] = {}

    def replace(self, data: bytes | bytearray, request_id: T.RequestId | None = None) -> bytearray:
        """Return the message that stands for this one; for an invalid one, a short invalid one.
        ``request_id``: of the request that it is the answer to, if it is an answer."""
        try:
            messages = answers.parse_messages(data, request_id)
            # A batch has one answer at most that is wanted.
            message = next((m for m in messages if hasattr(m, "id")), messages[0])
        except (ValueError, IndexError):
            return bytearray(_INVALID)
        token = secrets.token_hex() if len(data) > limits.LARGE_MESSAGE_BYTES else ""
        match message:
            case T.JSONRPCError():
                message.error.data = None if token else message.error.data
                message.error.message = message.error.message[: limits.MAX_ERROR_CHARS]
            case _ if not token:
                pass
            case T.JSONRPCResponse():
                self._contents[token], message.result = message.result, {_TOKEN_KEY: token}
            case _:
                self._contents[token], message.params = message.params or {}, {_TOKEN_KEY: token}
        while len(self._contents) > MAX_LARGE_MESSAGES:
            del self._contents[next(iter(self._contents))]
        return bytearray(message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    def restore(self, message: T.JSONRPCMessage) -> None:
        match message:
            case T.JSONRPCResponse():
                token = str(message.result.get(_TOKEN_KEY))
                message.result = self._contents.pop(token, message.result)
            case T.JSONRPCRequest() | T.JSONRPCNotification() if message.params:
                token = str(message.params.get(_TOKEN_KEY))
                message.params = self._contents.pop(token, message.params)


def content_type(response: httpx2.Response) -> str:
    return str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()


class BoundedBody(httpx2.AsyncByteStream):
    """The decoded body, whole or event by event; each message has been measured when it is yielded."""

    def __init__(
        self,
        response: httpx2.Response,
        seconds: float,
        large_messages: LargeMessages,
        on_cut_off: Callable[[str], None],
        shared_turn: asyncio.Lock | None = None,
        request_id: T.RequestId | None = None,
    ) -> None:
        """``seconds``: the time for a body other than a stream of events. ``on_cut_off`` is called with
        a clause before StreamError or SSEError is raised. ``shared_turn``: of the servers whose large
        messages come one at a time. ``request_id``: of the request that it answers."""
        self._encoded = httpx2.Response(
            response.status_code, headers=response.headers, stream=response.stream
        )
        kind = content_type(response)
        self._is_json = kind.startswith("application/json")
        self._is_stream = kind == "text/event-stream"
        self._seconds, self._on_cut_off = seconds, on_cut_off
        self._large_messages, self._request_id = large_messages, request_id
        self._turn = limits.LargeMessageTurn(shared_turn)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._is_stream:
                async for event in self._events():
                    yield event
            else:
                yield await self._document()
        except httpx2.TransportError:
            if self._is_stream:
                raise  # the SDK resumes it
            self._on_cut_off(reason := "its answer broke off")
            raise httpx2.StreamError(reason) from None
        except limits.MessageLimitError as error:
            self._on_cut_off(str(error))
            # The SDK turns this into the error of the one request.
            failure = httpx2.SSEError if self._is_stream else httpx2.StreamError
            raise failure(str(error)) from None
        finally:  # a document has not been parsed yet; that comes in the same step of the loop
            self._turn.release()

    async def aclose(self) -> None:
        self._turn.release()
        await self._encoded.aclose()

    async def _document(self) -> bytes:
        # Not a bytearray: one that grows is copied, and takes twice as much meanwhile.
        loop, chunks, size = asyncio.get_running_loop(), list[bytes](), 0
        deadline = loop.time() + self._seconds
        try:
            async for chunk in self._turn.limited(self._encoded.aiter_bytes()):
                chunks.append(chunk)
                size += len(chunk)
                limits.check_size(size)
                if loop.time() > deadline:
                    reason = f"it sent one answer for more than {self._seconds:g} s"
                    raise limits.MessageLimitError(reason)
                if size > limits.LARGE_MESSAGE_BYTES:
                    await self._turn.take()
            body = b"".join(chunks)
        finally:  # a kept exception keeps this frame
            chunks.clear()
        if self._is_json:
            await limits.check_json(body)
            if self._request_id is None:
                return bytes(answers.replace_lone_surrogates(body))
            return bytes(self._large_messages.replace(body, self._request_id))
        return body

    async def _events(self) -> AsyncIterator[bytes]:
        throttle, event, line = limits.Throttle(), _Event(), bytearray()
        async for piece in self._pieces():
            await throttle.wait(piece)
            *ends, rest = piece.split(b"\n")
            for end in ends:
                line += end
                if line:
                    event.add(line)
                    line = bytearray()
                elif event.fields:
                    await limits.check_json(event.data)
                    if len(event.data) > limits.LARGE_MESSAGE_BYTES:
                        await self._turn.take()
                    if event.data.strip() and event.is_message:
                        event.data = self._large_messages.replace(event.data, self._request_id)
                    self._turn.release()
                    yield event.take()
            line += rest
            size = len(line) + len(event.data)
            try:
                limits.check_size(size)
            except limits.MessageLimitError:  # a kept exception keeps its frame
                line.clear()
                event.data.clear()
                raise
            if size > limits.LARGE_MESSAGE_BYTES:
                await self._turn.take()
            else:  # what was large may have been a comment
                self._turn.release()

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in small pieces, with newlines as line ends."""
        before = b""
        async for chunk in self._turn.limited(self._encoded.aiter_bytes()):
            for start in range(0, len(chunk), limits.STEP_BYTES):
                piece = before + chunk[start : start + limits.STEP_BYTES]
                before = b"\r" if piece.endswith(b"\r") else b""  # its newline may follow
                piece = piece.removesuffix(b"\r")
                yield piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        yield before.replace(b"\r", b"\n")


class _Event:
    """One server-sent event while its lines come
    (https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation)."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.fields: dict[bytes, bytes] = {}

    def add(self, line: bytearray) -> None:
        """Take a line; comments, unknown fields and overlong values are left out."""
        if line.startswith(b"data:"):
            # In JSON a space is as good as a newline.
            self.data += b" " if self.data else b""
            self.data += memoryview(line)[5:]
            self.fields[b"data"] = b""
        elif len(line) <= MAX_FIELD_BYTES:
            name, _, value = bytes(line).partition(b":")
            if name == b"retry" and value.strip().isdigit():
                value = b"%d" % min(max(int(value), MIN_RETRY_MS), MAX_RETRY_MS)
            if name in (b"event", b"id", b"retry"):
                self.fields[name] = value

    @property
    def is_message(self) -> bool:
        return self.fields.get(b"event", b"").strip() in (b"", b"message")

    def take(self) -> bytes:
        fields = self.fields
        if b"data" in fields:
            fields[b"data"] = bytes(self.data)
        self.fields, self.data = {}, bytearray()
        return b"".join(b"%b:%b\n" % field for field in fields.items()) + b"\n"
