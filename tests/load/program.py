"""`agent serve` as it is installed, and what can be measured of its process from outside."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

MIB = 1024 * 1024


@dataclass
class Program:
    """A running server."""

    url: str
    home: Path
    process: asyncio.subprocess.Process

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    @property
    def host(self) -> tuple[str, int]:
        name, _, port = self.root.removeprefix("http://").rpartition(":")
        return name, int(port)

    @property
    def memory(self) -> float:
        """MiB that the process has in memory."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / MIB

    @property
    def descriptors(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    @property
    def children(self) -> set[psutil.Process]:
        """Processes below it."""
        return set(psutil.Process(self.process.pid).children(recursive=True))

    async def running(self) -> int:
        """Responses that have not ended."""
        async with httpx2.AsyncClient(timeout=60) as http:
            return int((await http.get(f"{self.root}/health")).json()["running"])

    async def quiet(self) -> None:
        """Until nothing runs."""
        async with asyncio.timeout(60):
            while await self.running():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Asked to end by a signal; its exit code, and what it had to say."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        out, _ = await self.process.communicate()
        return self.process.returncode or 0, out.decode()

    def stored(self) -> dict[str, str]:
        """The status of every response in the store, by its id."""
        db = sqlite3.connect(self.home / "state" / "store.sqlite")
        try:
            return dict(db.execute("select id, status from responses"))
        finally:
            db.close()


@asynccontextmanager
async def serving(
    home: Path, *options: str, environment: dict[str, str] | None = None
) -> AsyncIterator[Program]:
    """The server on a free port, from when it says where it is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "agent", "serve", "--port", "0", *options),
        cwd=home,
        env={**os.environ, "AGENT_HOME": str(home), **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        assert process.stdout
        line = (await process.stdout.readline()).decode()
        found = re.search(r"http://\S+/v1", line)
        assert found, line + (await process.stdout.read()).decode()
        yield Program(found[0], home, process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def orphans(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of them that still live; not others that have their numbers since."""
    return [process for process in processes if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def line(cells: Iterable[object]) -> str:
    """Of a table, as Markdown."""
    shown = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
    return f"| {' | '.join(shown)} |"
