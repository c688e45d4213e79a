"""Exit codes of the commands, and the signals that end one."""

import atexit
import errno
import os
import signal
import sys
import termios
from collections.abc import Callable
from typing import Any

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_INCOMPLETE = 0, 1, 2, 3, 4
EXIT_HANGUP, EXIT_CANCELLED, EXIT_BROKEN_PIPE = 129, 130, 141
"""A shell's exit codes for programs that SIGHUP ended (the terminal is gone), SIGINT (SIGTERM counts as
the same request), or SIGPIPE (the reader of the output has gone)."""


def termination_signals() -> list[int]:
    """The signals that ask this process to end; SIGHUP is not one of them under nohup."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def exit_on_signals() -> None:
    """From now on let a termination signal exit at once; ignore them during interpreter shutdown."""

    def install(handler: Callable[..., Any] | signal.Handlers) -> None:
        for number in termination_signals():
            signal.signal(number, handler)

    atexit.register(install, signal.SIG_IGN)
    install(_exit_at_once)


def exit_at_once_on(*numbers: int) -> None:
    """Let these signals end the process with their exit codes, unless they have handlers already."""
    for number in numbers:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _exit_at_once)


def raise_at_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again after `exit_at_once_on`."""
    if signal.getsignal(signal.SIGINT) is _exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_at_once(number: int, _: object) -> None:
    os._exit(EXIT_HANGUP if number == signal.SIGHUP else EXIT_CANCELLED)


def private_stdout() -> int:
    """A descriptor of stdout for us alone; what else writes there (native code) reaches stderr."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    return private


def is_terminal_gone() -> bool:
    """Whether a standard stream leads to a terminal that is gone: each use of it fails with EIO."""
    for number in range(3):
        try:
            termios.tcgetattr(number)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                return True
    return False
