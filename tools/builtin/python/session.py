"""One conversation's Python: starts a worker process when it is needed, and replaces a dead one."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

from agent.util import private_files
from tools.builtin.python.call_limits import CallLimits
from tools.builtin.python.worker_process import WorkerProcess
from tools.builtin_server import ToolError
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation

WORKER_SCRIPT = Path(__file__).with_name("worker.py")


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
