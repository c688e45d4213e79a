"""Runs `agent serve` as a process and measures it from outside.

`tests.support.serve_program` runs one for tests that are not asynchronous and measure nothing.
"""

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

from tests.support.waiting import HANG_SECONDS

MIB = 1024 * 1024


@dataclass
class ServerProcess:
    """A running server, its folder and its process."""

    url: str
    home: Path
    process: asyncio.subprocess.Process

    @property
    def root(self) -> str:
        """The URL without ``/v1``."""
        return self.url.removesuffix("/v1")

    @property
    def host(self) -> tuple[str, int]:
        """Host and port."""
        name, _, port = self.root.removeprefix("http://").rpartition(":")
        return name, int(port)

    @property
    def memory_mib(self) -> float:
        """Resident memory of the process in MiB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / MIB

    @property
    def descriptors(self) -> int:
        """Number of open file descriptors."""
        return int(psutil.Process(self.process.pid).num_fds())

    @property
    def children(self) -> set[psutil.Process]:
        """The processes that it has started, and theirs."""
        return set(psutil.Process(self.process.pid).children(recursive=True))

    async def running_responses(self) -> int:
        """Number of responses that have not ended."""
        async with httpx2.AsyncClient(timeout=HANG_SECONDS) as http:
            return int((await http.get(f"{self.root}/health")).json()["running"])

    async def wait_idle(self) -> None:
        """Wait until no response runs."""
        async with asyncio.timeout(HANG_SECONDS):
            while await self.running_responses():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait for the end; returns the exit code and the rest of the output."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        out, _ = await self.process.communicate()
        return self.process.returncode or 0, out.decode()

    def stored_statuses(self) -> dict[str, str]:
        """The status of every response in the store, by its id."""
        db = sqlite3.connect(self.home / "state" / "store.sqlite")
        try:
            return dict(db.execute("select id, status from turns where served is not null"))
        finally:
            db.close()


@asynccontextmanager
async def start_server(
    home: Path, *options: str, environment: dict[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """Run the server on a free port for the duration of the block, which begins when it listens."""
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
        url = re.search(r"http://\S+/v1", line)
        assert url, line + (await process.stdout.read()).decode()
        yield ServerProcess(url[0], home, process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def surviving(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that still run, not others that have got their ids since."""
    return [process for process in processes if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def markdown_row(cells: Iterable[object]) -> str:
    """Format the row of a table as Markdown."""
    texts = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"
