"""Changes modes and times of files for a command under Landlock, which does not look at such changes.
Imports nothing of ours. The filter of ``confine.py`` hands the calls over: each waits until the
supervisor, in a thread here, has made or refused it. The file is opened before it is looked at, so a
link that is put there meanwhile leads nowhere."""

import _socket
import errno
import fcntl
import json
import os
import select
import struct
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

CURRENT_FOLDER, NO_FOLLOW = 0xFFFFFF9C, 0x100
MAX_PATH_BYTES = 4096
TIME_NOW, TIME_OMITTED = (1 << 30) - 1, (1 << 30) - 2
# struct seccomp_notif, struct seccomp_notif_resp, and the requests of ioctl:
# https://docs.kernel.org/userspace-api/seccomp_filter.html
NOTICE, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
RECEIVE_REQUEST, SEND_REQUEST, IS_VALID_REQUEST = 0xC0502100, 0xC0182101, 0x40082102
# Which arguments a call has: folder, path, mode, times, flags (None: has none).
ARGUMENTS: dict[str, tuple[int | None, int | None, int | None, int | None, int | None]] = {
    "chmod": (None, 0, 1, None, None),
    "fchmod": (0, None, 1, None, None),
    "fchmodat": (0, 1, 2, None, None),
    "fchmodat2": (0, 1, 2, None, 3),
    "utimensat": (0, 1, None, 2, 3),
}


class AttributeCalls:
    """The calls of one command; those that are answered "done", but not made, are in ``ignored``."""

    def __init__(self, channel: _socket.socket, limits: dict[str, Any]) -> None:
        """``channel``: where the filter comes from. ``limits``: of the supervisor; files below its
        ``root`` and ``home`` may be changed, but for ``read_only``."""
        self._channel = channel
        self._writable = {os.path.realpath(limits[name]) for name in ("root", "home")}
        self._read_only = set(limits["read_only"])
        self.ignored: set[str] = set()

    def answer(self) -> None:
        """Answer the calls until the command has ended."""
        data, ancillary, *_ = self._channel.recvmsg(4096, _socket.CMSG_SPACE(4))
        if not ancillary:
            return  # the kernel hands none over
        listener, names = int.from_bytes(ancillary[0][2], "little"), json.loads(data)
        ended = select.poll()
        ended.register(listener, 0)  # POLLHUP
        while True:
            try:
                notice = fcntl.ioctl(listener, RECEIVE_REQUEST, bytes(NOTICE.size))
                number, pid, _, call, _, _, *arguments = NOTICE.unpack(notice)

                def check_pid(number: int = number) -> None:
                    # If the process has ended meanwhile, its id may be another one's: OSError.
                    fcntl.ioctl(listener, IS_VALID_REQUEST, struct.pack("=Q", number))

                error = self._make(pid, names.get(str(call), ""), arguments, check_pid)
                fcntl.ioctl(listener, SEND_REQUEST, ANSWER.pack(number, 0, -error, 0))
            except OSError as problem:
                if problem.errno != errno.ENOENT or ended.poll(0):  # else a call was interrupted
                    return

    def _make(self, pid: int, name: str, args: list[int], check_pid: Callable[[], None]) -> int:
        """Make a call; 0, or the number of the error with which it fails. ``check_pid``: raises OSError
        where ``pid`` is no longer the process that made it."""
        if name not in ARGUMENTS:
            owner, group = args[-4:-2] if name == "fchownat" else args[1:3]
            unchanged = 0xFFFFFFFF
            if "chown" not in name or not (
                owner & unchanged in (unchanged, os.geteuid())
                and group & unchanged in (unchanged, os.getegid())
            ):
                self.ignored.add(name)
            return 0
        folder, path, mode, times, flags = (None if i is None else args[i] for i in ARGUMENTS[name])
        try:
            file = self._open(pid, folder, path, flags or 0)
            try:
                self._check(file)
                if mode is not None:
                    if mode & 0o6000:
                        return errno.EPERM
                    check_pid()
                    os.chmod(f"/proc/self/fd/{file}", mode & 0o1777)  # noqa: PTH101
                else:
                    ns = _times(pid, times or 0, file)
                    check_pid()
                    os.utime(f"/proc/self/fd/{file}", ns=ns)
            finally:
                os.close(file)
        except OSError as problem:
            return problem.errno or errno.EPERM
        return 0

    def _open(self, pid: int, folder: int | None, path: int | None, flags: int) -> int:
        """Open what a call names, without access to what is in it."""
        if folder is None or folder & 0xFFFFFFFF == CURRENT_FOLDER:
            start = f"/proc/{pid}/cwd"
        else:
            start = f"/proc/{pid}/fd/{folder & 0x7FFFFFFF}"
        name = _read(pid, path, MAX_PATH_BYTES).partition(b"\0")[0] if path else b""
        if name.startswith(b"/proc/self/"):
            name = b"/proc/%d/" % pid + name.removeprefix(b"/proc/self/")
        if not name and path and not flags & 0x1000:  # AT_EMPTY_PATH
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        mode = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if name and flags & NO_FOLLOW else 0)
        return os.open(os.path.join(start.encode(), name).rstrip(b"/") or b"/", mode)  # noqa: PTH118

    def _check(self, file: int) -> None:
        """Raises PermissionError for a file that the command may not change."""
        steps = list(accumulate(os.readlink(f"/proc/self/fd/{file}").split("/"), "{}/{}".format))  # noqa: PTH115
        own = os.fstat(file).st_uid == os.geteuid()
        if not own or self._writable.isdisjoint(steps) or not self._read_only.isdisjoint(steps):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _read(pid: int, address: int, size: int) -> bytes:
    """Read a process's memory, up to where that ends."""
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:  # noqa: PTH123
        memory.seek(address)
        return memory.read(size)


def _times(pid: int, address: int, file: int) -> tuple[int, int]:
    """Return times of access and change in nanoseconds; the address is of two ``struct timespec``."""
    now, status = time.time_ns(), os.fstat(file)
    if not address:
        return now, now
    values = struct.unpack("=4q", _read(pid, address, 32))
    before = status.st_atime_ns, status.st_mtime_ns
    first, second = (
        now if part == TIME_NOW else old if part == TIME_OMITTED else seconds * 10**9 + part
        for seconds, part, old in zip(values[::2], values[1::2], before, strict=True)
    )
    return first, second
