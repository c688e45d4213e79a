"""Tries to break out and prints what worked, as JSON; run by confine.py to prove an isolation. Reads
from stdin the path of a file that must stay unreadable, and the parent's process id."""

import fcntl
import json
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _join_foreign_group() -> None:
    if os.getpgrp() != 0:  # 0: the group's leader is outside of the namespace
        raise PermissionError


def main() -> None:
    """Make all attempts, and check that the working folder can be written and asyncio can run."""
    secret, parent = json.loads(sys.stdin.readline())
    pair = socket.socketpair()  # as asyncio makes one
    attempts: dict[str, Callable[[], object]] = {
        "read a file outside": lambda: Path(secret).read_text(),
        "write a file outside": lambda: Path(f"{secret}.new").write_text("x"),
        "delete a file outside": lambda: Path(secret).unlink(),
        "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
        "start a process": _fork,
        "signal the parent": lambda: os.kill(parent, 0),
    }
    if sys.platform == "linux":
        owner = struct.pack("i", parent)
        owner_by_kind = struct.pack("ii", 1, parent)  # F_OWNER_PID
        attempts |= {
            "send datagrams": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
            "signal the parent by F_SETOWN": lambda: fcntl.fcntl(pair[0], fcntl.F_SETOWN, parent),
            "signal the parent by F_SETOWN_EX": lambda: fcntl.fcntl(pair[0], 15, owner_by_kind),
            "signal the parent by FIOSETOWN": lambda: fcntl.ioctl(pair[0], 0x8901, owner),
            "choose a signal by F_SETSIG": lambda: fcntl.fcntl(pair[0], fcntl.F_SETSIG, 9),
            "stop processes outside with its group": _join_foreign_group,
        }
    escaped = []
    for name, attempt in attempts.items():
        with suppress(OSError):
            attempt()
            escaped.append(name)
    Path("own").write_text("x")  # the working folder must work
    print(json.dumps(escaped))


if __name__ == "__main__":
    main()
