"""A program on a real pty, read as bytes: no emulator takes time that is being measured."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PATIENCE = 60.0
"""Seconds; a program that shows nothing for so long is broken."""
CLOCK = time.monotonic
"""The same in all processes."""


class Screen:
    """Keys in, bytes out; times are seconds of CLOCK."""

    def __init__(self, command: Sequence[str], env: dict[str, str], cwd: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.began = CLOCK()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd
        )
        os.close(slave)
        self.painted = bytearray()

    def press(self, keys: str) -> float:
        """When they were pressed."""
        os.write(self._master, keys.encode())
        return CLOCK()

    def read(self, seconds: float) -> bool:
        """Take what is painted next; false: nothing was for so long, or the program has ended."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        before = len(self.painted)
        with contextlib.suppress(OSError):
            self.painted += os.read(self._master, 65536)
        return len(self.painted) > before

    def see(self, text: str, since: int = 0, patience: float = PATIENCE) -> float:
        """Read until it was painted in one piece after so many bytes; when that was seen."""
        wanted, began = text.encode(), CLOCK()
        while self.painted.find(wanted, since) < 0:
            since = max(since, len(self.painted) - len(wanted))
            if not self.read(0.05) and self.process.poll() is not None:
                raise RuntimeError(f"it ended with {self.process.returncode}: {self.painted!r}")
            if CLOCK() - began > patience:
                raise TimeoutError(f"never painted: {text}")
        return CLOCK()

    def rest(self, seconds: float) -> None:
        """Read whatever comes for so long."""
        until = CLOCK() + seconds
        while (left := until - CLOCK()) > 0:
            self.read(left)

    def cpu(self) -> float:
        """Seconds of CPU that the program has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def leave(self) -> float:
        """Press Ctrl-Q; seconds until the program has ended."""
        pressed = self.press("\x11")
        while self.process.poll() is None:
            assert CLOCK() - pressed < PATIENCE, "it does not end"
            self.read(0.005)
        return CLOCK() - pressed

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def screen(command: Sequence[str], env: dict[str, str], cwd: Path) -> Iterator[Screen]:
    """The program, as long as the block runs."""
    shown = Screen(command, env, cwd)
    try:
        yield shown
    finally:
        shown.close()
