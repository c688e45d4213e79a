"""Configured secrets are in no output and no file; files and folders are the owner's alone."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts import server_entry
from tests.support.program import RunAgent
from tests.support.scripts import DONE, call, python

Script = Callable[..., str]


def test_secrets_in_no_output_or_file(
    agent: RunAgent, home: Path, script: Script, tmp_path: Path
) -> None:
    (home / "config").mkdir()
    servers = {
        "plain": server_entry("light", env={"TOKEN": "SESAME-env"}, approve="allow"),
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
    replies = script(call("plain__echo", text="hi"), DONE)
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
    assert [result.code for result in ran[:2]] == [0, 1] and "echo" in ran[0].out
    assert "127.0.0.1:9" in ran[1].err and "far" in ran[2].out
    output = "".join(result.out + result.err for result in ran) + trace.read_text()
    state = [path for path in (home / "state").rglob("*") if path.is_file()]
    stored = b"".join(path.read_bytes() for path in state)
    assert len(stored) > 1000, "there are a store and a detailed log"
    assert "SESAME-" not in output and b"SESAME-" not in stored
    assert not [path for path in state if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


@pytest.mark.long
@pytest.mark.parametrize(
    "command", ["sessions list", "models default tiny", "run go --engine ENGINE"]
)
def test_new_folders_owner_only(tmp_path: Path, script: Script, command: str) -> None:
    engine = script(python("open('file', 'w').write('x')"), DONE)
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "agent", *command.replace("ENGINE", engine).split()],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    assert len(folders) > 1 and {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def test_loose_modes_mended_with_notice(
    agent: RunAgent, home: Path, script: Script, tmp_path: Path
) -> None:
    assert agent("run", "go", "--engine", script(DONE)).code == 0
    state, outside = home / "state", tmp_path / "mine"
    outside.touch()
    outside.chmod(0o644)
    (state / "agent.log").touch()
    (state / "linked").symlink_to(outside)
    (state / "agent.log").chmod(0o644)
    (state / "store.sqlite").chmod(0o666)
    state.chmod(0o755)
    for _ in range(2):
        assert agent("run", "--continue", "go", "--engine", script(DONE)).code == 0
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in (state, *state.iterdir())}
    assert modes.pop("state") == 0o700 and modes.pop("linked") == 0o777
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    (notice,) = (state / "agent.log").read_text().splitlines()
    assert "store.sqlite" in notice and "agent.log" in notice
