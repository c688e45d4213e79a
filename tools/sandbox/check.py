"""Try to break out; print what worked, as JSON. Run by confine.py to prove an isolation.

Reads from stdin the path of a file outside that must stay unreadable, and the parent's process id.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def main() -> None:
    secret, parent = json.loads(sys.stdin.readline())
    attempts: dict[str, Callable[[], object]] = {
        "read a file outside": lambda: Path(secret).read_text(),
        "write a file outside": lambda: Path(f"{secret}.new").write_text("x"),
        "delete a file outside": lambda: Path(secret).unlink(),
        "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
        "start a process": _fork,
        "signal the parent": lambda: os.kill(parent, 0),
    }
    escaped = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        escaped.append(name)
    Path("own").write_text("x")  # the working folder must work
    print(json.dumps(escaped))


if __name__ == "__main__":
    main()
