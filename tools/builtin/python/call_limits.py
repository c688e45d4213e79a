"""Limits of a call: time, threads, bytes and files of its working folder. The kernel has no such limits
for one worker alone, nor for root: they are polled during a call and checked after it."""

import asyncio
import contextlib
import os
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.util.folder_limits import measure_folder, remove_changed_since
from tools.sandbox.isolation import ResourceLimits

POLL_SECONDS = 0.05
MEASURE_SHARE = 0.1
"""Share of the time in which the working folder is measured."""
MEASURE_BYTES = 64 << 20
"""Bytes written to the disk, by any process, after which the folder is measured at once."""
MIN_FREE_BYTES = 64 << 20
"""Free disk space that a call must leave, in addition to half of the space that was free."""
MAX_CLOCK_WAITS = 20
"""Milliseconds that a call waits until its files are newer than those of the one before."""
SPARE_TASKS = 4096
"""Threads that the user's processes may start in all after the worker, if the user is not root."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one call, of a conversation's working folder, and of its worker."""

    seconds: float = 120.0
    """Time of a call; then it is interrupted."""
    interrupt_grace: Sequence[float] = (0.2, 0.8, 1.0)
    """Seconds that a run has to stop after each interrupt, before the worker is killed."""
    idle_seconds: float = 1800.0
    """After these a worker without a call is ended."""
    process: ResourceLimits = field(default_factory=ResourceLimits)
    threads: int = 256
    folder_bytes: int = 1 << 30
    """Allocated bytes, with those of files that the worker has removed and has open."""
    folder_entries: int = 20_000


class WorkerWatch:
    """Watches the calls of one worker. Files that were in the folder before a call may stay."""

    def __init__(self, limits: CallLimits, folder: Path, pid: int) -> None:
        """Blocks. ``pid``: the process that was started, in which no code of the model has run."""
        self._limits, self._folder = limits, folder
        self.pid = _confined_pid(pid)
        """The process that runs the code: the innermost of those that isolate it."""
        self._shows_files = _removed_file_bytes(self.pid) is not None
        self._began_ns = self._ended_ns = 0
        self._overfull = False
        self._free_bytes = self._max_bytes = self._max_entries = 0
        _limit_tasks(self.pid)

    def begin(self) -> None:
        """Measure the folder before a call; blocks."""
        self._overfull = False
        for _ in range(MAX_CLOCK_WAITS):
            if (began_ns := self._clock_ns()) > self._ended_ns:
                break
            time.sleep(0.001)
        self._began_ns = began_ns
        before = measure_folder(self._folder)
        used_bytes = before.bytes + (_removed_file_bytes(self.pid) or 0)
        free = self._free_bytes = _free_bytes(self._folder)
        room = max(0, min(free // 2, free - MIN_FREE_BYTES))
        self._max_bytes = max(used_bytes, min(self._limits.folder_bytes, used_bytes + room))
        self._max_entries = max(before.entries, self._limits.folder_entries)

    async def exceeded(self) -> str:
        """Wait until a limit is exceeded; return which, as the predicate of a sentence."""
        next_measure, free = 0.0, self._free_bytes
        while True:
            await asyncio.sleep(POLL_SECONDS)
            threads = _thread_count(Path(f"/proc/{self.pid}")) if sys.platform == "linux" else 0
            if threads > self._limits.threads:
                return f"had more than {self._limits.threads} threads"
            now = time.monotonic()
            if now >= next_measure or _free_bytes(self._folder) < free - MEASURE_BYTES:
                free = _free_bytes(self._folder)
                if reason := await asyncio.to_thread(self._folder_problem):
                    return reason
                next_measure = time.monotonic() + (time.monotonic() - now) / MEASURE_SHARE

    def end(self) -> str:
        """End a call; return which limit of the folder is exceeded, empty if none is. Blocks."""
        self._ended_ns = self._clock_ns()
        return self._folder_problem()

    def clean_up(self) -> None:
        """If the folder has too much, remove what changed in it since the call began; blocks."""
        if self._overfull:
            remove_changed_since(self._folder, self._began_ns)

    def _folder_problem(self) -> str:
        removed = _removed_file_bytes(self.pid)
        if removed is None and self._shows_files:
            return "hid its open files"
        removed = removed or 0
        usage = measure_folder(self._folder, self._max_bytes - removed, self._max_entries)
        too_many = usage.entries > self._max_entries
        if too_many or usage.bytes + removed > self._max_bytes:
            self._overfull = True
            excess = f"more than {self._max_bytes / (1 << 20):,.0f} MiB in its folder"
            if too_many:
                excess = f"more than {self._max_entries:,} files in its folder, or too deep ones"
            return f"had {excess}; the files that this call wrote are removed"
        if _free_bytes(self._folder) < self._free_bytes // 4:
            return "ran while the disk became full"  # or it has files that cannot be seen
        return ""

    def _clock_ns(self) -> int:
        """Return the time by the clock of the folder's files, which ticks every few milliseconds."""
        try:
            os.utime(self._folder)
            return self._folder.stat().st_ctime_ns
        except OSError:
            return sys.maxsize  # nothing counts as new


def _confined_pid(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        while sys.platform == "linux":
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if not children:
                break
            pid = int(children[0])
    return pid


def _limit_tasks(pid: int) -> None:
    """Let the kernel refuse threads before the machine has none left; for root it does not."""
    if sys.platform != "linux":
        return
    import resource

    limit = SPARE_TASKS
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if process.stat().st_uid == os.getuid():
                limit += _thread_count(process)
    with contextlib.suppress(OSError, ValueError):  # a lower one is set
        resource.prlimit(pid, resource.RLIMIT_NPROC, (limit, limit))


def _thread_count(process: Path) -> int:
    """Return the number of threads, which the links of a folder of /proc count; 0: it has ended."""
    try:
        return (process / "task").stat().st_nlink - 2
    except OSError:
        return 0


def _removed_file_bytes(pid: int) -> int | None:
    """Return the bytes of files that are open but have no name any more; None: they are hidden."""
    sizes: dict[tuple[int, int], int] = {}
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir() if sys.platform == "linux" else ():
            with contextlib.suppress(FileNotFoundError):
                status = descriptor.stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    except PermissionError:
        return None
    except OSError:  # the process has ended
        pass
    return sum(sizes.values())


def _free_bytes(folder: Path) -> int:
    """Return what an ordinary user may still write on a folder's file system; 0: unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
