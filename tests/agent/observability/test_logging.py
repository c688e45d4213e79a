"""The log file."""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config.paths import Paths
from agent.errors import system_refusal
from agent.observability.logging import log_to_file, open_log_file
from tests.support.program import RunAgent


def test_log_file_and_its_backup_are_private(tmp_path: Path, restored_logging: None) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path / "state")
    log_to_file(paths, max_bytes=100)
    assert not paths.state.exists(), "there is nothing to write"
    for _ in range(5):
        logging.getLogger("x").warning("Of a server: %s", "\x1b]0;owned\x07" + "y" * 60)
    files = sorted(paths.state.iterdir())
    assert [file.name for file in files] == ["agent.log", "agent.log.1"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert "Of a server: yyy" in paths.log_file.read_text()


def test_open_log_file_writes_without_free_descriptors(
    tmp_path: Path, restored_logging: None
) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path / "state")
    log_to_file(paths)
    open_log_file()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        logging.getLogger("x").warning("none is left")
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert taken and "none is left" in paths.log_file.read_text()


async def test_accept_without_descriptors_is_one_warning(
    tmp_path: Path, restored_logging: None
) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path / "state")
    log_to_file(paths)
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for _ in range(3):
        try:
            raise error
        except OSError as raised:
            message = "socket.accept() out of system resource"  # asyncio's selector_events.py
            context = {"message": message, "exception": raised}
            asyncio.get_running_loop().call_exception_handler(context)
    logged = paths.log_file.read_text().splitlines()
    assert len(logged) == 1 and " WARNING asyncio: " in logged[0]
    assert logged[0].endswith("Too many open files")


@pytest.mark.parametrize(
    ("limit", "names"), [("-n 8", "raise ulimit -n"), ("-v 390000", "raise ulimit -v")]
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS")
def test_too_narrow_limits_one_sentence(home: Path, limit: str, names: str) -> None:
    line = f"ulimit {limit}; exec {sys.executable} -m agent run hello --tools none"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and names in done.stderr


def test_system_refusal_names_file_and_reason(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))
    assert system_refusal(full) == f"No space left on device: {tmp_path}."
    assert "not enough memory" in (system_refusal(MemoryError()) or "")
    assert system_refusal(ValueError("x")) is None and system_refusal(OSError("x")) is None


def test_commands_write_log_file(agent: RunAgent, home: Path) -> None:
    agent("mcp", "add", "gone", "--", "/bin/there-is-no-such-program")
    done = agent("mcp", "list")
    assert done.code == 1 and done.err == "" and "no such command" in done.out
    assert "no such command" in (home / "state" / "agent.log").read_text()


def test_unexpected_exception_is_logged(home: Path) -> None:
    code = "from agent.cli.process import run_guarded; run_guarded(lambda: 1 / 0)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "AGENT_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    log = home / "state" / "agent.log"
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and str(log) in done.stderr
    assert "ZeroDivisionError" in log.read_text()
