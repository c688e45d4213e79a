"""What an attack did to a process: whether it held, its peak of memory, how late its loop was."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

MIB = 1 << 20
MAX_MEMORY_MIB, MAX_LATENESS_MS = 64.0, 100.0
"""The goals for one attack: memory beside what the process had before, and how late others are."""


@dataclass(slots=True)
class Load:
    """What an attack cost the process that was attacked."""

    memory_mib: float = 0.0
    lateness_ms: float = 0.0
    max_lateness_ms: float = MAX_LATENESS_MS

    def missed_goals(self) -> list[str]:
        """Return the goals that the process missed, as what happened."""
        missed = []
        if self.memory_mib > MAX_MEMORY_MIB:
            missed.append(f"took {self.memory_mib:.0f} MiB")
        if self.lateness_ms > self.max_lateness_ms:
            missed.append(f"others waited {self.lateness_ms:.0f} ms")
        return missed


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attack that was tried."""

    group: str
    """What is attacked, and under which isolation."""
    name: str
    repelled: bool
    detail: str = ""
    """What it did, or what was answered."""
    load: Load = field(default_factory=Load)

    def with_goals(self) -> Attempt:
        """Return the attempt as one that is repelled only if its load met the goals."""
        if not (missed := self.load.missed_goals()):
            return self
        return replace(self, repelled=False, detail="; ".join([*missed, self.detail]))


class PeakMemory:
    """The most resident memory of a process since the last reset (Linux), in MiB."""

    def __init__(self, pid: int | None = None) -> None:
        self._folder = Path("/proc", str(pid or os.getpid()))
        self._before = 0.0

    def reset(self) -> None:
        """Begin to measure."""
        (self._folder / "clear_refs").write_text("5")
        self._before = self._peak()

    def growth(self) -> float:
        """How much more memory the process had at most since the reset."""
        return max(self._peak() - self._before, 0.0)

    def _peak(self) -> float:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@asynccontextmanager
async def measured() -> AsyncIterator[Load]:
    """Measure this process and its event loop meanwhile."""
    gc.collect()
    load, memory = Load(), PeakMemory()
    memory.reset()

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            load.lateness_ms = max(load.lateness_ms, (time.perf_counter() - began) * 1000 - 2)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    load.lateness_ms = 0.0
    try:
        yield load
    finally:
        await asyncio.sleep(0)
        watching.cancel()
        load.memory_mib = memory.growth()


def started_processes() -> set[psutil.Process]:
    """The processes that this one has started, and theirs."""
    return set(psutil.Process().children(recursive=True))


def left_processes(before: set[psutil.Process]) -> list[str]:
    """End what was started since ``before`` and goes on for 10 s longer; returns its names."""
    _, left = psutil.wait_procs(started_processes() - before, timeout=10)
    for process in left:
        process.kill()
    return [process.name() for process in left]


def markdown_table(attempts: Sequence[Attempt]) -> str:
    """Return a row for each group, and what did not hold or missed a goal below it."""
    lines = ["| attacked | tried | held | most memory | others waited |", "|---|---|---|---|---|"]
    for group in dict.fromkeys(attempt.group for attempt in attempts):
        members = [attempt for attempt in attempts if attempt.group == group]
        lines.append(
            f"| {group} | {len(members)} | {sum(attempt.repelled for attempt in members)} |"
            f" {_most(members, lambda load: load.memory_mib, 'MiB')} |"
            f" {_most(members, lambda load: load.lateness_ms, 'ms')} |"
        )
    missed = [attempt for attempt in attempts if not attempt.repelled]
    if missed:
        lines += ["", "Not held:", ""]
        lines += [f"- {each.group}: {each.name}: {each.detail}" for each in missed]
    return "\n".join(lines)


def _most(attempts: Iterable[Attempt], figure: Callable[[Load], float], unit: str) -> str:
    most = max(figure(attempt.load) for attempt in attempts)
    return f"{most:.0f} {unit}" if most else "–"
