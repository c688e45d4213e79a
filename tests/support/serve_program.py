"""``agent serve`` as a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import forks
from tests.support.waiting import HANG_SECONDS


@contextmanager
def serve_program(
    home: Path, *options: str, is_fork: bool = True
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the program; its base URL and process, once it is ready. That of a fork stands for it."""
    command = forks.relay() if is_fork else [sys.executable, "-I", "-m", "agent"]
    process = subprocess.Popen(
        [*command, "serve", "--port", "0", *options],
        cwd=home,
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout and process.stderr
        line = process.stdout.readline()
        url = re.search(r"http://\S+/v1", line)
        assert url, line + process.stderr.read()
        yield url[0], process
    finally:
        process.kill()
        process.communicate()


def terminate(process: subprocess.Popen[str]) -> int:
    """Send SIGTERM and return the exit code; the program prints nothing more."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (out, err) == ("", "")
    return process.returncode
