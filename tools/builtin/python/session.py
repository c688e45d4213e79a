"""One conversation's Python: a worker that is started when needed, and what became of the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tools import private_files
from tools.builtin.base import HandError
from tools.builtin.python.worker_process import GRACE, Worker
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation, Limits

WORKER = Path(__file__).with_name("worker.py")


class Session:
    """Variables last from call to call, until the worker dies or is ended."""

    def __init__(
        self, work: Path, isolation: Callable[[], Isolation], limits: Limits, timeout: float
    ) -> None:
        """``work``: the folder that the code may write. ``isolation``: may block the first time.

        ``timeout``: seconds per call."""
        self.work = work
        self._isolation, self._limits, self._timeout = isolation, limits, timeout
        self._worker: Worker | None = None
        self._busy = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._note = ""
        self._fresh = True
        self._closed = False

    @property
    def alive(self) -> bool:
        """It has a worker process."""
        return self._worker is not None and not self._worker.dead

    @property
    def busy(self) -> bool:
        return self._busy.locked() or bool(self._ending)

    async def run(self, code: str) -> str:
        """What the code printed and gave; raises HandError with the same where it failed."""
        async with self._busy:
            worker = await self._ready()
            run = asyncio.create_task(worker.run(code))
            try:
                done, _ = await asyncio.wait([run], timeout=self._timeout)
                if not done:
                    await self._stop(worker, run)
                    what = f"Error: stopped after {self._timeout:g} s; "
                    what += self._bury(worker) if worker.dead else "variables are kept"
                    raise self._failed(worker, what)
            except asyncio.CancelledError:
                # The caller does not wait; the next call does.
                stopping = asyncio.create_task(self._stop(worker, run))
                self._ending.add(stopping)
                stopping.add_done_callback(self._ending.discard)
                raise
            if worker.dead:
                raise self._failed(worker, f"Error: {self._bury(worker)}")
            if not run.result():
                raise self._failed(worker)
            return worker.output()

    def _failed(self, worker: Worker, what: str = "") -> HandError:
        """With a word on lost variables, which may be why; code that ran did not need them."""
        note, self._note = self._note, ""
        return HandError(_joined(note, worker.output(), what))

    async def end(self, reason: str = "was ended") -> None:
        """Kill the worker; the next call that fails is told why its variables are gone."""
        if self._ending:
            await asyncio.wait(self._ending)
        worker, self._worker = self._worker, None
        if worker is not None:
            self._note = (
                f"[the Python process {reason}; its variables are lost, a fresh one starts]"
            )
            await worker.kill()

    async def close(self) -> None:
        """End for good, also a call that is under way."""
        self._closed = True
        await self.end()
        async with self._busy:
            await self.end()

    async def _ready(self) -> Worker:
        """The worker, idle; a fresh one where there is none."""
        if self._ending:
            await asyncio.wait(self._ending)
        if self._worker is not None and self._worker.dead:
            self._note = f"[{self._bury(self._worker)}]"
        if self._worker is None:
            self._worker = await self._launch()
        if self._closed:
            raise HandError("Error: python is closed")
        return self._worker

    async def _launch(self) -> Worker:
        way = await asyncio.to_thread(self._isolation)
        if self._fresh and self.work.exists():
            # Made by an earlier process of this program: the conversation was resumed.
            self._note = "[a fresh Python process: earlier variables are lost, files are kept]"
        self._fresh = False
        private_files.folder(self.work)
        command = sandbox.command(way.name, WORKER, self.work, self._limits)
        worker = Worker()
        # A call that is cancelled here leaves no process behind, and no half-started worker.
        try:
            await worker.start(command, self.work)
        except asyncio.CancelledError:
            killing = asyncio.create_task(worker.kill())
            self._ending.add(killing)
            killing.add_done_callback(self._ending.discard)
            raise
        return worker

    async def _stop(self, worker: Worker, run: asyncio.Task[bool]) -> None:
        """Interrupt; where that does not help, kill."""
        for pause in GRACE:  # code may catch the first
            worker.interrupt()
            done, _ = await asyncio.wait([run], timeout=pause)
            if done:
                return
        await worker.kill()
        await asyncio.wait([run])

    def _bury(self, worker: Worker) -> str:
        """Forget a dead worker; what the model should know of it."""
        self._worker = None
        return f"the Python process {worker.death()}; its variables are lost, a fresh one starts"


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
