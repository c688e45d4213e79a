"""HTTP and WebSocket clients that try to take the server's memory or time.

Each attack aims just below, at or above a documented limit, or at what may have been forgotten.
It counts what the server answers, ends within 15 seconds and closes its sockets. Bounds of one
attack: 10 MiB a request, 96 MiB in all, 1,200 connections; what it compresses is 128 MiB long.
"""

import asyncio
import base64
import io
import json
import re
import resource
import socket
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.attack.payloads import payload, read_lists

MIB = 1 << 20
MOST_BODY = 8 * MIB
MOST_VALUES = 250_000
MOST_TOOL_VALUES = 30_000
MOST_SERVER_CONNECTIONS = 512

ATTACK_SECONDS = 13.0
HOLD_SECONDS = 6.0
MOST_REQUEST = 10 * MIB
MOST_BYTES = 96 * MIB
MOST_CONNECTIONS = 1_200
BOMB_BYTES = 128 * MIB
PIECE = 1 << 18

RESPONSES = "/v1/responses"
CHAT = "/v1/chat/completions"
TOKENS = "/v1/responses/input_tokens"
COMPACT = "/v1/responses/compact"

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_RESPONSE_ID = re.compile(rb'"id":\s*"(resp_[^"]{1,200})"')
_LAST_EVENT = re.compile(rb'"type":\s*"(error|response\.(?:completed|failed|incomplete))"')


@dataclass(frozen=True)
class Target:
    """The server to attack."""

    host: str
    port: int
    model: str


_target = Target("127.0.0.1", 0, "")
"""The server that is attacked now."""


@dataclass(frozen=True)
class Answer:
    """The first status of an answer, or what came instead of one, and some of its body."""

    label: str
    body: bytes = b""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Payload = bytes | Iterable[bytes]


class Clients:
    """The connections of one attack, and the counts of what the server answered."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.answers: Counter[str] = Counter()
        self.notes: list[str] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections = 0
        self._sent = 0

    async def connect(self, *, unread: bool = False) -> Streams:
        """Open a connection; with unread, its buffers are small and nobody empties them."""
        self._connections += 1
        if self._connections > MOST_CONNECTIONS:
            raise RuntimeError("An attack opened too many connections.")
        host, port = self.target.host, self.target.port
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            sock.setblocking(False)
            if unread:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            reader, writer = await asyncio.open_connection(
                sock=sock, limit=1 if unread else 1 << 16
            )
        except BaseException:
            sock.close()
            raise
        self._writers.add(writer)
        return reader, writer

    def leave(self, writer: asyncio.StreamWriter, *, reset: bool = False) -> None:
        """Close a connection at once; with reset, by a RST segment."""
        if reset:
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        self._writers.discard(writer)

    async def close(self) -> None:
        """Close all connections that are still open."""
        for writer in list(self._writers):
            self.leave(writer)
        for _ in range(3):
            await asyncio.sleep(0)

    async def send(self, writer: asyncio.StreamWriter, data: Payload, pause: float = 0) -> None:
        """Send bytes, or pieces with pauses between them, and count them."""
        pieces = _cut(data) if isinstance(data, bytes) else data
        request = 0
        for piece in pieces:
            request += len(piece)
            self._sent += len(piece)
            if request > MOST_REQUEST or self._sent > MOST_BYTES:
                raise RuntimeError("An attack sent too many bytes.")
            writer.write(piece)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)

    @asynccontextmanager
    async def sending(
        self, data: Payload, *, pause: float = 0, unread: bool = False
    ) -> AsyncIterator[asyncio.StreamReader]:
        """Open a connection and send on it while its reader is used."""
        reader, writer = await self.connect(unread=unread)
        task = asyncio.create_task(self._send_quietly(writer, data, pause))
        try:
            yield reader
        finally:
            task.cancel()
            self.leave(writer)
            (error,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(error, RuntimeError):
                raise error

    async def _send_quietly(
        self, writer: asyncio.StreamWriter, data: Payload, pause: float
    ) -> None:
        try:
            await self.send(writer, data, pause)
        except OSError:
            pass  # the reader says what happened

    async def ask(
        self, data: Payload, *, seconds: float = 8.0, pause: float = 0, count: bool = True
    ) -> Answer:
        """Send one request on a new connection and read its answer to the end."""
        label, body = "silence", b""
        try:
            async with asyncio.timeout(seconds), self.sending(data, pause=pause) as reader:
                label = await _read_status(reader)
                body = await _read_some(reader)
        except TimeoutError:
            if label != "silence":
                label += " without end"
        except OSError:
            if label == "silence":
                label = "reset"
        if count:
            self.answers[label] += 1
        return Answer(label, body)

    async def ask_each(self, requests: Iterable[Payload], *, seconds: float = 8.0) -> None:
        """Send requests one after the other."""
        for data in requests:
            await self.ask(data, seconds=seconds)

    async def ask_together(
        self,
        requests: Iterable[Payload],
        *,
        seconds: float = HOLD_SECONDS,
        pause: float = 0,
        at_once: int = MOST_CONNECTIONS,
    ) -> None:
        """Send requests at the same time, on a connection each."""
        gate = asyncio.Semaphore(at_once)

        async def ask_once(data: Payload) -> None:
            async with gate:
                await self.ask(data, seconds=seconds, pause=pause)

        async with asyncio.TaskGroup() as group:
            for data in requests:
                group.create_task(ask_once(data))

    async def hold(self, requests: Iterable[Payload], *, seconds: float = HOLD_SECONDS) -> None:
        """Send requests together and read nothing of the answers; then leave."""

        async def hold_open(data: Payload) -> None:
            label = "silence"
            try:
                reader, writer = await self.connect(unread=True)
                try:
                    async with asyncio.timeout(seconds):
                        await self.send(writer, data)
                        await asyncio.sleep(seconds)
                except TimeoutError:
                    pass
                async with asyncio.timeout(0.3):
                    found = _STATUS.match(await reader.read(64))
                    label = f"{found[1].decode()} unread" if found else "closed"
                self.leave(writer)
            except TimeoutError:
                pass
            except OSError:
                label = "reset"
            self.answers[label] += 1

        async with asyncio.TaskGroup() as group:
            for data in requests:
                group.create_task(hold_open(data))

    async def hurry(
        self, requests: Iterable[bytes], *, wait: float = 0, reset: bool = False
    ) -> None:
        """Send requests one after the other, and leave each after a moment."""
        for data in requests:
            try:
                async with asyncio.timeout(3):
                    _, writer = await self.connect()
                    await self.send(writer, data)
                    await asyncio.sleep(wait)
                    self.leave(writer, reset=reset)
                self.answers["left"] += 1
            except TimeoutError:
                self.answers["silence"] += 1
            except OSError:
                self.answers["reset"] += 1

    async def pipeline(self, data: bytes, count: int, *, seconds: float = 8.0) -> None:
        """Send many requests in one go on one connection, and count the answers to them."""
        tail, found = b"", 0
        try:
            async with asyncio.timeout(seconds), self.sending(data) as reader:
                while found < count and (piece := await reader.read(PIECE)):
                    for status in _STATUS.findall(tail + piece):
                        self.answers[status.decode()] += 1
                        found += 1
                    tail = (tail + piece)[-11:]
        except TimeoutError:
            self.answers["silence"] += 1
        except OSError:
            self.answers["reset"] += 1
        if found < count:
            self.notes.append(f"{found} of {count} were answered")

    async def talk(
        self,
        data: Payload,
        *,
        replies: int = 1,
        seconds: float = 6.0,
        pause: float = 0,
        heads: bytes = b"",
    ) -> None:
        """Open a WebSocket, send frames, and count what comes until so many turns have ended."""
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await self.open_websocket(heads)
                task = asyncio.create_task(self._send_quietly(writer, data, pause))
                try:
                    await self._hear(reader, replies)
                finally:
                    task.cancel()
                    self.leave(writer)
                    (error,) = await asyncio.gather(task, return_exceptions=True)
                    if isinstance(error, RuntimeError):
                        raise error
        except TimeoutError:
            self.answers["silence"] += 1
        except (OSError, asyncio.IncompleteReadError):
            self.answers["reset"] += 1
        except NoWebSocket as error:
            self.answers[str(error)] += 1

    async def open_websocket(self, heads: bytes) -> Streams:
        """Upgrade a connection."""
        reader, writer = await self.connect()
        await self.send(writer, upgrade(heads))
        status = await _read_status(reader)
        if status != "101":
            raise NoWebSocket(status)
        return reader, writer

    async def _hear(self, reader: asyncio.StreamReader, replies: int) -> None:
        heard = 0
        while heard < replies:
            first, second = await reader.readexactly(2)
            length = second & 127
            if length >= 126:
                length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
            if length > 4 * MOST_REQUEST:
                self.answers["frame too long"] += 1
                return
            payload = await reader.readexactly(length)
            opcode = first & 15
            if opcode == 8:
                self.answers[f"close {int.from_bytes(payload[:2], 'big')}"] += 1
                return
            if opcode in (9, 10):
                self.answers["pong" if opcode == 10 else "ping"] += 1
            elif found := _LAST_EVENT.search(payload):
                self.answers[found[1].decode()] += 1
                heard += 1

    def describe(self) -> str:
        """Say in one sentence what came back."""
        counts = ", ".join(f"{label} ×{count}" for label, count in self.answers.most_common(12))
        return "; ".join([counts or "no answer", *self.notes]) + "."


class NoWebSocket(Exception):
    """The server did not upgrade; the message is its status."""


def _cut(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


async def _read_status(reader: asyncio.StreamReader) -> str:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            head = error.partial
        except asyncio.LimitOverrunError:
            head = await reader.read(1024)
        found = _STATUS.match(head)
        if not found:
            return "no HTTP" if head else "closed"
        if found[1] != b"100":
            return found[1].decode()


async def _read_some(reader: asyncio.StreamReader, most: int = 1 << 16) -> bytes:
    """Read to the end, and return the beginning."""
    body = b""
    while piece := await reader.read(PIECE):
        if len(body) < most:
            body += piece[:most]
    return body


# Requests.


def request(
    path: str = RESPONSES,
    body: bytes | None = None,
    *heads: str,
    method: str = "",
    close: bool = True,
) -> bytes:
    """Write a request; a body gets its Content-Length and is JSON."""
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", _host()]
    if close:
        lines.append("Connection: close")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *heads, "", ""]).encode() + (body or b"")


def begin(*heads: str, path: str = RESPONSES) -> bytes:
    """Write the head of a POST, with all lines about its body left to the caller."""
    lines = [f"POST {path} HTTP/1.1", _host(), "Content-Type: application/json", *heads]
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(heads: bytes = b"") -> bytes:
    """Write the request that opens a WebSocket."""
    return (
        f"GET {RESPONSES} HTTP/1.1\r\n{_host()}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
    ).encode() + (heads + b"\r\n")


def _host() -> str:
    host = f"[{_target.host}]" if ":" in _target.host else _target.host
    return f"Host: {host}:{_target.port}"


def fields(text: bytes = b"", *, store: bool = False) -> bytes:
    """Write a request's JSON object: a model, few tokens, and the given fields."""
    start = {"model": _target.model, "max_output_tokens": 16, "store": store}
    text = text or b'"input":"Hi"'
    return json.dumps(start).encode()[:-1] + b"," + text + b"}"


def chat(text: bytes) -> bytes:
    """Write the JSON object of a chat completion."""
    return json.dumps({"model": _target.model, "max_tokens": 16}).encode()[:-1] + b"," + text + b"}"


def post(text: bytes = b"", *, store: bool = False, close: bool = True) -> bytes:
    """Write a whole POST /v1/responses."""
    return request(RESPONSES, fields(text, store=store), close=close)


def post_chat(text: bytes) -> bytes:
    """Write a whole POST /v1/chat/completions."""
    return request(CHAT, chat(text))


def fill(before: bytes, size: int, after: bytes) -> bytes:
    """Write a request with a body of exactly so many bytes, padded between two texts."""
    rest = size - len(fields(before + after))
    return post(before + b"a" * rest + after)


# JSON values.


def repeat(item: bytes, count: int, start: bytes = b"[", end: bytes = b"]") -> bytes:
    """Write a list, or something between other brackets, of equal items."""
    return start + (item + b",") * (count - 1) + item + end


def number(template: bytes, count: int, start: bytes = b"[", end: bytes = b"]") -> bytes:
    """Write a list of items that differ by a number (%d)."""
    return start + b",".join(template % index for index in range(count)) + end


def nest(depth: int, start: bytes = b"[", end: bytes = b"]", inner: bytes = b"") -> bytes:
    """Write a value of some depth."""
    return start * depth + inner + end * depth


def string(text: bytes, count: int = 1) -> bytes:
    """Write a text in quotes; it is repeated."""
    return b'"' + text * count + b'"'


def write_shapes(values: int, size: int) -> Iterator[bytes]:
    """Write JSON values of many shapes: at most so many values, about so many bytes."""
    yield repeat(b"[]", values)
    yield repeat(b"{}", values)
    yield repeat(b'{"a":0}', values // 2)
    yield repeat(b'{"a":{"b":[]}}', values // 5)
    yield repeat(b"[[[[]]]]", values // 4)
    yield number(b"%d000001", values)
    yield repeat(b"-1.5e-300", values)
    yield number(b'"\xc3\xa9%d"', values)
    yield number(b'"k%d":0', values // 2, b"{", b"}")
    yield repeat(b'"a":[]', values, b"{", b"}")
    yield repeat(b"NaN,-Infinity", values // 2)
    for depth in (100, 200, 500, 900, 990, 1_000, 5_000, 100_000):
        yield nest(depth)
        yield nest(depth, b'{"a":', b"}", b"0")
    yield string(b"a" * (size - 6) + b"\xf0\x9f\x98\x80")
    yield string(rb"\u0000", (size - 2) // 6)
    yield string(rb"\ud83d\ude00", (size - 2) // 12)
    yield string(rb"\ud800", (size - 2) // 12)
    yield b"9" * (size // 4)
    yield b"0." + b"3" * (size // 4)
    yield b"1e" + b"9" * 10_000
    yield b"1E+999999999"
    yield repeat(b"9" * 4_300, size // 16 // 4_301)
    yield repeat(b"9" * 4_301, size // 16 // 4_302)


# Attacks are steps: what is sent, and how.

Step = Callable[[Clients], Awaitable[object]]
Make = Callable[[], Iterable[Payload]]
ATTACKS: dict[str, Callable[[Target], Awaitable[str]]] = {}
MANY_CONNECTIONS: set[str] = set()
"""Attacks that take every connection."""


def attack(name: str, *steps: Step, many: bool = False) -> None:
    """Add an attack; `many`: it opens hundreds of connections."""

    async def run(target: Target) -> str:
        global _target
        _target = target
        if many and not allow_open_files(MOST_CONNECTIONS + 200):
            return "Skipped: this process may not open enough files."
        clients = Clients(target)
        try:
            async with asyncio.timeout(ATTACK_SECONDS):
                for step in steps:
                    await step(clients)
        except TimeoutError:
            clients.notes.append(f"stopped after {ATTACK_SECONDS:.0f} s")
        except OSError as error:
            clients.notes.append(f"ended by {type(error).__name__}")
        finally:
            await clients.close()
        return clients.describe()

    if name in ATTACKS:
        raise ValueError(f"Two attacks are called {name}.")
    ATTACKS[name] = run
    if many:
        MANY_CONNECTIONS.add(name)


def in_turn(make: Make, seconds: float = 8.0) -> Step:
    """Send requests one after the other, and read the answers."""
    return lambda clients: clients.ask_each(make(), seconds=seconds)


def at_once(make: Make, seconds: float = HOLD_SECONDS, **options: Any) -> Step:
    """Send requests at the same time, and read the answers."""
    return lambda clients: clients.ask_together(make(), seconds=seconds, **options)


def hold(make: Make, seconds: float = HOLD_SECONDS) -> Step:
    """Send requests at the same time, and read nothing."""
    return lambda clients: clients.hold(make(), seconds=seconds)


def hurry(make: Callable[[], Iterable[bytes]], **options: Any) -> Step:
    """Send requests one after the other, and leave each."""
    return lambda clients: clients.hurry(make(), **options)


def pipeline(make: Callable[[], bytes], count: int, seconds: float) -> Step:
    """Send many requests in one go on one connection."""
    return lambda clients: clients.pipeline(make(), count, seconds=seconds)


def talk(make: Make, seconds: float = 6.0, **options: Any) -> Step:
    """Send each of these over a WebSocket of its own."""

    async def step(clients: Clients) -> None:
        for data in make():
            await clients.talk(data, seconds=seconds, **options)

    return step


def allow_open_files(count: int) -> bool:
    """Raise this process's limit of open files, if need be; say whether that worked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return True
    if hard != resource.RLIM_INFINITY and hard < count:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except (OSError, ValueError):
        return False
    return True


_IN_MESSAGE = b'"input":[{"role":"user","content":'
_IN_CALL = b'"input":[{"type":"function_call","call_id":"c","name":"f","arguments":'
_IN_TOOL = b'"input":"Hi","tools":[{"type":"function","name":"f",'
_IN_FORMAT = b'"input":"Hi","text":{"format":{"type":"json_schema","name":"n",'

# What http_requests.txt lists.

_PARTS = {"VALUE": b"v" * 512, "BYTES": bytes(range(256))}


def _raw(pattern: str) -> bytes:
    return b"".join(payload(pattern, _PARTS)())


_FORMS: dict[str, Callable[[str], bytes]] = {
    "fields": lambda pattern: post(_raw(pattern)),
    "stream": lambda pattern: _stream(_raw(pattern)),
    "content": lambda pattern: post(_IN_MESSAGE + _raw(pattern) + b"}]"),
    "head": lambda pattern: request("/health")[:-2] + _raw(pattern) + b"\r\n\r\n",
    "path": lambda pattern: request(_raw(pattern).decode()),
    "raw": _raw,
}


def _put_shapes(path: str, template: bytes, values: int) -> Iterator[bytes]:
    before, after = template.split(b"$")
    for shape in write_shapes(values, MOST_BODY - len(template) - 256):
        text = before + shape + after
        yield request(path, chat(text) if path == CHAT else fields(text))


def _add_shapes(line: str, seconds: float) -> None:
    name, path, template = re.fullmatch("(.+?): (\\S+) (.*)", line).groups()  # type: ignore[union-attr]
    values = (MOST_TOOL_VALUES if "tool" in name and '"tools"' in template else MOST_VALUES) - 100
    make = partial(_put_shapes, f"/v1/{path}", template.encode(), values)
    attack(f"put every shape into {name}", in_turn(make, seconds))


def _add_listed(name: str, form: str, seconds: float, lines: list[str]) -> None:
    if form == "shapes":
        for line in lines:
            _add_shapes(line, seconds)
    elif form == "expression":
        texts = ({"type": "string", "pattern": _raw(line).decode()} for line in lines)
        attack(name, schemas(lambda: texts, seconds))
    else:
        attack(name, in_turn(lambda: map(_FORMS[form], lines), seconds))


# Numbers of values and bytes, around the limits.

attack(
    "send bodies one byte around the limit",
    in_turn(
        lambda: (
            fill(before, size, b'"')
            for size in (MOST_BODY - 1, MOST_BODY, MOST_BODY + 1, MOST_REQUEST - 1024)
            for before in (b'"input":"', b'"input":"Hi","x":"')
        )
    ),
)


def _edge_tools() -> Iterator[bytes]:
    for count in (MOST_TOOL_VALUES - 30, MOST_TOOL_VALUES, MOST_TOOL_VALUES + 1, 8 * 30_000):
        for value in (repeat(b'"a"', count), number(b'"v%d"', count)):
            schema = b'{"type":"object","properties":{"a":{"type":"string","enum":%b}}}' % value
            yield post(_IN_TOOL + b'"parameters":' + schema + b"}]")


attack("send tools' values around their limit", in_turn(_edge_tools))
attack(
    "send the longest bodies at once",
    at_once(
        lambda: [post(b'"input":"Hi","x":' + repeat(b"[]", MOST_BODY // 3 - 128))] * 11, seconds=10
    ),
)
attack(
    "send bodies with the most allowed values at once",
    at_once(
        lambda: [post(b'"input":' + repeat(b'{"a":[]}', MOST_VALUES // 2 - 20))] * 32, seconds=11
    ),
)


def _other_encodings() -> Iterator[bytes]:
    text = "[" + "[]," * 700_000 + "[]]"
    for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7"):
        body = text[: 1_900_000 if "32" in encoding else 3_900_000].encode(encoding)
        yield request(RESPONSES, body)
    form = b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" * 100_000 + b"--b--"
    for body, kind in (
        (b"a=1&" * 2_000_000, "application/x-www-form-urlencoded"),
        (form, "multipart/form-data; boundary=b"),
        (b"[]" * 4_000_000, "text/plain; charset=" + "x" * 4_000),
        (b"0" * 4_000_000, "application/json; charset=utf-16"),
    ):
        head = begin("Connection: close", f"Content-Length: {len(body)}")
        yield head.replace(b"application/json", kind.encode()) + body


attack("send bodies in other encodings and other kinds", in_turn(_other_encodings))


def _json_in_strings() -> Iterator[bytes]:
    size = MOST_BODY - 1024
    output = b'"{}"},{"type":"function_call_output","call_id":"c","output":'
    tail = b'},{"type":"function_call_output","call_id":"c","output":"1"}]'
    for inner in (repeat(b"[]", size // 3), nest(size // 2), b"[" * size):
        yield post(_IN_CALL + string(inner) + tail)
        yield post(_IN_CALL + output + string(inner) + b"}]")
    inner = b'{\\"a\\":' + repeat(b"[]", size // 3 - 16) + b"}"
    yield post(_IN_CALL + string(inner) + tail)
    call = b'{"id":"c","type":"function","function":{"name":"f","arguments":"' + inner + b'"}}'
    text = b'"messages":[{"role":"assistant","content":null,"tool_calls":[' + call + b"]},"
    yield post_chat(text + b'{"role":"tool","tool_call_id":"c","content":"1"}]')
    item = (
        b'{"type":"mcp_call","id":"m","server_label":"s","name":"f","arguments":"%b","output":"1"}'
    )
    yield post(b'"input":[' + item % inner + b"]")


attack("send texts that are JSON of many values again", in_turn(_json_in_strings, 4))

# Numbers of items, messages and tools.


def _items(item: bytes, *counts: int) -> Iterator[bytes]:
    for count in counts:
        yield post(b'"input":' + (number if b"%d" in item else repeat)(item, count))


_MESSAGE = b'{"role":"user","content":"a"}'
attack(
    "send tens of thousands of messages",
    in_turn(lambda: _items(_MESSAGE, 1_000, 9_999, 10_000, 10_001, 83_000), 5),
    in_turn(lambda: [post_chat(b'"messages":' + repeat(_MESSAGE, 83_000))]),
)
_RANGES = ("max_output_tokens", "temperature", "top_p", "top_logprobs", "max_tool_calls")
_HUGE = ("1e308", "-1", "9" * 300, "NaN", "1e999", "18446744073709551616", "0", "true")
attack(
    "ask for numbers beyond any range",
    in_turn(
        lambda: (
            post(f'"input":"Hi","{name}":{value}'.encode()) for name in _RANGES for value in _HUGE
        ),
        1,
    ),
)
_LONG_ANSWERS = (
    b'"enable_response_messages":true',
    b'"enable_response_messages":true,"stream":true',
    b'"top_logprobs":20,"include":["message.output_text.logprobs"]',
    b'"include":["reasoning.encrypted_content"],"stream":true',
    b'"stream":true,"stream_options":{"include_obfuscation":true}',
)
_WORDS = b"word " * 1_500
_LONG_CHAT = b'"messages":[{"role":"user","content":"' + _WORDS + b'"}],'
attack(
    "ask for all that makes an answer long",
    *(
        at_once(
            lambda more=more: [post(more + b',"instructions":"' + _WORDS + b'","input":"Hi"')] * 8,
            seconds=3,
        )
        for more in _LONG_ANSWERS
    ),
    *(
        at_once(lambda more=more: [post_chat(_LONG_CHAT + more)] * 4, seconds=2)
        for more in (b'"n":128', b'"n":1000000000', b'"logprobs":true,"top_logprobs":20', b'"n":-1')
    ),
)

# Texts that are hard to take apart.


def _hard_texts(size: int) -> Iterator[bytes]:
    for piece in (b"a", b" ", rb"\n", b"0", b"aB", "\u0301".encode(), "👩‍👩‍👧".encode(), b"!"):
        yield piece * (size // len(piece))
    for piece in (b"<|start|>", b"<|", "\u202e".encode(), b" a", b"<tool_call>"):
        yield piece * (size // len(piece))


def _count_tokens(text: bytes) -> bytes:
    body = json.dumps({"model": _target.model}).encode()[:-1] + b',"input":' + string(text) + b"}"
    return request(TOKENS, body)


attack(
    "send long texts of one letter",
    in_turn(
        lambda: (
            post(b'"input":' + string(text))
            for text in (*_hard_texts(MIB), b"a" * 7 * MIB, b" " * 7 * MIB)
        ),
        4,
    ),
)
attack(
    "count the tokens of long texts of one letter",
    in_turn(lambda: map(_count_tokens, _hard_texts(4 * MIB)), 4),
)
attack(
    "count the tokens of many long texts at once",
    at_once(lambda: [_count_tokens(b"word, " * 300_000)] * 50, seconds=10),
)

# Images and files.


def squeeze(size: int, *, bits: int = 15, byte: bytes = b"\0") -> bytes:
    """Compress so many equal bytes without holding them."""
    packer = zlib.compressobj(6, zlib.DEFLATED, bits)
    block = byte * MIB
    return b"".join(packer.compress(block) for _ in range(size // MIB)) + packer.flush()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, data: bytes, *more: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = (_chunk(b"IHDR", head), *more, _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _images() -> Iterator[tuple[str, bytes]]:
    few = zlib.compress(b"\0" * 100)
    yield "image/png", _png(65_535, 65_535, few)
    yield "image/png", _png(2**31 - 1, 2**31 - 1, few)
    yield "image/png", _png(11_000, 11_000, squeeze(BOMB_BYTES))
    text = _chunk(b"zTXt", b"Comment\0\0" + squeeze(BOMB_BYTES))
    yield "image/png", _png(1, 1, few, *([text] * 4))
    frames = b",\0\0\0\0\xff\xff\xff\xff\0"
    yield "image/gif", b"GIF89a\xff\xff\xff\xff\xf0\0\0" + b"\0" * 6 + frames
    frame = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xdc\xff\xdc\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    yield "image/jpeg", frame + b"\xff\xd9"
    bitmap = struct.pack("<IHHIIiiHH", 70, 0, 0, 54, 40, 2**31 - 1, 2**31 - 1, 1, 24)
    yield "image/bmp", b"BM" + bitmap + b"\0" * 32
    yield "image/webp", b"RIFF\xff\xff\xff\xffWEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xff" * 6
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 8}">' for i in range(1, 8))
    laugh = f'<!DOCTYPE svg [<!ENTITY l0 "lol">{levels}]><svg><text>&l7;</text></svg>'
    yield "image/svg+xml", laugh.encode()


def _files() -> Iterator[tuple[str, str, bytes]]:
    data = squeeze(BOMB_BYTES)
    head = b"%%PDF-1.4\n1 0 obj<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n" % len(data)
    yield "a.pdf", "application/pdf", head + data + b"\nendstream endobj\n%%EOF"
    loop = b"%PDF-1.4\n1 0 obj<</Type/Pages/Kids[1 0 R 1 0 R]/Count 999999999>>endobj\n"
    yield "b.pdf", "application/pdf", loop + b"trailer<</Root 1 0 R>>\n%%EOF"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (32 * MIB))
    yield "a.docx", "application/vnd.openxmlformats-officedocument", packed.getvalue()
    yield "a.txt.gz", "application/gzip", squeeze(BOMB_BYTES, bits=31)
    yield "../../a\0" + "n" * 100_000, "text/plain", b"a"


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _post_part(part: object) -> bytes:
    return post(_IN_MESSAGE + json.dumps([part]).encode() + b"}]")


def _image_bombs() -> Iterator[bytes]:
    for kind, data in _images():
        url = _data_url(kind, data)
        yield _post_part({"type": "input_image", "detail": "high", "image_url": url})
    old = {"type": "image_url", "image_url": {"url": _data_url("image/png", _png(1, 1, b""))}}
    parts = repeat(json.dumps(old).encode(), 1_000)
    yield post_chat(b'"messages":[{"role":"user","content":' + parts + b"}]")


attack("send small images that say they are huge", in_turn(_image_bombs, 4))
attack(
    "send small files that unpack to much",
    in_turn(
        lambda: (
            _post_part({"type": "input_file", "filename": name, "file_data": _data_url(kind, data)})
            for name, kind, data in _files()
        ),
        4,
    ),
)


# Schemas and grammars.


def _in_format(schema: object) -> bytes:
    return post(_IN_FORMAT + b'"strict":true,"schema":' + json.dumps(schema).encode() + b"}}")


def _in_tool(schema: object) -> bytes:
    return post(_IN_TOOL + b'"strict":true,"parameters":' + json.dumps(schema).encode() + b"}]")


def schemas(make: Callable[[], Iterable[object]], seconds: float) -> Step:
    """Send each schema as that of a property, in a format and in a tool."""

    def write() -> Iterator[bytes]:
        for schema in make():
            inner = {
                "type": "object",
                "properties": {"a": schema},
                "required": ["a"],
                "additionalProperties": False,
            }
            if isinstance(schema, dict) and "$defs" in schema:
                inner["$defs"] = schema.pop("$defs")
            yield _in_format(inner)
            yield _in_tool(inner)

    return in_turn(write, seconds)


def _loops() -> list[object]:
    loop = {"$ref": "#/$defs/a"}
    both = {"$ref": "#/$defs/b"}
    chain = {f"d{i}": {"$ref": f"#/$defs/d{(i + 1) % 3_000}"} for i in range(3_000)}
    return [
        {"$ref": "#"},
        {**loop, "$defs": {"a": loop}},
        {**loop, "$defs": {"a": both, "b": loop}},
        {**loop, "$defs": {"a": {"allOf": [loop, loop]}}},
        {**loop, "$defs": {"a": {"anyOf": [loop, {"not": loop}]}}},
        {**loop, "$defs": {"a": {"type": "array", "items": loop, "minItems": 1}}},
        {"$ref": "#/$defs/d0", "$defs": chain},
        {"$ref": "#" + "/properties/a" * 10_000},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///dev/zero"},
        {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "$dynamicRef": "#a"}}},
    ]


def _double(word: str, levels: int) -> object:
    defs: dict[str, object] = {f"d{levels}": {"type": "string"}}
    for level in range(levels):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        defs[f"d{level}"] = {word: [below, below]}
    return {"$ref": "#/$defs/d0", "$defs": defs}


def _counts() -> list[object]:
    huge = 10**9
    deep: object = {"type": "integer"}
    for _ in range(8):
        deep = {"type": "array", "items": deep, "minItems": 100, "maxItems": 100}
    nested: object = {"type": "integer"}
    for _ in range(180):
        nested = {"type": "array", "items": nested}
    return [
        {"type": "array", "items": {"type": "integer"}, "minItems": huge},
        {"type": "array", "items": {"type": "integer"}, "maxItems": huge},
        {"type": "string", "minLength": huge, "maxLength": huge},
        {"type": "object", "minProperties": huge},
        {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
        {"type": "integer", "minimum": 0, "maximum": 10**4_000},
        {"type": "number", "multipleOf": 1e-300},
        {"type": "array", "prefixItems": [{"type": "integer"}] * 5_000},
        {"type": "string", "const": "c" * MIB},
        {"type": "array", "contains": {"type": "string"}, "minContains": huge},
        deep,
        nested,
    ]


def _many_names() -> list[object]:
    names = [f"name{i}" for i in range(100_000)]
    some = {name: {"type": "integer"} for name in names[:9_000]}
    return [
        {"enum": names},
        {"enum": names[:29_000]},
        {"enum": ["x" * i for i in range(3_000)]},
        {"enum": list(range(29_000))},
        {"type": "object", "properties": some},
        {"type": "object", "properties": some, "required": list(some)},
        {"anyOf": [{"const": name} for name in names[:9_000]]},
        {"type": "object", "patternProperties": {f"^{n}.*$": {} for n in names[:5_000]}},
        {"type": "object", "dependentRequired": dict.fromkeys(names[:2_000], names[:10])},
    ]


def _object_of(properties: object) -> bytes:
    return _in_format({"type": "object", "properties": properties, "additionalProperties": False})


attack("send schemas that refer to themselves", schemas(_loops, 2))
attack(
    "send schemas that double at each level",
    schemas(
        lambda: [
            _double(word, levels) for levels in (10, 16, 20) for word in ("allOf", "anyOf", "oneOf")
        ],
        2,
    ),
)
attack("send schemas that ask for very much", schemas(_counts, 1.5))
attack("send schemas with very many names", schemas(_many_names, 2))
attack(
    "send a hundred different schemas at once",
    at_once(
        lambda: [
            _object_of(
                {f"n{at}x{i}": {"type": "string", "pattern": f"^a{{{i}}}$"} for i in range(80)}
            )
            for at in range(100)
        ],
        seconds=11,
    ),
)
attack(
    "send hundreds of different schemas in turn",
    hurry(
        lambda: (
            _object_of({f"n{at}x{i}": {"enum": [f"v{at}x{i}"]} for i in range(30)})
            for at in range(400)
        ),
        wait=0.015,
    ),
)
_DOUBLED = "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(20))
_GRAMMARS = (
    ("lark", "start: start"),
    ("lark", 'start: start start | "a"'),
    ("lark", "start: a\na: b\nb: a"),
    ("lark", 'start: "a"~1..1000000000'),
    ("lark", f'start: r0\n{_DOUBLED}\nr20: "x"'),
    ("lark", "start: /(a+)+$/"),
    ("lark", "start: " + "(" * 5_000 + '"a"' + ")" * 5_000),
    ("lark", "start: " + " | ".join(f'"w{i}"' for i in range(20_000))),
    ("lark", "\n".join(f'r{i}: "x"' for i in range(20_000)) + "\nstart: r0"),
    ("lark", "%import .secret\nstart: secret"),
    ("lark", 'start: "' + "a" * MIB + '"'),
    ("regex", "(?:(?:a{1000}){1000}){1000}"),
    ("regex", "(a?){3000}a{3000}"),
    ("regex", "(a|aa)+$"),
    ("regex", "[" + "".join(chr(0x4E00 + 2 * i) for i in range(10_000)) + "]{100}"),
    ("regex", "a" * MIB),
)


def _grammars() -> Iterator[bytes]:
    for syntax, definition in _GRAMMARS:
        form = {"type": "grammar", "syntax": syntax, "definition": definition}
        tool = json.dumps([{"type": "custom", "name": "f", "format": form}]).encode()
        yield post(b'"input":"Hi","tool_choice":"required","tools":' + tool)


attack("send grammars without end", in_turn(_grammars, 2))

# Bodies in pieces, and bodies whose length is a lie.


def _chunked(body: bytes, size: int, extension: bytes = b"") -> bytes:
    starts = range(0, len(body), size)
    pieces = (body[start : start + size] for start in starts)
    return b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)


def _in_chunks(*heads: str) -> bytes:
    return begin("Transfer-Encoding: chunked", *heads)


def _tiny_chunks() -> Iterator[bytes]:
    for size, count in ((1, 1_500_000), (2, 2_400_000), (1, 100)):
        body = _chunked(fields(b'"input":"Hi","x":"' + b"a" * count + b'"'), size)
        yield _in_chunks("Connection: close") + body + b"0\r\n\r\n"


attack("send a body in chunks of one byte", in_turn(_tiny_chunks))


def _odd_chunks() -> Iterator[bytes]:
    head, body, end = _in_chunks("Connection: close"), fields(), b"0\r\n\r\n"
    yield head + _chunked(body, 1, b";a=" + b"b" * 1_000) + end
    yield head + _chunked(body, 1, b";a=" + b"b" * 60_000) + end
    yield head + b"1;" + b"a" * (9 * MIB)
    yield head + b"0" * MIB + b"1\r\na\r\n" + end
    yield head + b"F" * 17 + b"\r\n" + body
    yield head + b"-1\r\n" + body
    yield head + b"0x10\r\n" + body
    yield head + b"1_0\r\n" + body
    yield head + b"7fffffffffffffff\r\n" + b"a" * MIB
    yield head + b"\r\n" * 100_000 + end
    yield head + b"1\r\nab\r\n" + end


def _trailers(*trailers: bytes) -> Iterator[bytes]:
    start = _in_chunks("Connection: close") + _chunked(fields(), 100) + b"0\r\n"
    return (start + lines for lines in trailers)


def _endless_chunks() -> bytes:
    part = _chunked(b"[]," * 20_000, 60_000)
    return _in_chunks() + b"1\r\n[\r\n" + part * (9 * MIB // len(part))


attack("send chunks with long extensions and odd sizes", in_turn(_odd_chunks, 2))
attack(
    "send trailers without end",
    in_turn(
        lambda: _trailers(
            b"A: b\r\n" * 10 + b"\r\n",
            b"A: b\r\n" * 1_000_000 + b"\r\n",
            b"A: " + b"b" * (9 * MIB) + b"\r\n",
        ),
        4,
    ),
    in_turn(lambda: _trailers(b"A: b\r\n" * 1_000), 1),
)
attack("send chunked bodies without end", at_once(lambda: [_endless_chunks()] * 10))
attack(
    "send bytes after a body was refused",
    hold(lambda: [begin("Content-Length: 1000000000000") + b"a" * (9 * MIB)] * 10),
)


def _lengths() -> Iterator[bytes]:
    body = fields()
    right = len(body)
    for length in (
        *("-1", "+5", "1e3", "0x10", " ", "", "1,1", "9" * 19, "9" * 4_400, "9" * 60_000, "٣"),
        *("1_0", "18446744073709551616", f"{right}\r\nContent-Length: {right + 1}"),
        f"{right}\r\nContent-Length: {right}",
        f"{right}\r\nTransfer-Encoding: chunked",
        f"{right}\r\nTransfer-Encoding: identity",
        f"{right}\r\nTransfer-Encoding: gzip, chunked",
        *(f"{right - 1}", f"{right + 1}", "0"),
    ):
        yield begin("Connection: close", f"Content-Length: {length}") + body


def _unfinished(size: int) -> bytes:
    return fill(b'"input":"Hi","x":"', size, b'"')[:-1]


_LENGTH = f"Content-Length: {MOST_BODY}"
attack("lie about the length of a body", in_turn(_lengths, 1))
attack("claim long bodies and send none", at_once(lambda: [begin(_LENGTH)] * 400), many=True)
attack(
    "expect to be told to go on and never do",
    at_once(lambda: [begin(_LENGTH, "Expect: 100-continue")] * 300),
    at_once(lambda: [begin("Content-Length: 5", "Expect: " + "x" * 4_000)] * 50, seconds=3),
    many=True,
)
for _name, _size, _count in (
    ("leave seven long bodies unfinished", 15 * MIB // 2, 7),
    ("leave as many bodies unfinished as are allowed together", MOST_BODY, 8),
    ("leave more bodies unfinished than are allowed together", 8_200_000, 12),
    ("leave many middling bodies unfinished", 200_000, 480),
    ("leave many short bodies unfinished", 63_000, 500),
):
    attack(
        _name,
        at_once(lambda size=_size, count=_count: [_unfinished(size)] * count),
        many=_count > 100,
    )
_LONG_X = b'"x":"' + b"a" * 8_200_000
attack(
    "have many long requests answered together",
    at_once(lambda: [post(b'"input":"Count to a hundred.",' + _LONG_X + b'"')] * 12, seconds=11),
)
attack(
    "have many long texts of wide letters answered together",
    at_once(lambda: [post(b'"input":"Hi",' + _LONG_X + '😀"'.encode())] * 12, seconds=11),
)


def _slow_body() -> list[bytes]:
    data = post(b'"input":"Hi","x":' + string(b"a", 100_000))
    return [data[:300], *(data[start : start + 10] for start in range(300, 1_000, 10))]


attack(
    "send bodies slowly", at_once(lambda: [_slow_body()] * 200, seconds=10, pause=0.15), many=True
)


def _compressed() -> Iterator[bytes]:
    zeros = squeeze(BOMB_BYTES, bits=31, byte=b"[")
    for encoding, body in (
        ("gzip", zeros),
        ("deflate", squeeze(BOMB_BYTES)),
        ("gzip, gzip", zlib.compress(zeros)),
        (", ".join(["gzip"] * 1_000), zeros),
        ("br", b"\x5b\xff\xff\x03\x00" * 100_000),
        ("zstd", b"\x28\xb5\x2f\xfd\xe4" + b"\xff" * 100_000),
        ("identity", fields()),
        ("x" * 4_000, fields()),
    ):
        yield request(RESPONSES, body, f"Content-Encoding: {encoding}")


attack("send compressed bodies that unpack to much", in_turn(_compressed))

# Heads and paths.

_QUERIES = (
    *("a=1&" * 2_000, "a=1&" * 15_000, "a=1&" * 1_000_000, "&" * 60_000, "=" * 60_000),
    *("include[]=x&" * 5_000, "include=x&" * 6_000, "%61=%62&" * 7_000, "a=" + "%ff" * 20_000),
    *("".join(f"k{i}=v&" for i in range(8_000)), "limit=1&" * 8_000, "stream=true&" * 5_000),
)
_HEAD_SIZES = (7_000, 8_000, 8_192, 16_000, 32_768, 65_000, 65_536, 70_000, MIB, 9 * MIB)
attack(
    "send heads of every length",
    in_turn(
        lambda: (
            request("/health", None, *lines)
            for size in _HEAD_SIZES
            for lines in (["X: " + "a" * size], ["X: a"] * (size // 6))
        ),
        3,
    ),
)
attack(
    "ask with very many queries",
    in_turn(
        lambda: (
            request(f"{path}?{query}")
            for query in _QUERIES
            for path in ("/health", "/v1/responses/resp_0/input_items")
        ),
        1,
    ),
)


async def _read_metrics(clients: Clients) -> None:
    answer = await clients.ask(request("/metrics"))
    clients.notes.append(f"/metrics has at least {len(answer.body):,} bytes")


def _slow_head() -> list[bytes]:
    data = request("/health", None, "X: " + "a" * 200)
    return [data[index : index + 1] for index in range(len(data) - 2)]


def _endless_head() -> list[bytes]:
    return [request("/health")[:-2], *(b"X%d: a\r\n" % index for index in range(20_000))]


attack(
    "count each of thousands of paths, methods and models",
    pipeline(
        lambda: b"".join(request(f"/path{i}", close=False) for i in range(3_000)), 3_000, seconds=4
    ),
    at_once(
        lambda: (request("/health", method=f"M{i}") for i in range(300)), at_once=20, seconds=2
    ),
    at_once(
        lambda: (
            request(RESPONSES, json.dumps({"model": f"m{i}" * 500, "input": "Hi"}).encode())
            for i in range(500)
        ),
        at_once=20,
        seconds=2,
    ),
    _read_metrics,
)
attack("send heads slowly", at_once(lambda: [_slow_head()] * 150, seconds=10, pause=0.1), many=True)
attack(
    "send a head line by line without end",
    at_once(lambda: [_endless_head()] * 10, seconds=8, pause=0.002),
)

# Many connections.

attack(
    "open connections and send nothing",
    at_once(lambda: [b""] * MOST_CONNECTIONS, seconds=8),
    many=True,
)
attack(
    "open 1,200 connections with half a head",
    at_once(lambda: [request("/health")[:-2]] * MOST_CONNECTIONS, seconds=8),
    many=True,
)


def _now_and_then() -> list[bytes]:
    data = post()
    return [data[:20], *(data[index : index + 1] for index in range(20, 40))]


attack(
    "open 1,200 connections that send a byte now and then",
    at_once(lambda: [_now_and_then()] * MOST_CONNECTIONS, seconds=8, pause=0.5),
    many=True,
)
attack(
    "stay connected after a request up to the limit of connections",
    *(
        at_once(
            lambda more=more: [request("/health", close=False)] * (MOST_SERVER_CONNECTIONS + more),
            seconds=4,
        )
        for more in (-12, 20)
    ),
    many=True,
)
attack(
    "open and close connections as fast as possible",
    hurry(lambda: [b""] * 400),
    hurry(lambda: [b"G"] * 400, reset=True),
    hurry(lambda: [request("/health")] * 400, reset=True),
    many=True,
)
attack("send 500 small requests at once", at_once(lambda: [post()] * 500, seconds=11), many=True)
_HI_STREAM = b'"stream":true,"messages":[{"role":"user","content":"Hi"}]'
attack(
    "send 500 chat completions at once",
    at_once(lambda: [post_chat(_HI_STREAM)] * 500, seconds=11),
    many=True,
)
_LISTS = ("/v1/models", "/openapi.json", "/metrics", "/health")
attack(
    "ask for lists and descriptions 1,000 times at once",
    at_once(lambda: [request(path) for path in _LISTS] * 250, at_once=400, seconds=6),
    many=True,
)
attack(
    "pipeline 1,000 small requests",
    pipeline(lambda: request("/health", close=False) * 1_000, 1_000, seconds=5),
    pipeline(lambda: request("/health", close=False) * 20_000, 20_000, seconds=5),
)
attack(
    "pipeline 1,000 responses",
    pipeline(lambda: post(close=False) * 1_000, 1_000, seconds=6),
    pipeline(lambda: request(RESPONSES, b"[]", close=False) * 5_000, 5_000, seconds=5),
)
attack(
    "pipeline requests for long answers and read none",
    *(
        hold(lambda path=path: [request(path, close=False) * 2_000] * 50, seconds=4)
        for path in ("/openapi.json", "/metrics", "/v1/models")
    ),
    many=True,
)


async def _read_slowly(clients: Clients) -> None:
    reader, writer = await clients.connect(unread=True)
    await clients.send(writer, request("/openapi.json", close=False) * 500)
    for _ in range(60):
        if not await reader.read(1):
            break
        await asyncio.sleep(0.1)
    clients.answers["read slowly"] += 1


async def _close_half(clients: Clients, data: bytes) -> None:
    reader, writer = await clients.connect()
    await clients.send(writer, data)
    writer.write_eof()
    clients.answers[await _read_status(reader)] += 1


async def _leave_early(clients: Clients) -> None:
    async with clients.sending(_stream()) as reader:
        clients.answers[await _read_status(reader)] += 1
        await reader.read(1)


def repeated(act: Callable[..., Awaitable[None]], make: Callable[[], list[Any]], s: float) -> Step:
    """Do something at the same time, with each of these arguments, within some seconds."""

    async def once(clients: Clients, *arguments: Any) -> None:
        try:
            async with asyncio.timeout(s):
                await act(clients, *arguments)
        except TimeoutError:
            clients.answers["silence"] += 1
        except OSError:
            clients.answers["reset"] += 1

    async def step(clients: Clients) -> None:
        async with asyncio.TaskGroup() as group:
            for arguments in make():
                group.create_task(once(clients, *arguments))

    return step


attack(
    "read long answers a byte at a time",
    repeated(_read_slowly, lambda: [()] * 60, ATTACK_SECONDS + 1),
)
attack(
    "close the sending half after a request",
    repeated(_close_half, lambda: [(post()[:-1],), (post(),)] * 100, 8),
    many=True,
)

# Streams, background and stored responses.


def _stream(more: bytes = b"") -> bytes:
    text = b'"stream":true,"input":"Count from one to a hundred."' + more
    return request(RESPONSES, fields(text).replace(b": 16,", b": 400,", 1))


def _middles() -> list[bytes]:
    data = post(b'"input":"Hi","x":' + repeat(b"[]", 200_000))
    return [*(data[: len(data) * index // 100] for index in range(1, 100)), *[data] * 50]


attack("open 50 streams and never read", hold(lambda: [_stream()] * 50, seconds=9))
attack("open 200 streams and leave at once", hurry(lambda: [_stream()] * 200))
attack(
    "open 200 streams and leave after their first bytes",
    repeated(_leave_early, lambda: [()] * 200, 5),
    many=True,
)
attack("leave 100 long requests in their middle", hurry(_middles, reset=True))


async def _create(clients: Clients, text: bytes = b"") -> str | None:
    """Have a response stored and return its id."""
    answer = await clients.ask(post(text, store=True), seconds=6)
    match = _RESPONSE_ID.search(answer.body)
    return match[1].decode("ascii", "replace") if match else None


_IN_BACKGROUND = b'"background":true,"input":"Hi"'
attack(
    "create 200 responses in the background",
    at_once(lambda: [post(_IN_BACKGROUND, store=True)] * 200, at_once=20, seconds=3),
)
attack(
    "create long responses in the background and forget them",
    at_once(
        lambda: [post(_IN_BACKGROUND + b',"x":' + string(b"a", 8_000_000), store=True)] * 12,
        at_once=4,
        seconds=5,
    ),
)


async def _open_background_streams(clients: Clients) -> None:
    name = await _create(clients, b'"background":true,"stream":false,"input":"Count to ninety."')
    data = request(f"{RESPONSES}/{name}?stream=true", close=False)
    await clients.hold([data] * 200, seconds=5)
    await clients.ask(request(f"{RESPONSES}/{name}/cancel", b"{}"), seconds=2)


async def _read_stored(clients: Clients) -> None:
    for text in (
        b'"input":"Hi","user":' + string(b"a", 4_000_000),
        b'"input":"Hi","x":' + string(b"a", 4_000_000),
        b'"input":[{"role":"user","content":' + string(b"word ", 400) + b"}]",
    ):
        name = await _create(clients, text)
        if name is None:
            clients.notes.append("one was not stored")
            continue
        for path in (f"{RESPONSES}/{name}", f"{RESPONSES}/{name}/input_items?limit=100"):
            await clients.hold([request(path, close=False) * 500] * 10, seconds=1)
        await clients.ask(request(f"{RESPONSES}/{name}", method="DELETE"), seconds=2)


def _continue(name: str) -> bytes:
    return b'"input":"Go on.","previous_response_id":' + string(name.encode())


async def _continue_chain(clients: Clients) -> None:
    name = await _create(clients)
    for index in range(40):
        if name is None:
            clients.notes.append(f"the chain ended at {index}")
            return
        name = await _create(clients, _continue(name))


async def _continue_together(clients: Clients) -> None:
    name = await _create(clients) or "resp_0"
    await clients.ask_together([post(_continue(name))] * 200)


async def _delete_together(clients: Clients) -> None:
    name = await _create(clients, b'"background":true,"input":"Count to ninety."') or "resp_0"
    path = f"{RESPONSES}/{name}"
    mix = [
        request(path, method="DELETE"),
        request(path),
        request(path + "?stream=true"),
        request(path + "/cancel", b"{}"),
        request(path + "/input_items"),
    ]
    await clients.ask_together(mix * 30, seconds=5)


async def _page_impossibly(clients: Clients) -> None:
    path = f"{RESPONSES}/{await _create(clients) or 'resp_0'}"
    long = "9" * 5_000
    queries = (
        *(f"limit={value}" for value in ("0", "-1", "1000000000", "1e9", "NaN", long, "٣", "")),
        *(f"after={value}" for value in ("x", "a" * 7_000, "%00", "%ff", "'--", long)),
        *(f"order={value}" for value in ("asc", "x" * 7_000, "%00")),
        "before=x&after=y&limit=100",
        "include=" + "x," * 3_000,
    )
    starts = ("-1", "1000000000", "9" * 30, long, "NaN", "1.5", "")
    urls = (
        *(f"{path}/input_items?{query}" for query in queries),
        *(f"{path}?stream=true&starting_after={value}" for value in starts),
        f"{RESPONSES}?limit=1000000000&after=" + "a" * 7_000,
    )
    await clients.ask_each(map(request, urls), seconds=1)


_UNKNOWN = [f"{RESPONSES}/resp_{index:048x}" for index in range(4_000)]
_PREFLIGHT = (
    "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: " + "x-a," * 1_500,
)


def _preflights(first: int, last: int) -> list[bytes]:
    return [
        request(
            RESPONSES, None, f"Origin: http://o{i}.test", *_PREFLIGHT, method="OPTIONS", close=False
        )
        for i in range(first, last)
    ]


attack(
    "open the stream of one response in the background 200 times",
    _open_background_streams,
    many=True,
)
attack("store long responses and read them without end", _read_stored)
attack("continue one response again and again", _continue_chain)
attack("continue one response 200 times at once", _continue_together, many=True)
attack(
    "read unknown responses thousands of times",
    pipeline(lambda: b"".join(request(path, close=False) for path in _UNKNOWN), 4_000, seconds=6),
    at_once(
        lambda: [request(path + "/input_items") for path in _UNKNOWN[:400]], at_once=50, seconds=4
    ),
)
attack(
    "delete and cancel unknown responses thousands of times",
    pipeline(
        lambda: b"".join(request(path, method="DELETE", close=False) for path in _UNKNOWN),
        4_000,
        seconds=6,
    ),
    pipeline(
        lambda: b"".join(request(path + "/cancel", b"", close=False) for path in _UNKNOWN),
        4_000,
        seconds=6,
    ),
)
attack("delete, read and cancel one response at the same time", _delete_together)
attack("page through items with impossible numbers", _page_impossibly)
attack(
    "ask for permission of other origins thousands of times",
    pipeline(lambda: b"".join(_preflights(0, 1_000)), 1_000, seconds=4),
    at_once(lambda: _preflights(1_000, 1_300), at_once=50, seconds=2),
    in_turn(
        lambda: [
            request(
                RESPONSES,
                fields(b'"input":"Hi","x":' + string(b"a", 8_000_000)),
                "Origin: http://other.test",
            )
        ]
    ),
)

# WebSockets.


def frame(
    payload: bytes,
    opcode: int = 1,
    *,
    final: bool = True,
    reserved: int = 0,
    key: bytes | None = b"\0\0\0\0",
    length: int | None = None,
) -> bytes:
    """Write a frame of a client; the length may be a lie, and the mask may be missing."""
    size = len(payload) if length is None else length
    mask = 0 if key is None else 128
    head = bytes([(128 if final else 0) | reserved << 4 | opcode])
    if size < 126:
        head += bytes([mask | size])
    elif size < 1 << 16:
        head += bytes([mask | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", size)
    if key is None:
        return head + payload
    if any(key):
        pad = (key * (len(payload) // 4 + 1))[: len(payload)]
        mixed = int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")
        payload = mixed.to_bytes(len(payload), "big")
    return head + key + payload


def create(text: bytes = b"") -> bytes:
    """Write the message that asks for a response over a WebSocket."""
    return b'{"type":"response.create",' + fields(text)[1:]


def part(payload: bytes, opcode: int = 0) -> bytes:
    """Write a frame after which the message goes on."""
    return frame(payload, opcode, final=False)


def long_message(count: int) -> bytes:
    """Write a message with a text of so many letters."""
    return create(b'"input":"Hi","x":' + string(b"a", count))


def _edge_messages() -> Iterator[bytes]:
    base = len(long_message(0))
    for size in (MOST_BODY - 1, MOST_BODY, MOST_BODY + 1, MOST_REQUEST - 1024):
        for key in (b"\0\0\0\0", b"abcd"):
            yield frame(long_message(size - base), key=key)


def _fragments() -> Iterator[bytes]:
    text = long_message(10_000)
    tiny = b"".join(part(bytes([byte])) for byte in text[1:])
    yield part(text[:1], 1) + tiny + frame(b"", 0)
    start = part(text[:-1], 1)
    yield start + part(b"") * 1_000_000 + frame(b"}", 0)
    yield start + part(b" " * 800) * 10_000 + frame(b"}", 0)


_ENDLESS = part(b"[", 1) + part(b"[]," * 333) * 9_000
_UNENDED = part(b'"' + b"a" * 60_000, 1) + part(b"a" * 60_000) * 130
attack("send WebSocket messages one byte around the limit", talk(_edge_messages, 4))
attack(
    "send WebSocket messages of every shape",
    talk(
        lambda: (
            frame(create(b'"input":"Hi","x":' + shape))
            for shape in write_shapes(MOST_VALUES - 100, MOST_BODY - 1024)
        ),
        3,
    ),
)
attack(
    "send WebSocket messages that are only a shape",
    talk(lambda: map(frame, write_shapes(8 * MOST_VALUES // 5, MOST_BODY - 1024)), 3),
)
attack("send a WebSocket message in 10,000 fragments", talk(_fragments))
attack(
    "send fragments of a WebSocket message without end",
    talk(lambda: [_ENDLESS] * 4, 2),
    at_once(lambda: [upgrade() + _ENDLESS[: 7 * MIB]] * 6, seconds=4),
)
attack(
    "leave more WebSocket messages unfinished than are allowed together",
    hold(lambda: [upgrade() + frame(b"a" * 8_200_000)[:-1]] * 12),
)
attack(
    "leave WebSocket messages unfinished in fragments", hold(lambda: [upgrade() + _UNENDED] * 12)
)
attack(
    "claim long WebSocket frames and send none",
    *(
        at_once(
            lambda length=length, count=count: [upgrade() + frame(b"{", length=length)] * count,
            seconds=2.5,
        )
        for length, count in (
            (MOST_BODY, 250),
            (MOST_REQUEST, 100),
            (2**63 - 1, 50),
            (2**64 - 1, 50),
        )
    ),
    many=True,
)
attack(
    "ping a WebSocket without reading",
    hold(lambda: [upgrade() + frame(b"a" * 125, 9) * 60_000] * 10, seconds=5),
    hold(lambda: [upgrade() + frame(b"", 9) * 200_000] * 5, seconds=5),
)
attack(
    "ping in the middle of a WebSocket message",
    talk(
        lambda: [
            part(create()[:10], 1) + frame(b"p", 9) * 100_000 + frame(create()[10:], 0),
            frame(b"", 10) * 500_000 + frame(create()),
        ],
        5,
    ),
)
attack(
    "send WebSocket messages and never read",
    hold(lambda: [upgrade() + frame(b'{"type":"' + b"x" * 1_000 + b'"}') * 5_000] * 10, seconds=5),
    hold(
        lambda: [upgrade() + frame(create(b'"input":"Count to ninety."')) * 1_000] * 50, seconds=6
    ),
)
attack(
    "send 100 WebSocket messages in one go",
    talk(lambda: [frame(create()) * 100], 6, replies=100),
    talk(lambda: [frame(long_message(900_000)) * 11], 6, replies=11),
)


def _queue() -> bytes:
    first = frame(create(b'"input":"Count to ninety."').replace(b": 16,", b": 400,"))
    long = frame(create(b'"input":"Hi","x":' + repeat(b"[]", 240_000)))
    return upgrade() + first + long * 10


_HALF = MOST_SERVER_CONNECTIONS // 2
attack("send long WebSocket messages behind one that is answered", hold(lambda: [_queue()] * 10))
attack(
    "open as many WebSockets as are allowed, and more",
    at_once(lambda: [upgrade() + frame(create())] * (_HALF - 6), seconds=4),
    at_once(lambda: [upgrade() + frame(create())] * (_HALF + 50), seconds=4),
    at_once(lambda: [upgrade()] * 600, seconds=4),
    many=True,
)
attack(
    "open WebSockets and leave at once",
    hurry(lambda: [upgrade()] * 200),
    hurry(lambda: [upgrade() + frame(create())] * 200, wait=0.005, reset=True),
    hurry(lambda: [upgrade() + frame(create()) + frame(b"\x03\xe8", 8)] * 200, wait=0.005),
    many=True,
)


def _half_upgrades() -> list[bytes]:
    changes = (
        (b"Version: 13", b"Version: 99"),
        (b"MDEyMzQ1Njc4OWFiY2RlZg==", b"a"),
        (b"MDEyMzQ1Njc4OWFiY2RlZg==", b"A" * 60_000),
        (b"Connection: Upgrade", b"Connection: close"),
        (b"Upgrade: websocket", b"Upgrade: " + b"websocket, " * 5_000),
        (b"GET", b"POST"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (RESPONSES.encode(), b"/v1/models"),
    )
    more = (
        b"Origin: http://other.test\r\n",
        b"Content-Length: 8000000\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Sec-WebSocket-Protocol: " + b"a, " * 15_000 + b"\r\n",
        b"Sec-WebSocket-Extensions: " + b"a; b=c, " * 7_000 + b"\r\n",
    )
    whole = upgrade()
    return [
        whole[:-2],
        *(whole.replace(*change) for change in changes),
        *map(upgrade, more),
        whole + whole,
    ]


def _bad_frames() -> Iterator[bytes]:
    text = create()
    yield from (frame(text, opcode) for opcode in (0, 2, 3, 7, 11, 15))
    yield from (frame(text, reserved=bits) for bits in (1, 2, 4, 7))
    yield frame(text, key=None)
    yield frame(b"a" * 126, 9)
    yield frame(b"a" * 65_536, 9)
    yield part(b"a", 9)
    yield frame(b"a", 8)
    yield frame(b"", 8)
    yield frame(b"\xff\xff", 8)
    yield frame(b"\x03\xe8" + b"\xff" * 100, 8)
    yield frame(b"\xff\xfe{}")
    yield frame(b"\xed\xa0\x80")
    yield part(b"a", 1) * 2
    yield from map(frame, (b"", b"null", b"[]", b'"a"'))
    yield b"\x81\xfe\x00\x01abcd{"
    yield b"\x81\xff" + b"\0" * 7 + b"\x01abcd{"
    yield bytes(range(256)) * 100
    yield frame(b"\x03\xe8", 8) * 100_000
    yield frame(b"\0" * (7 * MIB), 2)
    yield frame(b"{}") * 1_000


def _squeezed_frames() -> list[bytes]:
    packed = squeeze(BOMB_BYTES, bits=-15, byte=b"[")
    return [frame(packed, reserved=4), frame(packed, reserved=4, key=b"abcd") * 4]


def _bytes(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


attack("open WebSockets halfway", at_once(lambda: _half_upgrades() * 10, seconds=3))
attack("send WebSocket frames that break the rules", talk(_bad_frames, 1))
_DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate"
attack(
    "send compressed WebSocket messages that unpack to much",
    *(
        talk(_squeezed_frames, 2, heads=heads)
        for heads in (_DEFLATE + b"\r\n", _DEFLATE + b"; client_max_window_bits=15\r\n", b"")
    ),
)
attack(
    "send a WebSocket message a byte at a time",
    at_once(lambda: [[upgrade(), *_bytes(frame(long_message(5_000)))]] * 200, seconds=8, pause=0.1),
    many=True,
)
attack(
    "send a WebSocket message in the smallest segments",
    talk(lambda: [_bytes(frame(long_message(60_000)))], 6),
    in_turn(lambda: [[request()[:30], *[b"a"] * 60_000]], 4),
)
_TYPES = (b"response.cancel", b"response.delete", b"session.update", b"x" * 100_000, b"")
attack(
    "send unknown and wrong messages over a WebSocket",
    talk(
        lambda: [b"".join(frame(b'{"type":"%b"}' % name) for name in _TYPES) * 20], 3, replies=100
    ),
    talk(
        lambda: [b"".join(frame(b'{"type":"response.create","n":%d}' % i) for i in range(5_000))],
        6,
        replies=5_000,
    ),
)
for _header, _lines in read_lists("http_requests.txt").items():
    _name, _form, _seconds = _header.split(" | ")
    _add_listed(_name, _form, float(_seconds), _lines)
