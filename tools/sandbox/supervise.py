"""Runs a command and leaves no process of it running: ``python -I supervise.py LIMITS COMMAND…``, a
script that imports ``folder_limits``, ``attributes`` and, for a command that reaches hosts, ``proxy``
only. LIMITS is JSON: ``processes``, ``memory``, ``descriptors``, ``sockets``, ``written_bytes`` and
``written_files`` of ``ResourceLimits``, the folders ``root`` and ``home``, ``read_only`` (null, or
paths below them whose modes and times stay), ``long_running``, ``hosts``, and ``control``: 0, or the
descriptor of a socket on which the proxy's reports are sent, a line of JSON each. Ends all with its
stdin, or with that socket: then stdin is the command's. Exits with the command's code, or 128 + its
signal."""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from typing import Any

SPARE_TASKS = 4096
"""Threads that the user's other programs may start while the command runs."""
POLL_SECONDS = 0.05
BUSY_POLL_SECONDS = 0.01
"""The same while many files are open: sockets are filled faster than memory is taken."""
KILL_TIMEOUT_SECONDS, MEASURE_SHARE = 10.0, 0.1
RESERVE_BYTES, RESERVE_SHARE = 512 << 20, 20
"""Free space that a command must leave: min(512 MiB, 5 %)."""
CHANNEL_DESCRIPTOR = 3
"""The descriptor at which ``confine.py`` finds the way here: under Landlock for calls that are answered
here, under bubblewrap for the socket that the command finds its proxy at."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Run the command, watch it, and end everything with it."""
    limits, command = json.loads(sys.argv[1]), sys.argv[2:]
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    disk = DiskWatch(limits)
    if sys.platform == "linux":
        # PR_SET_CHILD_SUBREAPER: orphans of the command become children of this process.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    wake_reader, wake_writer = os.pipe()  # pipe2 is not everywhere
    os.set_blocking(wake_reader, False)
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    attributes = channel = None
    if limits["read_only"] is not None:
        here, channel = _socket.socketpair()
        from tools.sandbox.attributes import AttributeCalls

        attributes = AttributeCalls(here, limits)
    control, links = limits["control"], None
    if limits["hosts"]:
        import socket

        links = socket.socketpair()
    child = os.fork()
    if child == 0:
        os.setsid()  # signals to its group do not reach this process
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        limit_processes(limits["processes"])
        if control:
            os.close(control)
        else:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if links:
            channel = links[1]
        if channel is not None:
            os.dup2(channel.fileno(), CHANNEL_DESCRIPTOR)
            os.set_inheritable(CHANNEL_DESCRIPTOR, True)  # it may have been that one
        try:
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
            os._exit(127)
    threading.Thread(target=disk.measure_home, daemon=True).start()
    if attributes is not None and channel is not None:
        channel.close()
        threading.Thread(target=attributes.answer, daemon=True).start()
    if links:
        links[1].close()
        threading.Thread(target=serve_network, args=(limits, links[0]), daemon=True).start()
    code, why = watch(child, limits, disk, wake_reader)
    kill_all(child)
    if attributes is not None and attributes.ignored:
        calls = ", ".join(sorted(attributes.ignored))
        os.write(2, f"[reported as done, but without effect here: {calls}]\n".encode())
    if why:
        os.write(2, f"[stopped: {why}]\n".encode())
    os._exit(code)


def limit_processes(processes: int) -> None:
    """Let the kernel refuse processes before the machine has none left; for root it does not. It counts
    the user's threads everywhere, so that a limit without room to spare would refuse a command's own
    processes once the user starts another program."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    limit = running_tasks() + processes + SPARE_TASKS
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
    os.nice(5)  # the supervisor goes first


def running_tasks() -> int:
    """Return the number of the user's threads."""
    running = 0
    for entry in os.scandir("/proc") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                running += len(os.listdir(f"{entry.path}/task"))  # noqa: PTH208
    return running


def serve_network(limits: dict[str, Any], link: Any) -> None:
    """Lead the command to its hosts from a socket of its network, which ``confine.py`` sends first."""
    import socket

    from tools.sandbox.proxy import NetworkProxy

    def report(contact: dict[str, object]) -> None:
        os.write(limits["control"], (json.dumps(contact) + "\n").encode())

    with link:
        descriptors = socket.recv_fds(link, 1, 1)[1]
    if descriptors:
        NetworkProxy(limits["hosts"], report).run(socket.socket(fileno=descriptors[0]))


def watch(child: int, limits: dict[str, Any], disk: DiskWatch, wake_reader: int) -> tuple[int, str]:
    """Wait for the command's end or a limit; its exit code, and which. ``wake_reader``: of signals."""
    checked, pause = 0.0, POLL_SECONDS
    while True:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else 128 - code, ""
        control = limits["control"]
        ready = select.select([control, wake_reader], [], [], pause)[0]
        if wake_reader in ready and signal.SIGTERM in os.read(wake_reader, 4096):
            return 143, ""
        if control in ready and not os.read(control, 4096):
            return 137, ""
        if time.monotonic() - checked < pause:
            continue
        checked = time.monotonic()
        pids = descendants()
        if len(pids) > limits["processes"]:
            return 137, f"more than {limits['processes']} processes"
        # Buffers of pipes and sockets do not count as resident memory of a process.
        descriptors = sum(map(descriptor_count, pids))
        pause = BUSY_POLL_SECONDS if descriptors > limits["sockets"] // 2 else POLL_SECONDS
        if descriptors > limits["descriptors"]:
            return 137, f"more than {limits['descriptors']:,} open files"
        if descriptors > limits["sockets"] < socket_count(pids):
            return 137, f"more than {limits['sockets']:,} sockets"
        if sum(map(resident_bytes, pids)) > limits["memory"]:
            return 137, f"more than {limits['memory'] >> 20} MiB of memory"
        if problem := disk.problem():
            return 137, f"{problem}; what it wrote below the working folder is still there"


class DiskWatch:
    """Watches what a command adds to the file systems of its root and its home. Others write and remove
    there, too, so the home is counted by itself as well."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self._bytes, self._files = limits["written_bytes"], limits["written_files"]
        self._home, self._home_problem = limits["home"], ""
        # For one that runs for days, only its home counts, and the space that is left free.
        bounds = (1 << 62, 1 << 62) if limits["long_running"] else (self._bytes, self._files)
        folders = limits["root"], self._home
        self._spaces = {path: FreeSpace(os.statvfs(path), *bounds) for path in folders}

    def problem(self) -> str:
        """Return which limit is exceeded, empty if none is."""
        for folder, space in self._spaces.items():
            with contextlib.suppress(OSError):
                if problem := space.problem(os.statvfs(folder)):
                    return problem
        return self._home_problem

    def measure_home(self) -> None:
        """Count what is in the home until that is too much, in a thread of its own."""
        from agent.util.folder_limits import measure_folder

        while not self._home_problem:
            began = time.monotonic()
            usage = measure_folder(self._home, self._bytes, self._files, 0)
            if usage.entries > self._files:
                self._home_problem = f"more than {self._files:,} files in its home"
            elif usage.bytes > self._bytes:
                self._home_problem = f"more than {self._bytes >> 20:,} MiB in its home"
            time.sleep(max(POLL_SECONDS, (time.monotonic() - began) / MEASURE_SHARE))


class FreeSpace:
    """The free space of a file system, and the part of it that a command may take."""

    def __init__(self, before: os.statvfs_result, max_bytes: int, max_files: int) -> None:
        self._before, self._max_bytes = before, max_bytes
        self._max_files = min(max_files, before.f_favail // 2)
        total, free = before.f_blocks * before.f_frsize, before.f_bavail * before.f_frsize
        self._reserve_bytes = min(RESERVE_BYTES, total // RESERVE_SHARE)
        if free < self._reserve_bytes:  # the command may be there to make room
            self._reserve_bytes = free // 2

    def problem(self, now: os.statvfs_result) -> str:
        """Return which limit is exceeded, empty if none is."""
        before, size = self._before, self._before.f_frsize
        if (before.f_bavail - now.f_bavail) * size > self._max_bytes:
            return f"more than {self._max_bytes >> 20:,} MiB of the disk taken since it began"
        if now.f_bavail < before.f_bavail and now.f_bavail * size < self._reserve_bytes:
            return f"less than {self._reserve_bytes >> 20:,} MiB of the disk left free"
        # Not the difference of what is free: in XFS and ZFS that shrinks with the free bytes too.
        # btrfs counts no files.
        new_files = (now.f_files - now.f_ffree) - (before.f_files - before.f_ffree)
        if new_files > self._max_files:
            return f"more than {self._max_files:,} new files since it began"
        return ""


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
        new = {child for pid in new for child in children(pid)} - pids
        pids |= new
    return pids


def children(pid: int) -> list[int]:
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib costs milliseconds here
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                pids += map(int, file.read().split())
    return pids


def resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * PAGE_BYTES
    return 0


def descriptor_count(pid: int) -> int:
    with contextlib.suppress(OSError):
        folder = f"/proc/{pid}/fd"
        # Its size is their number since Linux 6.2, before it is 0.
        return os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208
    return 0


def socket_count(pids: set[int]) -> int:
    sockets: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115
                    if target.startswith("socket:"):
                        sockets.add(target)
    return len(sockets)


if __name__ == "__main__":
    main()
