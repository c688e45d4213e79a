"""The log file."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.config.settings import Places
from agent.observability import logging as logs
from tests.support.program import Agent


def test_it_is_its_owners_alone_however_often_it_is_begun_anew(
    tmp_path: Path, own_logging: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_BYTES", 100)
    where = Places(tmp_path, tmp_path, tmp_path / "state")
    logs.to_file(where)
    assert not where.state.exists(), "there is nothing to write"
    for _ in range(5):
        logging.getLogger("x").warning("Of a server: %s", "\x1b]0;owned\x07" + "y" * 60)
    found = sorted(where.state.iterdir())
    assert [one.name for one in found] == ["agent.log", "agent.log.1"]
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in found)
    assert "Of a server: yyy" in where.log.read_text()


def test_every_command_has_it(agent: Agent, home: Path) -> None:
    agent("mcp", "add", "gone", "--", "/bin/there-is-no-such-program")
    done = agent("mcp", "list")
    assert done.code == 1 and done.err == "" and "no such command" in done.out
    assert "no such command" in (home / "state" / "agent.log").read_text()


def test_what_broke_is_in_it(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from agent import __main__; __main__.told(lambda: 1 / 0)"],
        env={**os.environ, "AGENT_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    log = home / "state" / "agent.log"
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and str(log) in done.stderr
    assert "ZeroDivisionError" in log.read_text()
