"""Another process that exchanges two names of a folder as fast as it can: the swap attack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ATTACK = """
import ctypes, os, sys
exchange, here, flag = ctypes.CDLL(None).renameat2, -100, 2  # AT_FDCWD, RENAME_EXCHANGE
first, second = map(os.fsencode, sys.argv[1:])
print(exchange(here, first, here, second, flag), flush=True)
while True:
    exchange(here, first, here, second, flag)
"""


@contextmanager
def swapping(first: Path, second: Path) -> Iterator[None]:
    """Exchange two paths again and again meanwhile; skips the test where the system cannot."""
    command = [sys.executable, "-c", _ATTACK, str(first), str(second)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None
            if attacker.stdout.readline().strip() != "0":
                pytest.skip("no RENAME_EXCHANGE here")
            yield
            assert attacker.poll() is None
        finally:
            attacker.kill()
