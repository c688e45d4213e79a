"""An MCP server as a child process: JSON lines over its stdin and stdout. By hand, because the SDK's
own stdio transport does not report the death of the child nor let us read its stderr, and leaves
grandchildren behind. It uses private parts of asyncio: ``asyncio.subprocess.Process`` is constructed
with ``_ProcessProtocol``, and its ``_transport`` is closed at the end."""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import mcp.types as T
import psutil
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from agent.util.programs import require_program, search_path
from tools import process_groups
from tools.config.servers import ServerConfig
from tools.mcp import answers, limits
from tools.mcp.diagnostics import exit_hint, last_on_stderr
from tools.mcp.start_wait import StartActivity
from tools.mcp.transport import Transport
from tools.sanitize import clean_line

if TYPE_CHECKING:
    from tools.mcp.sandboxed import SandboxedServer, ServerSandbox

log = logging.getLogger(__name__)

EXIT_GRACE_SECONDS = 2.0
"""Time to exit after stdin was closed, and again after SIGTERM."""
DRAIN_SECONDS = 1.0
"""Time for which the output of a server that has exited is still read."""
STDERR_TAIL_BYTES = 4000
_INHERITED_VARIABLES = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)

Item = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Item], MemoryObjectSendStream[SessionMessage]]


class StdioTransport(Transport):
    """One run of a server's command."""

    def __init__(self, config: ServerConfig, sandbox: ServerSandbox | None = None) -> None:
        """``sandbox``: what a server that runs in the sandbox shares with others."""
        super().__init__(config)
        self._shared, self._stderr = sandbox, bytearray()
        self._foreign_output = ""
        """The first line of its stdout that was not a message, shortened."""
        self._process: Process | None = None
        self._bytes_read = 0
        """From its stdout and stderr."""
        self._has_sent_message = False
        self._unanswered: set[T.RequestId | None] = set()
        """Ids of our requests without an answer."""

    def activity(self) -> StartActivity:
        if self._process is None:
            return StartActivity(object())  # it is just being started
        processes: list[psutil.Process] = []
        with suppress(psutil.Error):
            parent = psutil.Process(self._process.pid)
            processes = [parent, *parent.children(recursive=True)]
        work = [used for process in processes if any((used := _used(process))[1:])]
        return StartActivity(work, (self._bytes_read, [process.pid for process in processes]))

    async def lose_session(self) -> None:
        """Wait until the process has exited; one that only closed its stdout is ended soon."""
        with anyio.move_on_after(1):
            await self.ended.wait()
            if self._process is not None:
                await self._process.wait()

    @property
    def stderr(self) -> str:
        return bytes(self._stderr).decode(errors="replace").strip()

    def describe_exit(self, reason: str) -> str:
        """Add the exit code, stderr and, if it never was ready, what is wrong on stdout."""
        has_ended = reason.startswith("ended")
        code = self._process.returncode if self._process else None
        if self.cutoff_reason:
            reason = f"was cut off: {self.cutoff_reason}"
        elif code is not None and has_ended:
            ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            reason = ending + reason.removeprefix("ended")
        output = "" if self.was_ready else self._foreign_output
        reason += exit_hint(self.stderr, self.config.env, output)
        if self.stderr:
            reason += f"; last on its stderr: {last_on_stderr(self.stderr, has_ended=has_ended)}"
        return reason

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Streams]:
        """Start the process and exchange messages; on leaving, its process group is ended."""
        loop = asyncio.get_running_loop()
        sandboxed = await self._sandbox()
        if sandboxed is None:
            line = [require_program(self.config.command), *self.config.args]
            env, folder = environment(self.config), self.config.cwd or self.config.start_folder
        else:
            line = await asyncio.to_thread(sandboxed.command)
            env, folder = sandboxed.environment(dict(self.config.env)), sandboxed.start_folder
        process = Process(
            *await loop.subprocess_exec(
                _ProcessProtocol,
                *line,
                env=env,
                cwd=folder,
                # Its own session: the terminal's Ctrl-C is for us; one signal reaches all of it.
                start_new_session=True,
                pass_fds=[sandboxed.link.descriptor] if sandboxed else [],
            ),
            loop,
        )
        self._process = process
        if sandboxed is None:
            process_groups.active_groups.add(process.pid)
        else:
            sandboxed.follow()  # its supervisor ends it when we do, however that is
        to_us, incoming = anyio.create_memory_object_stream[Item](0)
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
                        await _terminate(process, polite=self._has_sent_message)
                    group.cancel_scope.cancel()
        finally:
            if process.returncode is None:  # our own task was cancelled out of the orderly end
                process_groups.kill(process.pid)
            process_groups.active_groups.discard(process.pid)
            if sandboxed is not None:
                sandboxed.link.close()
                with anyio.CancelScope(shield=True):
                    await sandboxed.link.drain()
                    await asyncio.to_thread(sandboxed.end)
            for stream in (to_us, incoming, outgoing, from_us):
                stream.close()

    async def _sandbox(self) -> SandboxedServer | None:
        if self.config.sandbox is None:
            return None
        # Imported here: most servers run without.
        sandboxed = await asyncio.to_thread(import_module, "tools.mcp.sandboxed")
        make: Callable[..., SandboxedServer] = sandboxed.SandboxedServer
        return await asyncio.to_thread(make, self.config, self._shared or sandboxed.ServerSandbox())

    async def _read(self, process: Process, to_us: MemoryObjectSendStream[Item]) -> None:
        assert process.stdout is not None
        throttle, line = limits.Throttle(), bytearray()
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                while chunk := await process.stdout.read(limits.STEP_BYTES):
                    self._bytes_read += len(chunk)
                    await throttle.wait(chunk)
                    *ends, rest = chunk.split(b"\n")
                    for end in ends:
                        line += end
                        messages = await self._parse(line)
                        for message in messages:
                            self._has_sent_message = True
                            self._unanswered.discard(getattr(message.message, "id", None))
                            await to_us.send(message)
                        if not messages and not self._foreign_output:
                            self._foreign_output = clean_line(line[:80].decode(errors="replace"))
                        line = bytearray()
                    line += rest
                    limits.check_size(len(line))
        except limits.MessageLimitError as error:
            self.cutoff_reason = str(error)
        finally:
            self.ended.set()
            to_us.close()

    async def _parse(self, line: bytearray) -> list[SessionMessage]:
        """Parse a line; an unreadable answer is an error of its request. Raises MessageLimitError."""
        text = line.strip().removeprefix(codecs.BOM_UTF8)
        if not text:
            return []
        try:
            if not text.startswith((b"{", b"[")):
                raise ValueError
            await limits.check_json(text)
            messages = answers.parse_messages(text)
        except ValueError as error:
            if len(self._unanswered) != 1 or not text.startswith(b"{") or b'"jsonrpc"' not in text:
                name = self.config.name
                log.warning("%s: not a message on its stdout: %.200r", name, bytes(line[:200]))
                return []
            (number,) = self._unanswered
            assert number is not None
            messages = [answers.malformed(number, bytes(text[:200]), error)]
        bounded = [limits.bound_message(SessionMessage(message)) for message in messages]
        return [message for message in bounded if message]

    async def _write(
        self, process: Process, from_us: MemoryObjectReceiveStream[SessionMessage]
    ) -> None:
        assert process.stdin is not None
        with from_us, suppress(OSError):
            async for message in from_us:
                match message.message:
                    case T.JSONRPCRequest(id=number):
                        self._unanswered.add(number)
                    case T.JSONRPCNotification(params={"requestId": str() | int() as number}):
                        self._unanswered.discard(number)  # it is cancelled
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
        self.ended.set()  # it closed its stdin: of no more use

    async def _watch_stderr(self, process: Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(1 << 16):
            self._bytes_read += len(chunk)
            self._stderr += chunk
            del self._stderr[:-STDERR_TAIL_BYTES]
            log.debug("%s: %s", self.config.name, chunk.decode(errors="replace").rstrip())


class _ProcessProtocol(SubprocessStreamProtocol):
    """Ends the streams with the process, also while a child of its own holds the pipes open."""

    _server: asyncio.SubprocessTransport

    def __init__(self) -> None:
        super().__init__(limit=1 << 16, loop=asyncio.get_running_loop())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._server = transport
        super().connection_made(transport)

    def process_exited(self) -> None:
        super().process_exited()
        # Its last output is still in transit.
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._close)

    def _close(self) -> None:
        for fd in (1, 2):
            if (pipe := self._server.get_pipe_transport(fd)) is not None:
                pipe.close()


def _used(process: psutil.Process) -> tuple[object, ...]:
    """Return a process's number, and what it has used of the processor and the disks."""
    with suppress(psutil.Error), process.oneshot():
        if process.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP):
            return process.pid, object()  # it may be too short of the processor to show more
        disks = process.io_counters() if hasattr(process, "io_counters") else None
        bytes_used = (disks.read_bytes, disks.write_bytes) if disks else ()
        return process.pid, *process.cpu_times()[:2], *bytes_used
    return process.pid, 0


def environment(config: ServerConfig) -> dict[str, str]:
    """A server's environment: what programs need, and its settings, but no other secrets."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED_VARIABLES or name.startswith(("LC_", "XDG_"))
    }
    inherited["PATH"] = search_path()
    if config.start_folder and "-m" in config.args:
        inherited["PYTHONSAFEPATH"] = "1"  # python -m looks for modules in the working folder first
    return inherited | dict(config.env)


async def _terminate(process: Process, *, polite: bool) -> None:
    """Close stdin, wait if ``polite``, SIGTERM, wait, SIGKILL, as MCP specifies
    (https://modelcontextprotocol.io/specification/2025-06-18/basic/lifecycle#stdio)."""
    assert process.stdin is not None
    process.stdin.close()
    if polite:
        await _wait_until(lambda: process.returncode is not None, EXIT_GRACE_SECONDS)
    # The group's number stays its own while a member lives, also after the leader is reaped.
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not _signal_group(process.pid, number):
            break
        await _wait_until(lambda: not _signal_group(process.pid, 0), EXIT_GRACE_SECONDS)
    await _wait_until(lambda: process.returncode is not None, EXIT_GRACE_SECONDS)
    # A process that left the group may hold the pipes open; do not wait for it.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _wait_until(done: Callable[[], bool], seconds: float) -> None:
    with anyio.move_on_after(seconds):
        while not done():  # noqa: ASYNC110 - asyncio has no event for the end of a process group
            await anyio.sleep(0.005)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether the group has a member."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of zombies
        return number != 0
    return True
