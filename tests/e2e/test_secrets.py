"""What was given in confidence stays where it was given to; what is kept is its owner's alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_run import FINAL, function
from tests.e2e.test_servers import SERVERS, Script
from tests.support.program import Agent
from tests.support.scripts import python


def test_secrets_are_in_no_log_event_or_file(
    agent: Agent, home: Path, script: Script, tmp_path: Path
) -> None:
    (home / "config").mkdir()
    servers = {
        "plain": {
            "command": sys.executable,
            "args": ["-I", str(SERVERS / "plain.py")],
            "env": {"TOKEN": "SESAME-env"},
            "approve": "allow",
        },
        "far": {
            "url": "http://me:SESAME-user@127.0.0.1:9/mcp?key=${SESAME_KEY}",
            "headers": {"Authorization": "Bearer SESAME-header", "X-Key": "${SESAME_KEY}"},
        },
    }
    (home / "config" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (home / "config" / "models.toml").write_text(
        '[far]\nengine = "vllm"\nurl = "http://me:SESAME-p@127.0.0.1:9"\nkey_env = "SESAME_KEY"\n'
    )
    env = {"SESAME_KEY": "SESAME-variable", "AGENT_API_KEY": "SESAME-api"}
    trace = tmp_path / "trace.json"
    replies = script(function("functions.plain__echo", '{"text":"hi"}'), FINAL)
    ran = [
        agent(
            "run",
            "go",
            "--json-events",
            "--log-level",
            "debug",
            "--trace",
            str(trace),
            "--engine",
            replies,
            env=env,
        ),
        agent("run", "go", "--model", "far", "--log-level", "debug", env=env),
        agent("mcp", "list", env=env),
        agent("models", "list", "--json", env=env),
        agent("doctor", "--model", "far", env=env),
    ]
    assert [one.code for one in ran[:2]] == [0, 1] and "echo" in ran[0].out
    assert "127.0.0.1:9" in ran[1].err and "far" in ran[2].out
    shown = "".join(one.out + one.err for one in ran) + trace.read_text()
    state = [path for path in (home / "state").rglob("*") if path.is_file()]
    kept = b"".join(path.read_bytes() for path in state)
    assert len(kept) > 1000, "there is a store and a talkative log"
    assert "SESAME-" not in shown and b"SESAME-" not in kept
    assert not [path for path in state if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


@pytest.mark.parametrize(
    "words", ["sessions list", "models default tiny", "run go --engine ENGINE"]
)
def test_whichever_command_makes_them_folders_are_their_owners_alone(
    tmp_path: Path, script: Script, words: str
) -> None:
    engine = script(python("open('kept', 'w').write('x')"), FINAL)
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "agent", *words.replace("ENGINE", engine).split()],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    made = [home, *(path for path in home.rglob("*") if path.is_dir())]
    assert len(made) > 1 and {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
