"""One conversation's Python: starts a worker process when it is needed, sends it code, receives output,
interrupts and kills it, and replaces a dead one."""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

from agent.util import private_files
from tools import process_groups
from tools.builtin.python.call_limits import CallLimits, WorkerWatch
from tools.builtin.python.worker import FRAME_HEADER
from tools.builtin_server import ToolError, output_listener
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation

log = logging.getLogger(__name__)

WORKER_SCRIPT = Path(__file__).with_name("worker.py")
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
            env=sandbox.environment(work_folder),
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


class PythonSession:
    """Runs code whose variables last from call to call, until the worker dies or is ended."""

    def __init__(
        self, work_folder: Path, isolation: Callable[[], Isolation], limits: CallLimits
    ) -> None:
        """``work_folder``: all that the code may write. ``isolation``: may block the first time."""
        self.work_folder = work_folder
        self._isolation, self._limits = isolation, limits
        self._idle_timer: asyncio.TimerHandle | None = None
        self._worker: WorkerProcess | None = None
        self._busy = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._note = self._warning = ""
        self._fresh = True
        self._closed = False

    @property
    def alive(self) -> bool:
        return self._worker is not None and not self._worker.dead

    @property
    def busy(self) -> bool:
        """Whether code runs, or a worker is being stopped."""
        return self._busy.locked() or bool(self._ending)

    async def run(self, code: str) -> str:
        """Return what the code printed and its last value; raises ToolError with that if it failed."""
        try:
            async with self._busy:
                return await self._run(code)
        finally:
            self._start_idle_timer()

    async def _run(self, code: str) -> str:
        worker = await self._ready()
        run = asyncio.create_task(worker.run(code))
        try:
            done, _ = await asyncio.wait([run], timeout=self._limits.seconds)
            if not done:
                await self._stop(worker, run)
                error = f"stopped after {self._limits.seconds:g} s; "
                error += self._drop_dead(worker) if worker.dead else "variables are kept"
                raise self._failed(worker, error)
        except asyncio.CancelledError:
            self._end_later(self._abandon(worker, run))
            raise
        if worker.dead:
            raise self._failed(worker, self._drop_dead(worker))
        if not run.result():
            raise self._failed(worker)
        warning, self._warning = self._warning, ""
        return _joined(warning, worker.take_output())

    def _end_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the background: the caller does not wait for it; the next call does."""
        ending = asyncio.create_task(work)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _start_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._closed:
            call_later = asyncio.get_running_loop().call_later
            # In a context of its own: that of the call would keep its whole turn in memory until then.
            self._idle_timer = call_later(
                self._limits.idle_seconds, self._expire, context=Context()
            )

    def _expire(self) -> None:
        if not self.busy:  # else its call starts the timer again
            seconds = self._limits.idle_seconds
            self._end_later(self._kill(f"was idle for {seconds:g} s and was ended"))

    def _failed(self, worker: WorkerProcess, error: str = "") -> ToolError:
        """Make the error of a run; it says if variables were lost before, which may be why."""
        note, self._note, self._warning = self._note, "", ""
        printed = _joined(note, worker.take_output())
        return ToolError(error, printed and f"{printed}\n") if error else ToolError(printed)

    async def end(self, reason: str = "was ended") -> None:
        """Kill the worker; the next error says with ``reason`` why the variables are gone."""
        if self._ending:
            await asyncio.wait(self._ending)
        await self._kill(reason)

    async def _kill(self, reason: str) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._note = (
                f"[the Python process {reason}; its variables are lost, a fresh one starts]"
            )
            await worker.kill()

    async def close(self) -> None:
        """End the session for good, also a call that is running."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self.end()
        async with self._busy:
            await self.end()

    async def _ready(self) -> WorkerProcess:
        """Return the idle worker; start one if there is none."""
        if self._ending:
            await asyncio.wait(self._ending)
        if self._worker is not None and self._worker.dead:
            offended = self._worker.offence
            self._note = f"[{self._drop_dead(self._worker)}]"
            self._warning = self._note if offended else ""  # whether or not code fails now
        if self._worker is None:
            self._worker = await self._launch()
        if self._closed:
            raise ToolError("python is closed")
        return self._worker

    async def _launch(self) -> WorkerProcess:
        isolation = await asyncio.to_thread(self._isolation)
        if self._fresh and self.work_folder.exists():
            # Made by an earlier process of this program: the conversation was resumed.
            self._note = "[a fresh Python process: earlier variables are lost, files are kept]"
        self._fresh = False
        private_files.make_folder(self.work_folder)
        command = sandbox.script_command(
            isolation.name, WORKER_SCRIPT, self.work_folder, self._limits.process
        )
        worker = WorkerProcess(self._limits)
        # A call that is cancelled here leaves no process behind, and no half-started worker.
        try:
            await worker.start(command, self.work_folder)
        except asyncio.CancelledError:
            self._end_later(worker.kill())
            raise
        return worker

    async def _stop(self, worker: WorkerProcess, run: asyncio.Task[bool]) -> None:
        """Interrupt the run; if that does not help, kill the worker."""
        for pause in self._limits.interrupt_grace:  # code may catch the first
            worker.interrupt()
            done, _ = await asyncio.wait([run], timeout=pause)
            if done:
                return
        await worker.kill()
        await asyncio.wait([run])

    async def _abandon(self, worker: WorkerProcess, run: asyncio.Task[bool]) -> None:
        await self._stop(worker, run)
        worker.take_output()

    def _drop_dead(self, worker: WorkerProcess) -> str:
        """Forget a dead worker; return how it ended, for the model."""
        self._worker = None
        return f"the Python process {worker.death()}; its variables are lost, a fresh one starts"


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
