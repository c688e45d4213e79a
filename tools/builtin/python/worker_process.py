"""One worker process: code goes in, output comes out, and it can be interrupted or killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

from tools import process_groups
from tools.builtin.base import HandError, emit
from tools.sandbox import isolation

log = logging.getLogger(__name__)

START_SECONDS = 20.0
GRACE = (0.2, 0.8, 1.0)
"""Seconds that a run has to stop after each interrupt, before the worker is killed."""
MAX_LINE = 1 << 24
"""Bytes of one message of the worker; the code in it could write its own."""


class Worker:
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
            env=isolation.environment(work),
            cwd=work,
            start_new_session=True,
            limit=MAX_LINE,
        )
        process_groups.groups.add(self._process.pid)
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
            process_groups.groups.discard(self._process.pid)
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
