"""The parent's end of a worker process: sends code, receives output, interrupts and kills it."""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tools import process_groups
from tools.builtin.python.call_limits import CallLimits, WorkerWatch
from tools.builtin.python.worker import FRAME_HEADER
from tools.builtin_server import ToolError, output_listener
from tools.sandbox import isolation

log = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 20.0
END_SECONDS = 1.0
"""Time that the pipes of a killed worker have to be read to their end."""
MAX_RUN_CHARS, MAX_RUN_FRAMES = 2_000_000, 10_000
"""Bytes that the worker may send in one run: the model's code could write to the pipe itself."""
MAX_STDERR_BYTES = 64 << 20
"""Bytes that native code may write to stderr in one run; only the end is kept in memory."""
PIPE_BUFFER_BYTES = 1 << 16


class WorkerProcess:
    """One process of ``worker.py``; between runs it is stopped (Linux), so that its threads rest."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._watch: WorkerWatch | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._run_ids = itertools.count(1)
        self._run_id = 0
        self._output: list[str] = []
        self._chars = self._frames = self._stderr_bytes = 0
        self._stderr = bytearray()
        self._done: asyncio.Future[bool] | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._listener: Any = None
        self.dead = False
        self.offence = ""
        """The violation for which the process was ended, as a predicate."""

    async def start(self, command: list[str], work_folder: Path) -> None:
        """Start the process and wait until it is ready; raises ToolError."""
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=isolation.environment(work_folder),
            cwd=work_folder,
            start_new_session=True,
            limit=PIPE_BUFFER_BYTES,
        )
        process_groups.active_groups.add(self._process.pid)
        ready = self._done = asyncio.get_running_loop().create_future()
        self._readers = [
            asyncio.create_task(self._read_frames()),
            asyncio.create_task(self._read_stderr()),
        ]
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                await ready
        except TimeoutError:
            await self.kill()
        if self.dead:
            raise ToolError(f"Python did not start: it {self.death()}")
        self._watch = await asyncio.to_thread(
            WorkerWatch, self._limits, work_folder, self._process.pid
        )

    async def run(self, code: str) -> bool:
        """Run code; return whether it ended without an error, False also if the process died."""
        assert self._process is not None and self._process.stdin is not None
        assert self._watch is not None
        await asyncio.to_thread(self._watch.begin)
        self._run_id = next(self._run_ids)
        self._output, self._chars, self._frames, self._stderr_bytes = [], 0, 0, 0
        self._listener = output_listener.get()
        done = self._done = asyncio.get_running_loop().create_future()
        if self.dead:
            return False
        self._signal(signal.SIGCONT)
        line = json.dumps({"id": self._run_id, "code": code}) + "\n"
        excess = asyncio.create_task(self._watch.exceeded())
        try:
            self._process.stdin.write(line.encode())
            await self._process.stdin.drain()
            await asyncio.wait([done, excess], return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            await self.kill("closed its input")
        finally:
            self._listener = None
            excess.cancel()
        await self._check_limits(excess)
        return await done and not self.dead

    async def _check_limits(self, excess: asyncio.Task[str]) -> None:
        """Kill the worker if it exceeds a limit, or ``excess`` has seen that."""
        assert self._watch is not None
        reason = excess.result() if excess.done() and not excess.cancelled() else ""
        if reason := reason or await asyncio.to_thread(self._watch.end):
            await self.kill(reason)
            await asyncio.to_thread(self._watch.clean_up)

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the code that runs."""
        if self._process and self._process.stdin and not self.dead:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b'{"interrupt": %d}\n' % self._run_id)

    def take_output(self) -> str:
        output, self._output = "".join(self._output), []
        return output.removesuffix("\n")

    def death(self) -> str:
        """Return how the process ended, as the predicate of a sentence."""
        if self.offence:
            return f"was ended because it {self.offence}"
        code = self._process.returncode if self._process else None
        lines = bytes(self._stderr).decode(errors="replace").strip().splitlines()
        why = f": {lines[-1]}" if lines else ""
        if code is None or code == -signal.SIGKILL:
            return f"was killed{why}"
        # bubblewrap reports a signal as a shell does.
        killed = -code if code < 0 else code - 128 if code > 128 else 0
        return f"was killed by signal {killed}{why}" if killed else f"ended (exit code {code}){why}"

    async def kill(self, offence: str = "") -> None:
        """Kill the process and all it started, and wait for its end; ``offence``: why."""
        if self._process is None:
            return
        self._kill_group(offence)
        await asyncio.wait(self._readers, timeout=END_SECONDS)
        for task in self._readers:
            task.cancel()
        await self._process.wait()
        self._on_exit()

    def _kill_group(self, offence: str) -> None:
        assert self._process is not None
        self.offence = self.offence or offence
        process_groups.kill(self._process.pid)

    def _signal(self, number: signal.Signals) -> None:
        """Stop or continue the process that runs the code, if it would also end with its parent."""
        if self._watch is not None and not self.dead and sys.platform == "linux":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._watch.pid, number)

    async def _read_frames(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        stdout, offence = self._process.stdout, ""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while not offence:
                header = await stdout.readexactly(FRAME_HEADER.size)
                kind, run_id, length = FRAME_HEADER.unpack(header)
                if not (offence := self._header_offence(kind, run_id)):
                    offence = self._take_frame(kind, await stdout.readexactly(length))
                await asyncio.sleep(0)  # all others of the loop come between two frames
        self._kill_group(offence)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while await stdout.read(PIPE_BUFFER_BYTES):  # a full pipe's end is never seen
                    pass
        await self._process.wait()
        self._on_exit()

    def _header_offence(self, kind: bytes, run_id: int) -> str:
        """Return what is wrong with a frame, empty if nothing is."""
        self._frames += 1
        if self._done is None or self._done.done():
            return "sent output while no call was running"
        if self._frames > MAX_RUN_FRAMES:
            return f"sent more than {MAX_RUN_FRAMES:,} pieces of output"
        known = kind in (b"oe+-" if run_id else b"r") and run_id == self._run_id
        return "" if known else "sent a malformed message"

    def _take_frame(self, kind: bytes, text: bytes) -> str:
        """Handle a frame; return what is wrong with it, empty if nothing is."""
        if kind in b"oe":
            return self._take_text(
                "stdout" if kind == b"o" else "stderr", text.decode(errors="replace")
            )
        if kind != b"r":
            self._signal(signal.SIGSTOP)
        self._finish(kind != b"-")
        return ""

    def _take_text(self, stream: str, text: str) -> str:
        self._chars += len(text)
        if self._chars > MAX_RUN_CHARS:
            return f"sent more than {MAX_RUN_CHARS:,} characters of output"
        self._output.append(text)
        if self._listener is not None:
            try:
                self._listener(stream, text)
            except Exception:
                log.exception("a listener failed")
        return ""

    def _on_exit(self) -> None:
        self.dead = True
        if self._process is not None:
            process_groups.active_groups.discard(self._process.pid)
        self._finish(False)

    async def _read_stderr(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while chunk := await self._process.stderr.read(1 << 16):
            self._stderr += chunk
            del self._stderr[:-2000]
            self._stderr_bytes += len(chunk)
            if self._stderr_bytes > MAX_STDERR_BYTES:
                self._kill_group(f"wrote more than {MAX_STDERR_BYTES >> 20} MiB to stderr")

    def _finish(self, ok: bool) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(ok)
