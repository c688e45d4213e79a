"""How a turn ends that does not end by itself, and how a command exits that ran one."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable
from typing import Any, Literal

StopReason = Literal["cancelled", "timeout"]

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_CUT, EXIT_STOPPED = 0, 1, 2, 3, 4, 130
EXIT_UNREAD = 141
"""Whoever read the output is gone: what a shell tells of a program that SIGPIPE has ended."""

RATE_LIMIT = "rate_limit_exceeded"
"""The code of a turn for which the engine had no place."""


def ending_signals() -> list[int]:
    """Those that ask this process to end; a terminal that goes does not, where nohup said so."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def leaving() -> None:
    """The command is over: a signal now ends what is left of it at once, and at last nothing more."""

    def answer(does: Callable[..., Any] | signal.Handlers) -> None:
        for number in ending_signals():
            signal.signal(number, does)

    atexit.register(answer, signal.SIG_IGN)
    answer(lambda *_: os._exit(EXIT_STOPPED))


class Stopped(Exception):
    """The turn was asked to end."""


class Refused(Exception):
    """The turn cannot go on; carries the terminal error and the exit code of a command."""

    def __init__(self, code: str, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.code, self.exit_code = code, exit_code
