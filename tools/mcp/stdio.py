"""An MCP server as a child process: JSON lines over its stdin and stdout.

The SDK's own stdio transport tells nobody that the child has died, sends its stderr elsewhere, and
leaves grandchildren behind when the child exits first; hence this one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp.types as T
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from tools import process_groups
from tools.config.servers import ServerConfig

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds to exit after stdin closed, and again after SIGTERM."""
LAST_WORDS = 1.0
"""Seconds in which the output of a server that has exited is still read."""
MAX_MESSAGE = 128 * 1024 * 1024
"""Bytes; a server that sends a longer line is cut off."""
_TAIL = 4000
"""Bytes of stderr that are kept."""
_INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class Child:
    """One run of a server's command."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._stderr = bytearray()
        self.ended = asyncio.Event()
        """Its stdout is at its end, or it cannot be used any more."""
        self.complaint: str | None = None
        """Why we cut it off, where it was us."""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def returncode(self) -> int | None:
        """How it exited; negative: by which signal."""
        return self._process.returncode if self._process else None

    async def gone(self) -> None:
        """Wait until it has exited; a server that only closed its stdout is ended soon."""
        await self.ended.wait()
        if self._process is not None:
            await self._process.wait()

    def stderr(self) -> str:
        """The last lines that it wrote to stderr."""
        return bytes(self._stderr).decode(errors="replace").strip()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Streams]:
        """Start it and exchange messages; on leaving, nothing of its process group is left."""
        loop = asyncio.get_running_loop()
        process = asyncio.subprocess.Process(
            *await loop.subprocess_exec(
                _Protocol,
                self._config.command,
                *self._config.args,
                env=environment(self._config),
                cwd=self._config.cwd,
                # Its own session: the terminal's Ctrl-C is for us; one signal reaches all of it.
                start_new_session=True,
            ),
            loop,
        )
        self._process = process
        process_groups.groups.add(process.pid)
        to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, process, to_us)
                group.start_soon(self._write, process, from_us)
                group.start_soon(self._watch_stderr, process)
                try:
                    yield incoming, outgoing
                finally:
                    with anyio.CancelScope(shield=True):
                        await _end(process)
                    group.cancel_scope.cancel()
        finally:
            if process.returncode is None:  # our own task was cancelled out of the orderly end
                _signal(process.pid, signal.SIGKILL)
            process_groups.groups.discard(process.pid)
            for stream in (to_us, incoming, outgoing, from_us):
                stream.close()

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        to_us: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdout is not None
        pending: list[bytes] = []
        size = 0
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                while chunk := await process.stdout.read(1 << 16):
                    *lines, rest = chunk.split(b"\n")
                    if lines:
                        lines[0] = b"".join([*pending, lines[0]])
                        pending, size = [], 0
                    pending.append(rest)
                    size += len(rest)
                    if size > MAX_MESSAGE:
                        self.complaint = f"it sent a message of more than {MAX_MESSAGE >> 20} MB"
                        return
                    for line in lines:
                        if message := _message(line, self._config.name):
                            await to_us.send(message)
        finally:
            self.ended.set()
            to_us.close()

    async def _write(
        self,
        process: asyncio.subprocess.Process,
        from_us: MemoryObjectReceiveStream[SessionMessage],
    ) -> None:
        assert process.stdin is not None
        with from_us, suppress(OSError):
            async for message in from_us:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
        self.ended.set()  # it closed its stdin: of no more use

    async def _watch_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(1 << 16):
            self._stderr += chunk
            del self._stderr[:-_TAIL]
            log.debug("%s: %s", self._config.name, chunk.decode(errors="replace").rstrip())


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Ends the streams with the process, also where a child of its own holds the pipes open."""

    _server: asyncio.SubprocessTransport

    def __init__(self) -> None:
        super().__init__(limit=1 << 16, loop=asyncio.get_running_loop())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._server = transport
        super().connection_made(transport)

    def process_exited(self) -> None:
        super().process_exited()
        # What it wrote last is still on its way.
        asyncio.get_running_loop().call_later(LAST_WORDS, self._close)

    def _close(self) -> None:
        for fd in (1, 2):
            if (pipe := self._server.get_pipe_transport(fd)) is not None:
                pipe.close()


def environment(config: ServerConfig) -> dict[str, str]:
    """What a server is given: enough to run and to reach the net, no secrets of the operator's."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith(("LC_", "XDG_"))
    }
    return inherited | dict(config.env)


def _message(line: bytes, server: str) -> SessionMessage | None:
    if not line.strip():
        return None
    try:
        return SessionMessage(T.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        log.warning("%s: not a message on its stdout: %.200r", server, line)
        return None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close stdin, wait, SIGTERM, wait, SIGKILL: the order that MCP asks for."""
    assert process.stdin is not None
    process.stdin.close()
    await _until(lambda: process.returncode is not None, GRACE)
    # The group's number stays its own while a member lives, also after the leader is reaped.
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal(process.pid, number):
            break
        await _until(lambda: not _signal(process.pid, 0), GRACE)
    await _until(lambda: process.returncode is not None, GRACE)
    # A process that left the group may hold the pipes open; do not wait for it.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _until(done: Any, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        while not done():  # noqa: ASYNC110 - the death of a process group is no event
            await anyio.sleep(0.005)


def _signal(group: int, number: int) -> bool:
    """Whether there was somebody to signal."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of zombies
        return number != 0
    return True
