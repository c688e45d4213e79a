"""Processes that are forked from one that has imported `agent`, see `program_forks.py`."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.waiting import HANG_SECONDS

SUPPORT = Path(__file__).parent
ORIGINS = {
    "commands": ["agent.acp.serve", "agent.server.serve", "agent.server.app"],
    "app": [
        "tui.main", "tui.app", "tui.terminal.screen", "tui.terminal.bracketed_paste",
        "tui.commands.view", "tui.controllers.prompt_commands",
        "tui.markdown.streaming", "tui.widgets.exchange", "tui.state.completion",
    ],
}  # fmt: skip
"""What the processes that are forked import beside the modules of `program_forks.py`."""
SHARED_FOLDER = "AGENT_TEST_FORKS"
"""The variable with the folder of the addresses that the processes of a test run share."""
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "OMP_", "GGML_", "LLAMA_", "TEXTUAL_")
"""Beginnings of variables that a process, or a library, reads once: forks are too late for them."""


def origin(name: str) -> str:
    """Return the address of the process that is forked; ``name`` is one of ``ORIGINS``.

    It is the one of all processes of the test run where there is one, or else ends with this one.
    Within a test it has imported all: what is started there may have a time limit.
    """
    address = _address(name)
    if "PYTEST_CURRENT_TEST" in os.environ:
        _wait_imported(address)
    return address


@cache
def _address(name: str) -> str:
    shared = os.environ.get(SHARED_FOLDER)
    return f"{shared}/{name}" if shared else _start(name, _new_folder())


@cache
def _wait_imported(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        link.shutdown(socket.SHUT_WR)
        link.recv(1)  # it closes the connection, on which nothing was wanted


def share_origins() -> None:
    """Let the processes that this one starts share the processes that are forked.

    They import nothing before the first fork, and end with this process.
    """
    folder = _new_folder()
    for name in ORIGINS:
        _start(name, folder)
    os.environ[SHARED_FOLDER] = folder


def _new_folder() -> str:
    folder = tempfile.mkdtemp(prefix="forks-", dir="/tmp")
    atexit.register(shutil.rmtree, folder)
    return folder


def _start(name: str, folder: str) -> str:
    address = f"{folder}/{name}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", SUPPORT / "program_forks.py", str(listener.fileno())]
            + ORIGINS[name],
            pass_fds=(listener.fileno(),),
            # Pipes, as the forks' streams will be; the end of stdin ends it.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    atexit.register(process.communicate, timeout=HANG_SECONDS)
    return address


def relay() -> list[str]:
    """Return the command that runs `agent` as a fork: its arguments follow."""
    return [sys.executable, "-I", "-S", str(SUPPORT / "fork_relay.py"), origin("commands")]


def is_read_at_start(environment: Mapping[str, str]) -> bool:
    """Return whether a fork would be too late for one of these variables."""
    return any(name.startswith(READ_AT_START) for name in environment)


class TerminalFork:
    """`agent` as a fork whose terminal this process has opened; used like a `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], terminal: int, env: dict[str, str], cwd: Path) -> None:
        self.returncode: int | None = None
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(origin("app"))
        socket.send_fds(self._link, [b"t"], [terminal] * 3)
        self._link.sendall(ascii((list(args), str(cwd), env)).encode() + b"\n")
        self.pid = int(self._link.recv(16, socket.MSG_WAITALL))

    def poll(self) -> int | None:
        """Return the exit code, as a `subprocess.Popen` does; None while it runs."""
        return self._receive(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutError."""
        code = self._receive(timeout)
        if code is None:
            raise TimeoutError(f"{self.pid} still runs")
        return code

    def _receive(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._link.settimeout(seconds)
            try:
                self.returncode = int(self._link.recv(16))
            except (BlockingIOError, TimeoutError):
                return None
            self._link.close()
        return self.returncode

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
