"""Runs a program on a pseudo-terminal and reads its output as bytes.

`tests.support.terminal` has a terminal emulator, whose time would be measured here.
"""

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

WAIT_SECONDS = 60.0
"""Seconds after which a program that paints nothing is taken as broken."""
CLOCK = time.monotonic
"""A clock that is the same in all processes, in seconds."""


class PtyProgram:
    """A program on a pseudo-terminal: press keys, read what it paints; times are those of CLOCK."""

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
        """Write keys, as the terminal sends them; returns the time."""
        os.write(self._master, keys.encode())
        return CLOCK()

    def read(self, seconds: float) -> bool:
        """Read what is painted next; False if nothing comes in time, or the program has ended."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        before = len(self.painted)
        with contextlib.suppress(OSError):
            self.painted += os.read(self._master, 65536)
        return len(self.painted) > before

    def wait_for(self, text: str, since: int = 0, seconds: float = WAIT_SECONDS) -> float:
        """Read until the text is painted in one piece; returns the time. Raises TimeoutError.

        ``since``: ignore so many bytes at the beginning of the output.
        """
        expected, began = text.encode(), CLOCK()
        while self.painted.find(expected, since) < 0:
            since = max(since, len(self.painted) - len(expected))
            if not self.read(0.05) and self.process.poll() is not None:
                raise RuntimeError(f"it ended with {self.process.returncode}: {self.painted!r}")
            if CLOCK() - began > seconds:
                raise TimeoutError(f"never painted: {text}")
        return CLOCK()

    def read_for(self, seconds: float) -> None:
        """Read whatever is painted within so many seconds."""
        deadline = CLOCK() + seconds
        while (remaining := deadline - CLOCK()) > 0:
            self.read(remaining)

    def cpu_seconds(self) -> float:
        """CPU seconds that the program has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def quit(self) -> float:
        """Press Ctrl-Q; returns the seconds until the program has ended."""
        pressed = self.press("\x11")
        while self.process.poll() is None:
            assert CLOCK() - pressed < WAIT_SECONDS, "it does not end"
            self.read(0.005)
        return CLOCK() - pressed

    def close(self) -> None:
        """Kill the program, if it runs, and close the terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@contextlib.contextmanager
def start_program(command: Sequence[str], env: dict[str, str], cwd: Path) -> Iterator[PtyProgram]:
    """Run the program for the duration of the block."""
    program = PtyProgram(command, env, cwd)
    try:
        yield program
    finally:
        program.close()
