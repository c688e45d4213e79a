"""Bounds the size, shape and speed of a server's messages. JSON is measured before it is parsed, in
less than 0.1 s then: one byte of it can become hundreds of bytes of objects."""

import asyncio
from collections.abc import AsyncIterator
from itertools import accumulate

import mcp.types as T
from mcp.shared.message import SessionMessage

from agent.errors import AgentError
from agent.util.json_text import StringSkipper
from tools.mcp import answers
from tools.mcp.listing import MAX_TOOLS
from tools.results import shorten

MAX_MESSAGE_BYTES = 16 << 20
"""Size of one message, uncompressed."""
MAX_JSON_VALUES, MAX_JSON_DEPTH = 100_000, 190
"""JSON values of one message, and levels of nesting; from 200 on pydantic's parser gives up."""
MAX_ERROR_CHARS = 4000
STEP_BYTES = 1 << 16
"""Bytes of a message that are measured before other tasks run."""
BURST_BYTES, BYTES_PER_SECOND = 64 << 20, 16 << 20
"""Burst that a server may send at once, and rate per second after it; more has to wait."""
LINE_COST_BYTES = 16 << 10
"""Overhead that is added to the size of each line: a message takes time, however small."""
LARGE_MESSAGE_BYTES = 32 << 10
"""Longer messages of clients' servers are sent one at a time, and those in events are parsed by us."""
LARGE_MESSAGE_SECONDS = 10.0
"""Time for a large message, from when it is its turn, while other servers' wait."""

_LISTS = ("tools", "resources", "resourceTemplates", "prompts", "contents", "messages")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NESTING = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class MessageLimitError(AgentError):
    """A server exceeds a limit; the message is a clause: it sent …"""


def check_size(size: int) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise MessageLimitError(f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MiB")


async def check_json(data: bytes | bytearray) -> None:
    """Raise MessageLimitError if JSON, up to an error in it, has too many values or is too deep."""
    meter = JsonMeter()
    for start in range(0, len(data), STEP_BYTES):
        if start:
            await asyncio.sleep(0)
        meter.feed(bytes(data[start : start + STEP_BYTES]))


class JsonMeter:
    """Counts the values of JSON that comes in pieces, and the levels of nesting."""

    def __init__(self) -> None:
        self.values = self.depth = 0
        self._strings = StringSkipper()

    def feed(self, piece: bytes) -> None:
        """Count a piece; raises MessageLimitError."""
        outside = self._strings.skip(piece)
        # Each value but the outermost is the first of an array or object, or follows a comma.
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if self.values > MAX_JSON_VALUES:
            raise MessageLimitError(f"it sent a message of more than {MAX_JSON_VALUES:,} values")
        brackets = outside.translate(None, _NOT_BRACKETS)
        depths = list(accumulate(map(_NESTING.__getitem__, brackets), initial=self.depth))
        self.depth = depths[-1]
        if max(depths) > MAX_JSON_DEPTH:
            raise MessageLimitError(f"it sent a message nested more than {MAX_JSON_DEPTH} levels")


def bound_message(message: SessionMessage) -> SessionMessage | None:
    """Shorten what would cost the SDK or a reader much; None: the message is to be ignored."""
    inner = message.message
    if isinstance(inner, T.JSONRPCError):
        failure = inner.error
        failure.message = shorten(failure.message, MAX_ERROR_CHARS)
        # Else it is the SDK's own, of a stream that has ended.
        if failure.code != T.CONNECTION_CLOSED or not failure.message.startswith("SSE s"):
            answers.from_server(failure)
        return message
    fields = inner.result if isinstance(inner, T.JSONRPCResponse) else inner.params or {}
    lists = {key: fields[key] for key in _LISTS if isinstance(fields.get(key), list)}
    for key, items in lists.items():
        if len(items) > MAX_TOOLS:
            if not isinstance(inner, T.JSONRPCResponse):
                return None
            reason = f"it lists more than {MAX_TOOLS:,} {key}"
            error = T.ErrorData(code=T.INTERNAL_ERROR, message=reason)
            return SessionMessage(T.JSONRPCError(jsonrpc="2.0", id=inner.id, error=error))
    return message


class LargeMessageTurn:
    """A connection's turn to send a large message, among servers that share a lock: otherwise clients'
    servers could fill the memory. Who waits is not read from."""

    def __init__(self, shared: asyncio.Lock | None) -> None:
        """``shared``: None if the server need not wait for others."""
        self._shared, self._deadline = shared, 0.0

    async def take(self) -> None:
        """Wait until no other server sends a large message. No effect if it is this one's turn."""
        if self._shared is not None and not self._deadline:
            await self._shared.acquire()
            self._deadline = asyncio.get_running_loop().time() + LARGE_MESSAGE_SECONDS

    def release(self) -> None:
        """Let the next one send. No effect if it is not this one's turn."""
        if self._shared is not None and self._deadline:
            self._deadline = 0.0
            self._shared.release()

    async def limited(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield chunks; raises MessageLimitError if one of a large message comes too late."""
        while True:
            try:
                async with asyncio.timeout_at(self._deadline or None):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                reason = f"it sent a large message for more than {LARGE_MESSAGE_SECONDS:g} s"
                raise MessageLimitError(reason) from None
            yield chunk


class Throttle:
    """Slows the reading of a server that sends more than anyone needs."""

    def __init__(self) -> None:
        self._level = self._checked = 0.0

    async def wait(self, chunk: bytes) -> None:
        now = asyncio.get_running_loop().time()
        self._level = max(self._level - (now - self._checked) * BYTES_PER_SECOND, 0)
        self._level += len(chunk) + LINE_COST_BYTES * chunk.count(b"\n")
        self._checked = now
        await asyncio.sleep(max(self._level - BURST_BYTES, 0) / BYTES_PER_SECOND)
