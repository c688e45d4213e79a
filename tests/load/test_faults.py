"""What breaks around the program ends in one sentence, and nothing that was finished is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_kill_9_at_any_moment() -> None:
    """`make faults` has 500 of them."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.load.kills", "--count", "20"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    told = {
        what: number for number, what in (line.split(None, 1) for line in ran.stdout.splitlines())
    }
    assert int(told["kills"]) + int(told["kills over HTTP"]) == 20
    assert int(told["finished items, all kept"]) > 20
