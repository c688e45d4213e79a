"""Runs the program on a pseudo-terminal, whose output pyte renders to a screen."""

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

from tests.support.forks import TerminalFork, is_read_at_start
from tests.support.waiting import HANG_SECONDS, describe

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-I", "-m", "agent")
END_MARK = b"\0"
"""A byte that terminals ignore; written after the program's end, it marks the end of its output."""


class Screen(pyte.Screen):
    """A pyte screen that accepts two sequences of Textual that pyte does not know."""

    def report_device_status(self, mode: int, **kwargs: object) -> None:
        return  # the answer is not needed

    def select_graphic_rendition(self, *attrs: int, **kwargs: object) -> None:
        super().select_graphic_rendition(*attrs)


class Terminal:
    """A program on a pseudo-terminal: press keys, read the screen."""

    def __init__(
        self,
        args: Sequence[str],
        command: Sequence[str] | None,
        env: dict[str, str],
        cwd: Path,
        columns: int,
        rows: int,
    ) -> None:
        self.screen = Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.painted = b""
        """All bytes that the program has written."""
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self._window_closed = False
        self.process: subprocess.Popen[bytes] | TerminalFork
        if command is None:
            self.process = TerminalFork(args, slave, env, cwd)
        else:
            self.process = subprocess.Popen(
                [*command, *args], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd,
                start_new_session=True, preexec_fn=_take_terminal,
            )  # fmt: skip
        self.began = time.monotonic()

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal and signal it to the program."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
        self.screen.resize(rows, columns)
        if hasattr(self, "process"):
            os.killpg(self.process.pid, signal.SIGWINCH)

    def press(self, keys: str) -> None:
        """Write keys, as the terminal sends them, to the program."""
        data = keys.encode(errors="surrogateescape")
        while data:
            data = data[os.write(self._master, data) :]

    def read(self, seconds: float) -> bool:
        """Read what the program has written; False if nothing came within so many seconds."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            data = os.read(self._master, 65536)
            self.painted += data
            self._stream.feed(data)
        return True

    @property
    def text(self) -> str:
        """The text of the screen, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def painted_text(self) -> str:
        """Everything that was ever written, without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.painted.decode(errors="replace"))

    def wait_for(self, expected: str | Callable[[str], bool], seconds: float = HANG_SECONDS) -> str:
        """Read until the screen contains the text, or the predicate holds; returns the screen."""
        matches = (lambda text: expected in text) if isinstance(expected, str) else expected
        deadline = time.monotonic() + seconds
        while not matches(self.text):
            assert time.monotonic() < deadline, f"never seen: {describe(matches)}\n{self.text}"
            ended = self.process.poll() is not None
            assert self.read(0.05) or not ended, (
                f"it ended before: {describe(matches)}\n{self.text}"
            )
        return self.text

    def close_window(self) -> None:
        """Close the terminal, as when its window is closed."""
        os.close(self._slave)
        os.close(self._master)
        self._window_closed = True

    def wait_exit(self, seconds: float = HANG_SECONDS) -> int:
        """Wait until the program has ended, read all of its output, and return the exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running\n{self.text}"
            self.read(0.05)
        while self.read(0.05):  # makes room for the mark
            pass
        os.write(self._slave, END_MARK)
        while END_MARK not in self.painted:
            self.read(0.05)
        self.painted = self.painted.replace(END_MARK, b"")
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Whether the line discipline is as before, and every terminal mode that was set was reset."""
        pairs = [(b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h"),
                 (b"\x1b[?1000h", b"\x1b[?1000l"), (b"\x1b[?2004h", b"\x1b[?2004l")]  # fmt: skip
        return termios.tcgetattr(self._slave) == self.before and all(
            self.painted.rfind(off) > self.painted.rfind(on) for on, off in pairs
        )

    def wait_until_restored(self, seconds: float = HANG_SECONDS) -> None:
        """Wait until the terminal is restored, which after a kill another process does."""
        deadline = time.monotonic() + seconds
        while not self.is_restored:
            assert time.monotonic() < deadline, "the terminal is not as before"
            self.read(0.02)

    def close(self) -> None:
        """Kill the program, if it runs, and close the terminal."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if not self._window_closed:
            os.close(self._master)
            os.close(self._slave)


def _take_terminal() -> None:
    """Make stdin the controlling terminal, which signals its processes when it goes."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def start_program(
    *args: str,
    home: Path,
    cwd: Path,
    columns: int = 100,
    rows: int = 30,
    env: dict[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> Iterator[Terminal]:
    """Run the program for the duration of the block, by default as a fork of one that has begun."""
    if command is None and is_read_at_start(env or {}):
        command = COMMAND
    environment = {
        **os.environ, "AGENT_HOME": str(home), "TERM": "xterm-256color", **(env or {}),
    }  # fmt: skip
    terminal = Terminal(args, command, environment, cwd, columns, rows)
    try:
        yield terminal
    finally:
        terminal.close()
