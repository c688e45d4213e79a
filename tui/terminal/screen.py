"""The terminal kept for the app alone: whatever else writes to fd 1 or 2 lands in the log file.

Native libraries print to fds 1 and 2, and some point them at /dev/null while they load. Textual
paints to ``sys.__stderr__`` and asks ``sys.__stdout__`` for the size; so both get handles of their
own on the terminal, and the fds themselves lead to the log until the app has ended.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tools import private_files

RESET = "".join(
    f"\x1b[{mode}"
    for mode in (
        *(f"?{number}l" for number in (1000, 1002, 1003, 1004, 1006, 1015, 2004, 2026, 2048)),
        *("<u", "0m", "?25h", "?1049l"),
    )
)
"""Ends all that Textual begins: mouse, focus, pasting, the keyboard's protocol, the second screen."""
_WAITS = """exec 3<&1
read -r ended && exit
case $(stty -a <&3) in *-isig*) stty "$1" <&3;; esac  # else a shell has it, and set it
printf %s "$2"
"""


class Screen(io.TextIOWrapper):
    """The terminal. Where it is gone, Textual's writer would end and the app wait for it for ever: so
    nothing fails here, and the process is hung up, as the terminal's own shell would do it."""

    _gone = False

    def write(self, text: str) -> int:
        with self._noticed():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._noticed():
            super().flush()

    @contextlib.contextmanager
    def _noticed(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self._gone:
                self._gone = True
                os.kill(os.getpid(), signal.SIGHUP)


class NoTerminal(Exception):
    """The app cannot be shown here; one sentence."""


@contextlib.contextmanager
def kept(log: Path) -> Iterator[Callable[[], None]]:
    """Own the terminal; fds 1 and 2 are put back on every way out. Raises NoTerminal.

    What is yielded has the terminal given back after a death too; it is called once, from any thread,
    when there is time for that.
    """
    if not sys.stdin.isatty():
        raise NoTerminal("The app needs a terminal to read from; use agent run here.")
    screen = next((fd for fd in (2, 1) if os.isatty(fd)), None)
    if screen is None:
        raise NoTerminal("The app needs a terminal to show itself on; use agent run here.")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    guard = _Guard(screen)
    saved = os.dup(1), os.dup(2)
    handle = Screen(os.fdopen(os.dup(screen), "wb"), encoding="utf-8", errors="replace")
    originals = sys.__stdout__, sys.__stderr__
    _set_originals(handle, handle)
    sink = _sink(log)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield guard.begin
    finally:
        for stream in (sys.stdout, sys.stderr):
            # What Python still buffers belongs to the log, not to the terminal.
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for fd, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, fd)
            os.close(copy)
        _set_originals(*originals)
        with contextlib.suppress(OSError):  # a terminal that is gone cannot be flushed
            handle.close()
        guard.end()


class _Guard:
    """Gives the terminal back where this process cannot: killed, or ended by native code. A small shell
    waits for that."""

    def __init__(self, screen: int) -> None:
        self._screen, self._before = os.dup(screen), termios.tcgetattr(screen)
        self._shell: tuple[subprocess.Popen[bytes], int] | None = None

    def begin(self) -> None:
        try:
            waiting, alive = os.pipe()
            shell = subprocess.Popen(
                ["sh", "-c", _WAITS, "sh", self._spelled(), RESET],
                stdin=waiting, stdout=self._screen, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            return  # without them it is as with any other program
        os.close(waiting)
        self._shell = shell, alive

    def _spelled(self) -> str:
        """The terminal's settings as they were, in stty's spelling: of another one that has them."""
        master, slave = os.openpty()
        try:
            termios.tcsetattr(slave, termios.TCSANOW, self._before)
            told = subprocess.run(["stty", "-g"], stdin=slave, capture_output=True, text=True)
            return told.stdout.strip()
        finally:
            os.close(master)
            os.close(slave)

    def end(self) -> None:
        if self._shell is not None:
            shell, alive = self._shell
            os.write(alive, b".\n")
            os.close(alive)
            shell.wait()
        os.close(self._screen)


def _sink(log: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        private_files.folder(log.parent)
        return os.open(log, flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _set_originals(out: TextIO | None, err: TextIO | None) -> None:
    # Typed as final, and the only place from which the driver takes its file.
    for name, file in (("__stdout__", out), ("__stderr__", err)):
        setattr(sys, name, file)
