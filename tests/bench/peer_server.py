"""A peer that is a server of its own, on a free port: ``with PeerServer(…) as server``."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from tests.bench import CACHE, BenchmarkSkippedError

IDLE_SECONDS = 120.0
"""Time that a server which is starting may spend without using the processor."""
STOP_SECONDS = 10.0
"""Seconds that a server has to end."""


class PeerServer:
    """A process that answers at /health when it is ready."""

    name: str
    """What errors and its log file call it."""
    start_seconds: float = 120.0
    """Seconds of the processor that it may take to start."""

    def __init__(self, port: int | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = port or free.getsockname()[1]
        self._log = CACHE / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        """Its command line."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """What it has in its environment beside ours."""
        return {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, also again after its end, and wait until it is ready."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment()},
                start_new_session=True,  # so that it can be killed with processes of its own
            )
        worked, worked_at = 0.0, time.monotonic()
        while not self._is_healthy():
            if (used := self._cpu_seconds()) > worked:
                worked, worked_at = used, time.monotonic()
            hangs = used > self.start_seconds or time.monotonic() > worked_at + IDLE_SECONDS
            if not self.is_running or hangs:
                self.kill()
                last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
                raise BenchmarkSkippedError(
                    f"{self.name} does not start; {self._log} ends with: {last}"
                )
            time.sleep(0.1)

    def _cpu_seconds(self) -> float:
        """What its processes have used since it started."""
        with suppress(psutil.Error):
            parent = psutil.Process(self._process.pid) if self._process else psutil.Process()
            times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
            return sum(used.user + used.system for used in times)
        return 0.0

    def stop(self) -> None:
        """Ask it to end, and wait for that; what is left of its own processes is killed."""
        self.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_running and time.monotonic() < deadline:
            time.sleep(0.05)
        self.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process and self.is_running:
            os.kill(self._process.pid, signal.SIGTERM)

    def pause(self) -> None:
        """Let its processes hang."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it and its processes, and wait for its end; harmless when it was never started."""
        if self._process is None or self._process.returncode is not None:
            return  # its number may be another's by now
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended; `kill` alone gives the number of an ended one free."""
        if self._process is None or self._process.returncode is not None:
            return False
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, look) is None

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                return True
        except OSError:
            return False
