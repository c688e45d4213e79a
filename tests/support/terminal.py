"""The real program in a real terminal: a pty, with pyte reading what is painted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
WAIT = 60.0
"""Seconds that anything may take before a test gives up; machines can be busy."""
LAST = b"\0"
"""Terminals ignore it: here it comes behind all that a program has painted."""


class Screen(pyte.Screen):
    """pyte, told of what Textual asks and it does not know."""

    def report_device_status(self, mode: int, **kwargs: object) -> None:
        return  # nobody reads the answer

    def select_graphic_rendition(self, *attrs: int, **kwargs: object) -> None:
        super().select_graphic_rendition(*attrs)


class Terminal:
    """A program on a pty; keys in, a screen out."""

    def __init__(
        self, command: Sequence[str], env: dict[str, str], cwd: Path, columns: int, rows: int
    ) -> None:
        self.screen = Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.painted = b""
        """All bytes that the program sent."""
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self._away = False
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd,
            start_new_session=True,
        )  # fmt: skip
        self.began = time.monotonic()

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self.screen.resize(rows, columns)
        if hasattr(self, "process"):
            os.killpg(self.process.pid, signal.SIGWINCH)

    def press(self, keys: str) -> None:
        left = keys.encode(errors="surrogateescape")
        while left:
            left = left[os.write(self._master, left) :]

    def read(self, seconds: float) -> bool:
        """Take what was painted; false when nothing came within the time."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            data = os.read(self._master, 65536)
            self.painted += data
            self._stream.feed(data)
        return True

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def everything(self) -> str:
        """All that was ever painted, without the sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.painted.decode(errors="replace"))

    def wait_for(self, what: str | Callable[[str], bool], seconds: float = WAIT) -> str:
        """Read until the screen shows it; the screen."""
        seen = (lambda text: what in text) if isinstance(what, str) else what
        until = time.monotonic() + seconds
        while not seen(self.text):
            assert time.monotonic() < until, f"never seen: {what}\n{self.text}"
            ended = self.process.poll() is not None
            assert self.read(0.05) or not ended, f"it ended before: {what}\n{self.text}"
        return self.text

    def take_away(self) -> None:
        """The window is closed: nobody hears or reads the program any more."""
        os.close(self._slave)
        os.close(self._master)
        self._away = True

    def leave(self, seconds: float = WAIT) -> int:
        """Wait for its end, and for all that it painted; the exit code."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it does not end\n{self.text}"
            self.read(0.05)
        while self.read(0.05):  # so that there is room
            pass
        os.write(self._slave, LAST)
        while LAST not in self.painted:
            self.read(0.05)
        self.painted = self.painted.replace(LAST, b"")
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """The line discipline is as before, and every mode that was set was reset."""
        pairs = [(b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h"),
                 (b"\x1b[?1000h", b"\x1b[?1000l"), (b"\x1b[?2004h", b"\x1b[?2004l")]  # fmt: skip
        return termios.tcgetattr(self._slave) == self.before and all(
            self.painted.rfind(off) > self.painted.rfind(on) for on, off in pairs
        )

    def wait_until_restored(self, seconds: float = WAIT) -> None:
        """After a death: who gives it back comes after that."""
        until = time.monotonic() + seconds
        while not self.restored:
            assert time.monotonic() < until, "the terminal is not as before"
            self.read(0.02)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if not self._away:
            os.close(self._master)
            os.close(self._slave)


@contextlib.contextmanager
def program(
    *args: str,
    home: Path,
    cwd: Path,
    columns: int = 100,
    rows: int = 30,
    env: dict[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-I", "-m", "agent"),
) -> Iterator[Terminal]:
    """The program, running; it does not outlive the block."""
    surroundings = {
        **os.environ, "AGENT_HOME": str(home), "TERM": "xterm-256color", **(env or {}),
    }  # fmt: skip
    terminal = Terminal([*command, *args], surroundings, cwd, columns, rows)
    try:
        yield terminal
    finally:
        terminal.close()
