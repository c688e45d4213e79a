"""Runs a command and leaves no process of it running, not even those in the background.

Run as a script, ``python -I supervise.py LIMITS COMMAND…``; imports nothing of ours. LIMITS is JSON:
``{"processes": how many may live at a time, "memory": bytes that all may use together, "descriptors":
how many all may have open together}``. Ends all
when its stdin ends: its parent is gone or has lost patience. Exits with the command's code, or with
128 + the number of the signal that ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

POLL_SECONDS = 0.05
"""Pause between two checks of the limits."""
KILL_TIMEOUT_SECONDS = 10.0
"""Time for killing a command that goes on starting new processes."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Run the command, watch it, and end everything with it."""
    limits, command = json.loads(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        # PR_SET_CHILD_SUBREAPER: orphans of the command become children of this process.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    wake_reader, wake_writer = os.pipe()  # pipe2 is not everywhere
    os.set_blocking(wake_reader, False)
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    child = os.fork()
    if child == 0:
        os.setsid()  # signals to its group do not reach this process
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        limit_processes(limits["processes"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
            os._exit(127)
    code, why = watch(child, limits, wake_reader)
    kill_all(child)
    if why:
        os.write(2, f"[stopped: {why}]\n".encode())
    os._exit(code)


def limit_processes(processes: int) -> None:
    """Let the kernel refuse more processes too; for root it does not."""
    running = 0
    for entry in os.scandir("/proc") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                running += len(os.listdir(f"{entry.path}/task"))  # noqa: PTH208
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    limit = running + processes
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    os.nice(5)  # the supervisor goes first


def watch(child: int, limits: dict[str, int], wake_reader: int) -> tuple[int, str]:
    """Wait until the command ends or exceeds a limit; return its exit code, and which limit.

    ``wake_reader``: a pipe that can be read from when a child has ended.
    """
    checked = 0.0
    while True:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else 128 - code, ""
        ready = select.select([0, wake_reader], [], [], POLL_SECONDS)[0]
        if wake_reader in ready:
            os.read(wake_reader, 4096)
        if 0 in ready and not os.read(0, 4096):
            return 137, ""
        if time.monotonic() - checked < POLL_SECONDS:
            continue
        checked = time.monotonic()
        pids = descendants()
        if len(pids) > limits["processes"]:
            return 137, f"more than {limits['processes']} processes"
        # Buffers of pipes and sockets are no process's resident memory.
        if sum(map(descriptor_count, pids)) > limits["descriptors"]:
            return 137, f"more than {limits['descriptors']:,} open files"
        if sum(map(resident_bytes, pids)) > limits["memory"]:
            return 137, f"more than {limits['memory'] >> 20} MiB of memory"


def kill_all(child: int) -> None:
    """Kill all processes that are left, and those that they start meanwhile."""
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for pid in descendants() or ({child} if sys.platform != "linux" else ()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def descendants() -> set[int]:
    """Return the ids of all processes below this one, as far as /proc shows them."""
    pids: set[int] = set()
    new = {os.getpid()}
    while new:
        below = {child for pid in new for child in children(pid)}
        new = below - pids
        pids |= new
    return pids


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib costs milliseconds here
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                pids += map(int, file.read().split())
    return pids


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def descriptor_count(pid: int) -> int:
    """Return how many descriptors a process has open."""
    try:
        folder = f"/proc/{pid}/fd"
        # Its size is their number since Linux 6.2, before it is 0.
        return os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208
    except OSError:
        return 0


if __name__ == "__main__":
    main()
