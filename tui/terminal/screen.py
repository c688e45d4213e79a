"""Reserves the terminal for the app: Textual gets handles of its own (``sys.__stderr__`` to paint,
``sys.__stdout__`` for the size), and fds 1 and 2, which native libraries print to, lead to the log."""

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

from agent.errors import AgentError
from agent.util import private_files
from agent.util.programs import require_program, search_path

RESET_SEQUENCES = "".join(
    f"\x1b[{mode}"
    for mode in (
        *(f"?{number}l" for number in (1000, 1002, 1003, 1004, 1006, 1015, 2004, 2026, 2048)),
        *("<u", "0m", "?25h", "?1049l"),
    )
)
"""Escape sequences that end the modes which Textual sets: mouse, focus reports, bracketed paste,
synchronised output, in-band resize, the Kitty keyboard protocol, styles, the alternate screen."""
_RESTORE_SCRIPT = """exec 3<&1
read -r ended && exit
case $(stty -a <&3) in *-isig*) stty "$1" <&3;; esac  # else a shell has it, and set it
printf %s "$2"
"""
"""Restores the terminal if stdin ends without a line. ``$1``: ``stty -g``'s. ``$2``: the sequences."""


class TerminalWriter(io.TextIOWrapper):
    """Text stream on the terminal that never fails to write: where that is gone, an OSError would end
    Textual's writer thread, and the app would wait for ever. Instead the process gets SIGHUP."""

    _is_gone = False

    def write(self, text: str) -> int:
        with self._hanging_up():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._hanging_up():
            super().flush()

    @contextlib.contextmanager
    def _hanging_up(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self._is_gone:
                self._is_gone = True
                os.kill(os.getpid(), signal.SIGHUP)


class NoTerminalError(AgentError):
    """The app cannot be shown here; the message is one sentence."""


@contextlib.contextmanager
def own_terminal(log: Path) -> Iterator[Callable[[], None]]:
    """Reserve the terminal; fds 1 and 2 are restored on exit. Yields a function that starts the
    restorer for crashes: call it at most once, after the first paint. Raises NoTerminalError."""
    if not sys.stdin.isatty():
        raise NoTerminalError("The app needs a terminal to read from; use agent run here.")
    terminal = next((fd for fd in (2, 1) if os.isatty(fd)), None)
    if terminal is None:
        raise NoTerminalError("The app needs a terminal to show itself on; use agent run here.")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    restorer = _TerminalRestorer(terminal)
    saved = os.dup(1), os.dup(2)
    writer = TerminalWriter(os.fdopen(os.dup(terminal), "wb"), encoding="utf-8", errors="replace")
    originals = sys.__stdout__, sys.__stderr__
    _set_original_streams(writer, writer)
    log_fd = _open_log(log)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    try:
        yield restorer.start
    finally:
        for stream in (sys.stdout, sys.stderr):
            # Text in Python's buffers belongs to the log, not to the terminal.
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        for fd, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, fd)
            os.close(copy)
        _set_original_streams(*originals)
        with contextlib.suppress(OSError):  # a terminal that is gone cannot be flushed
            writer.close()
        restorer.stop()


class _TerminalRestorer:
    """Gives the terminal back where this process cannot: killed, or ended by native code. A small shell
    restores settings and modes if the pipe from this process ends without a line."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._settings = os.dup(terminal), termios.tcgetattr(terminal)
        self._shell: tuple[subprocess.Popen[bytes], int] | None = None

    def start(self) -> None:
        """Start the shell; without one, a crash leaves the terminal as any other program would."""
        try:
            waiting, alive = os.pipe()
            words = ["-c", _RESTORE_SCRIPT, "sh", self._stty_settings(), RESET_SEQUENCES]
            shell = subprocess.Popen(
                [require_program("sh"), *words], env={**os.environ, "PATH": search_path()},
                stdin=waiting, stdout=self._terminal, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            return
        os.close(waiting)
        self._shell = shell, alive

    def _stty_settings(self) -> str:
        """Spell the saved settings as ``stty -g`` does: it is run on another terminal that has them."""
        master, slave = os.openpty()
        try:
            termios.tcsetattr(slave, termios.TCSANOW, self._settings)
            command = [require_program("stty"), "-g"]
            result = subprocess.run(command, stdin=slave, capture_output=True, text=True)
            return result.stdout.strip()
        finally:
            os.close(master)
            os.close(slave)

    def stop(self) -> None:
        """End the shell: this process gives the terminal back itself."""
        if self._shell is not None:
            shell, alive = self._shell
            os.write(alive, b".\n")
            os.close(alive)
            shell.wait()
        os.close(self._terminal)


def _open_log(log: Path) -> int:
    try:
        private_files.make_folder(log.parent)
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _set_original_streams(out: TextIO | None, err: TextIO | None) -> None:
    # Typed as final; the driver takes its file from nowhere else.
    for name, file in (("__stdout__", out), ("__stderr__", err)):
        setattr(sys, name, file)
