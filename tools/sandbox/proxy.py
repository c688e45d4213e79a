"""The way of one sandboxed command to the hosts that it may reach: a proxy for HTTP and SOCKS5. It runs
outside of the sandbox, in the process of ``supervise.py``, and listens on a socket of the sandbox's own
network, which nothing else is in: no other user or program of this machine can connect to it, and the
command can connect to nothing else. By hand, because the proxies on PyPI are programs for a port of
this machine, and none connects to the very address that it has checked."""

import asyncio
import contextlib
import re
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from agent.errors import AgentError
from tools.networks import AllowedHosts, Resolve, permits, resolve

MAX_CONNECTIONS = 64
"""Connections of a command at a time; more are closed at once."""
MAX_HEAD_BYTES, MAX_REPORTS = 1 << 16, 500
HEAD_SECONDS, CONNECT_SECONDS = 30.0, 15.0
"""Time for what a connection begins with, and for connecting to a host."""
Report = Callable[[dict[str, object]], None]
"""Receives what was reached or refused: ``host``, ``port``, and ``refused``, the reason, if it was."""
_HOP_HEADERS = re.compile(
    rb"^(?:host|connection|keep-alive|proxy-[a-z]+)[ \t]*:.*\r\n", re.IGNORECASE | re.MULTILINE
)
_ODD_LINES = re.compile(rb"\0|\r(?!\n)|(?<!\r)\n|\r\n[ \t]")
"""Syntax that programs interpret differently: other line breaks, headers of several lines."""
_UPGRADE = re.compile(rb"^upgrade[ \t]*:", re.IGNORECASE | re.MULTILINE)


class ProxyError(AgentError):
    """A connection that is not made; the message says why."""


class NetworkProxy:
    """Connects a command to the hosts that it may reach, and reports the others too."""

    def __init__(self, hosts: Sequence[str], report: Report, resolve: Resolve = resolve) -> None:
        self._hosts, self._report, self._resolve = AllowedHosts(hosts), report, resolve
        self._reported: set[tuple[str, int, str]] = set()
        self._open = 0

    def run(self, listener: socket.socket) -> None:
        asyncio.run(self.serve(listener))

    async def serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD_BYTES)
        await server.serve_forever()

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._open += 1
        try:
            # A command that closes or floods a connection ends that connection only.
            with contextlib.suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                if self._open <= MAX_CONNECTIONS:
                    await self._handle(reader, writer)
        finally:
            self._open -= 1
            writer.close()

    async def _handle(self, reader: StreamReader, writer: StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            first = await reader.readexactly(1)
            is_socks = first == b"\5"
            if is_socks:
                target = await _read_socks(reader, writer)
                ready, head = b"\5\0\0\1" + bytes(6), b""
            else:
                text = first + await reader.readuntil(b"\r\n\r\n")
                try:
                    target, ready, head = _parse_head(text)
                except ProxyError as error:
                    return await _answer(writer, _http_error(400, error))
        try:
            upstream, to_upstream = await self._connect(*target)
        except ProxyError as error:
            # 2: not allowed by the rules
            failure = b"\5\2\0\1" + bytes(6) if is_socks else _http_error(403, error)
            return await _answer(writer, failure)
        try:
            to_upstream.write(head)
            writer.write(ready)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, to_upstream))
                group.create_task(_copy(upstream, writer))
        except* OSError:
            pass
        finally:
            to_upstream.close()

    async def _connect(self, host: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """Connect to the very address that was checked: a name may mean another one a moment later."""
        host = host.lower().removesuffix(".")
        try:
            if not self._hosts.allows(host, port):
                raise ProxyError("it is not among the hosts that this command may reach")
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    addresses = await self._resolve(host, port)
                    networks = self._hosts.networks(port)
                    addresses = [text for text in addresses if permits(text, networks)]
                    if not addresses:
                        raise ProxyError("it is at no public address")
                    streams = await _open_first(addresses, port)
            except (OSError, UnicodeError, TimeoutError) as error:
                raise ProxyError(f"no connection: {error or 'it does not answer'}") from None
        except ProxyError as error:
            self._note(host, port, str(error))
            raise ProxyError(f"{host}:{port}: {error}") from None
        self._note(host, port)
        return streams

    def _note(self, host: str, port: int, refused: str = "") -> None:
        """Report the first contact with a host; a name may be any bytes."""
        key = re.sub(r"[^!-~]", "?", host[:255]), port, refused
        if key not in self._reported and len(self._reported) < MAX_REPORTS:
            self._reported.add(key)
            self._report({"host": key[0], "port": port} | ({"refused": refused} if refused else {}))


async def _open_first(addresses: Sequence[str], port: int) -> tuple[StreamReader, StreamWriter]:
    """Connect to the first address that answers; raises OSError."""
    error = OSError("there is no address")
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port, limit=MAX_HEAD_BYTES)
        except OSError as failure:
            error = failure
    raise error


async def _read_socks(reader: StreamReader, writer: StreamWriter) -> tuple[str, int]:
    """Read a SOCKS5 request after its first byte (RFC 1928); raises EOFError for any other."""
    methods = await reader.readexactly((await reader.readexactly(1))[0])
    writer.write(b"\5\0" if 0 in methods else b"\5\xff")
    version, command, _, kind = await reader.readexactly(4)
    if kind == 3:
        (size,) = await reader.readexactly(1)
        host = (await reader.readexactly(size)).decode("ascii", "replace")
    elif kind in (1, 4):
        family, size = (socket.AF_INET, 4) if kind == 1 else (socket.AF_INET6, 16)
        host = socket.inet_ntop(family, await reader.readexactly(size))
    else:
        raise EOFError
    port = int.from_bytes(await reader.readexactly(2), "big")
    if (version, command) != (5, 1):
        await _answer(writer, b"\5\7\0\1" + bytes(6))  # 7: command not supported
        raise EOFError
    return host, port


def _parse_head(text: bytes) -> tuple[tuple[str, int], bytes, bytes]:
    """Return what an HTTP request is for, what the client gets once there is a connection, and what
    is sent there first. Raises ProxyError."""
    line, _, headers = text.partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or _ODD_LINES.search(text):
        raise ProxyError("not a request of HTTP/1.1")
    method, target, version = words
    is_tunnel = method.upper() == b"CONNECT"
    try:
        url = urlsplit(("http://" if is_tunnel else "") + target.decode("ascii"))
        host, port = url.hostname or "", url.port or (0 if is_tunnel else 80)
    except ValueError:
        host = ""
    if not host or not port or url.scheme != "http" or "@" in url.netloc:
        raise ProxyError("a proxy is asked for http://HOST/ or CONNECT HOST:PORT")
    if is_tunnel:
        return (host, port), b"HTTP/1.1 200 Connection established\r\n\r\n", b""
    # One request a connection, so that each is for the host that was checked.
    last = b"Upgrade" if _UPGRADE.search(headers) else b"close"
    path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}".encode()
    head = b"%b %b %b\r\nHost: %b\r\nConnection: %b\r\n" % (
        method, path, version, url.netloc.encode(), last,
    )  # fmt: skip
    return (host, port), b"", head + _HOP_HEADERS.sub(b"", headers)


def _http_error(status: int, error: ProxyError) -> bytes:
    text = f"{error}\n".encode("ascii", "replace")
    reason = {400: "Bad Request", 403: "Forbidden"}[status]
    return (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + text


async def _answer(writer: StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
