"""Run a command, and leave nothing of it running: not what it put into the background either.

Started as ``python -I supervise.py LIMITS COMMAND…``; stands alone, imports nothing of ours. LIMITS is
JSON: ``{"processes": how many may live at a time, "memory": bytes that all may hold together}``. Ends
everything when its stdin ends (whoever started it is gone, or has had enough). Exits as the command
did, with 128 + its number where a signal ended it.
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

TICK = 0.05
"""Seconds between two looks at what runs."""
PATIENCE = 10.0
"""Seconds for killing what goes on starting new processes."""
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    limits, command = json.loads(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        # PR_SET_CHILD_SUBREAPER: orphans of the command become children of this process.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    wake, waking = os.pipe()  # pipe2 is not everywhere
    os.set_blocking(wake, False)
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        bound(limits["processes"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
            os._exit(127)
    code, why = watch(child, limits, wake)
    kill_all(child)
    if why:
        os.write(2, f"[stopped: {why}]\n".encode())
    os._exit(code)


def bound(processes: int) -> None:
    """Let the kernel refuse more processes too; it does not for root."""
    own = 0
    for entry in os.scandir("/proc") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                own += len(os.listdir(f"{entry.path}/task"))  # noqa: PTH208
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    wanted = own + processes if most == resource.RLIM_INFINITY else min(own + processes, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (wanted, wanted))
    os.nice(5)  # what watches it goes first


def watch(child: int, limits: dict[str, int], wake: int) -> tuple[int, str]:
    """Until the command ends or has to: its exit code, and why it had to.

    ``wake``: can be read from when a child has ended."""
    looked = 0.0
    while True:
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            if one[0] == child:
                code = os.waitstatus_to_exitcode(one[1])
                return code if code >= 0 else 128 - code, ""
        ready = select.select([0, wake], [], [], TICK)[0]
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready and not os.read(0, 4096):
            return 137, ""
        if time.monotonic() - looked < TICK:
            continue
        looked = time.monotonic()
        found = descendants()
        if len(found) > limits["processes"]:
            return 137, f"more than {limits['processes']} processes"
        if sum(map(resident, found)) > limits["memory"]:
            return 137, f"more than {limits['memory'] >> 20} MiB of memory"


def kill_all(child: int) -> None:
    """Kill what is left, and what that starts meanwhile."""
    deadline = time.monotonic() + PATIENCE
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
    """All processes below this one; those of other users' too, as far as they show."""
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        below = {child for pid in new for child in children(pid)}
        new = below - found
        found |= new
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib costs milliseconds here
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


if __name__ == "__main__":
    main()
