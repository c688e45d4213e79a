"""The ``python`` tool: one worker per conversation, started when first needed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import children, sandbox
from tools.base import Tool
from tools.hands import HandError, emit
from tools.sandbox import Isolation, Limits

log = logging.getLogger(__name__)

WORKER = Path(__file__).with_name("worker.py")
START_SECONDS = 20.0
GRACE = (0.2, 0.8, 1.0)
"""Seconds that a run has to stop after each interrupt, before the worker is killed."""
MAX_LINE = 1 << 24
"""Bytes of one message of the worker; the code in it could write its own."""


class Python:
    """A hand: server ``code_interpreter``, tool ``python``. Its variables last until ``close``."""

    name = "code_interpreter"
    short = "python"
    tools: Sequence[Tool] = (
        Tool(
            server="code_interpreter",
            name="python",
            description="Run Python code.",
            parameters={
                "type": "object",
                "properties": {"code": {"type": "string"}},
                "required": ["code"],
            },
            model_name="python",
        ),
    )

    def __init__(
        self,
        *,
        timeout: float = 120.0,
        allow_unsandboxed: bool = False,
        work: Path | None = None,
        limits: Limits | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        """``timeout``: seconds per call. ``work``: its folder (None: a temporary one, removed at the
        end). ``isolation``: None picks the best that works here."""
        self._timeout = timeout
        self._allow_unsandboxed = allow_unsandboxed
        self._work = work
        self._temporary: Path | None = None
        self._limits = limits or Limits()
        self._isolation = isolation
        self._worker: _Worker | None = None
        self._warming: asyncio.Task[_Worker] | None = None
        self._busy = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._note = ""
        self._closed = False

    def isolation(self) -> Isolation:
        """What stands between the code and this machine; the first time it is tried out, and blocks."""
        if self._isolation is None:
            self._isolation = sandbox.isolation()
        return self._isolation

    def contained(self, name: str) -> bool:
        return self.isolation().ok

    def problem(self) -> str | None:
        way = self._isolation
        if way is None or way.ok or self._allow_unsandboxed:
            return None
        return f"is not available: {way.detail}"

    async def start(self) -> None:
        await asyncio.to_thread(self.isolation)
        if self.problem() is None:
            self._warm()

    def _warm(self) -> None:
        if self._warming is None and self._worker is None and not self._closed:
            self._warming = asyncio.create_task(self._launch())
            # A failure is told by the call that needs the worker.
            self._warming.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        async with self._busy:
            worker = await self._ready()
            note, self._note = self._note, ""
            run = asyncio.create_task(worker.run(arguments["code"]))
            try:
                done, _ = await asyncio.wait([run], timeout=self._timeout)
                if not done:
                    await self._stop(worker, run)
                    what = f"Error: stopped after {self._timeout:g} s; "
                    what += self._bury(worker) if worker.dead else "variables are kept"
                    raise HandError(_joined(worker.output(), what))
            except asyncio.CancelledError:
                # The caller does not wait; the next call does.
                stopping = asyncio.create_task(self._stop(worker, run))
                self._ending.add(stopping)
                stopping.add_done_callback(self._ending.discard)
                raise
            if worker.dead:
                raise HandError(_joined(worker.output(), f"Error: {self._bury(worker)}"))
            text = _joined(note, worker.output())
            if not run.result():
                raise HandError(text)
            return text

    async def close(self) -> None:
        self._closed = True
        if (warming := self._warming) is not None:
            await asyncio.wait([warming])
            if not warming.cancelled() and not warming.exception():
                self._worker = warming.result()
        if self._worker is not None:
            await self._worker.kill()
        if self._ending:
            await asyncio.wait(self._ending)
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    async def _ready(self) -> _Worker:
        """The worker, idle; a fresh one where there is none."""
        if self._ending:
            await asyncio.wait(self._ending)
        if self._closed:
            raise HandError("Error: python is closed")
        if self._worker is not None and self._worker.dead:
            self._note = f"[{self._bury(self._worker)}]"
        if self._worker is None:
            self._warm()
            assert self._warming is not None
            # Shielded: a cancelled call must not take the start with it.
            try:
                self._worker = await asyncio.shield(self._warming)
            finally:
                if self._warming.done():
                    self._warming = None
        return self._worker

    async def _launch(self) -> _Worker:
        way = await asyncio.to_thread(self.isolation)
        if problem := self.problem():
            raise HandError(f"Error: python {problem}")
        if self._work is None:
            self._temporary = self._work = Path(tempfile.mkdtemp(prefix="agent-python-")).resolve()
        self._work.mkdir(parents=True, exist_ok=True)
        worker = _Worker()
        await worker.start(sandbox.command(way.name, WORKER, self._work, self._limits), self._work)
        return worker

    async def _stop(self, worker: _Worker, run: asyncio.Task[bool]) -> None:
        """Interrupt; where that does not help, kill."""
        for pause in GRACE:  # code may catch the first
            worker.interrupt()
            done, _ = await asyncio.wait([run], timeout=pause)
            if done:
                return
        await worker.kill()
        await asyncio.wait([run])

    def _bury(self, worker: _Worker) -> str:
        """Forget a dead worker; what the model should know of it."""
        self._worker = None
        return f"the Python process {worker.death()}; its variables are lost, a fresh one starts"


class _Worker:
    """One worker process."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = itertools.count(1)
        self._current = 0
        self._output: list[str] = []
        self._stderr = bytearray()
        self._done: asyncio.Future[bool] | None = None
        self._reading: list[asyncio.Task[None]] = []
        self._emit: Any = None
        self.dead = False

    async def start(self, command: list[str], work: Path) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=sandbox.environment(work),
            cwd=work,
            start_new_session=True,
            limit=MAX_LINE,
        )
        children.groups.add(self._process.pid)
        ready = self._done = asyncio.get_running_loop().create_future()
        self._reading = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]
        try:
            async with asyncio.timeout(START_SECONDS):
                await ready
        except TimeoutError:
            await self.kill()
        if self.dead:
            raise HandError(f"Error: Python did not start: it {self.death()}")

    async def run(self, code: str) -> bool:
        """Whether it ended without an error; False too where the process died."""
        assert self._process is not None and self._process.stdin is not None
        self._current = next(self._numbers)
        self._output = []
        self._emit = emit.get()
        self._done = asyncio.get_running_loop().create_future()
        if self.dead:
            return False
        line = json.dumps({"id": self._current, "code": code}) + "\n"
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode())
            await self._process.stdin.drain()
        return await self._done

    def interrupt(self) -> None:
        if self._process and self._process.stdin and not self.dead:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b'{"interrupt": %d}\n' % self._current)

    def output(self) -> str:
        return "".join(self._output).removesuffix("\n")

    def death(self) -> str:
        """How it ended."""
        code = self._process.returncode if self._process else None
        last = bytes(self._stderr).decode(errors="replace").strip().splitlines()
        why = f": {last[-1]}" if last else ""
        if code is None or code == -signal.SIGKILL:
            return f"was killed{why}"
        # bubblewrap reports a signal as a shell does.
        killed = -code if code < 0 else code - 128 if code > 128 else 0
        return f"was killed by signal {killed}{why}" if killed else f"ended (exit code {code}){why}"

    async def kill(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.wait(self._reading, timeout=GRACE[-1])
        for task in self._reading:
            task.cancel()
        await self._process.wait()
        self._end()

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with contextlib.suppress(ValueError):  # a line longer than MAX_LINE
            async for line in self._process.stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._take(message)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._end()

    def _end(self) -> None:
        self.dead = True
        if self._process is not None:
            children.groups.discard(self._process.pid)
        self._finish(False)

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._finish(True)
        elif message.get("id") == self._current:
            if isinstance(text := message.get("text"), str):
                self._output.append(text)
                if self._emit is not None:
                    try:
                        self._emit(str(message.get("stream")), text)
                    except Exception:
                        log.exception("a listener failed")
            elif "ok" in message:
                self._finish(bool(message["ok"]))

    async def _watch(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while chunk := await self._process.stderr.read(1 << 16):
            self._stderr += chunk
            del self._stderr[:-2000]

    def _finish(self, ok: bool) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(ok)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
