"""`agent mcp …`, the person's own servers and a folder's, in the real program."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_run import FINAL, function
from tests.e2e.test_servers import calls
from tests.support.invariants import check
from tests.support.program import ROOT, Agent
from tools.config.project import find

pytestmark = pytest.mark.slow

Script = Callable[..., str]
SERVER = str(ROOT / "tests" / "support" / "mcp_servers" / "plain.py")
PLAIN = [sys.executable, "-I", SERVER]
ENTRY = {"command": PLAIN[0], "args": PLAIN[1:]}


def configured(home: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((home / "config" / "mcp.json").read_text())
    return data["mcpServers"]


def put(path: Path, servers: Any, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers, **more}))


def test_a_server_is_added_listed_inspected_called_and_removed(
    agent: Agent, home: Path, tmp_path: Path
) -> None:
    assert "agent mcp add" in agent("mcp", "list").out
    assert agent("mcp", "add", "plain", "--env", "KEY=${NOT_SET:-x}", "--", *PLAIN).code == 0
    assert configured(home) == {"plain": {**ENTRY, "env": {"KEY": "${NOT_SET:-x}"}}}
    assert (home / "config" / "mcp.json").stat().st_mode & 0o777 == 0o600
    again = agent("mcp", "add", "plain", "--", "x")
    assert again.code == 2 and "--force" in again.err
    listed = agent("mcp", "list")
    assert listed.code == 0 and "ready" in listed.out and SERVER in listed.out
    seen = agent("mcp", "inspect", "plain")
    for line in ("echo (only reads): Say it again.", "prompt greet(name)", "plain is up"):
        assert line in seen.out
    assert "resource note://one" in seen.out
    said = agent("mcp", "call", "plain", "echo", '{"text":"hi"}')
    assert (said.code, said.out) == (0, "hi\n")
    failed = agent("mcp", "call", "plain", "fail")
    assert failed.code == 1 and "the moon is in the way" in failed.err and not failed.out
    for wrong, says in (
        (("call", "plain", "echo", "{"), "not valid JSON"),
        (("call", "plain", "nope"), "has no tool 'nope'"),
        (("inspect", "nobody"), "No server is called 'nobody'; known: plain."),
        (("add", "q", "--", "it's"), "no closing quotation"),
        (("add", "q", ""), "The command is empty"),
        (("login", "plain"), "needs no login"),
        (("add", "web", "https://example.org/mcp", "more"), "takes no arguments"),
        (("remove", "nobody"), "has no server 'nobody'; it has plain"),
    ):
        refused = agent("mcp", *wrong)
        assert refused.code in (1, 2) and says in refused.err
    assert agent("mcp", "remove", "plain").code == 0 and configured(home) == {}
    (there := tmp_path / "a b").touch()
    assert agent("mcp", "add", "q", str(there)).code == 0
    assert configured(home) == {"q": {"command": str(there)}}


def test_a_server_that_does_not_work_says_so(agent: Agent, home: Path) -> None:
    put(
        home / "config" / "mcp.json",
        {"key": {"command": "x", "env": {"K": "${NO_SUCH_KEY}"}}, "gone": {"command": "no-such"}},
    )
    listed = agent("mcp", "list")
    assert listed.code == 1
    assert "the environment variable NO_SUCH_KEY is not set" in listed.out
    assert "no such command: no-such" in listed.out


def test_what_others_have_configured_is_taken_over(
    agent: Agent, home: Path, tmp_path: Path
) -> None:
    person = tmp_path / "person"
    put(person / ".cursor" / "mcp.json", {"one": {"command": "a", "autoApprove": ["all"]}})
    project = {"mcpServers": {"two": {"type": "http", "url": "https://example.org/mcp"}}}
    (person / ".claude.json").write_text(
        json.dumps({"mcpServers": {"one": {"command": "b"}}, "projects": {"/src": project}})
    )
    put(person / ".lmstudio" / "mcp.json", {"odd": {"nothing": 1}})
    (person / ".codex").mkdir()
    (person / ".codex" / "config.toml").write_text(
        'model = "x"\n[mcp_servers.three]\ncommand = "c"\nenv_vars = ["TOKEN"]\n'
        '[mcp_servers.four]\nurl = "https://example.org"\nbearer_token_env_var = "KEY"\n'
        "enabled = false\n"
    )
    env = {"HOME": str(person)}
    asked = agent("mcp", "import", stdin="n\n", env=env)
    assert "Nothing was changed." in asked.out and "three: c  [TOKEN]  (Codex)" in asked.out
    assert not (home / "config" / "mcp.json").exists()
    taken = agent("mcp", "import", "--yes", env=env)
    assert taken.code == 0 and "neither a command nor a url" in taken.err
    assert configured(home) == {
        "one": {"command": "b"},
        "two": {"type": "http", "url": "https://example.org/mcp"},
        "three": {"command": "c", "env": {"TOKEN": "${TOKEN}"}},
        "four": {
            "url": "https://example.org",
            "headers": {"Authorization": "Bearer ${KEY}"},
            "disabled": True,
        },
    }
    assert "Nothing new" in agent("mcp", "import", "--yes", env=env).out


def test_the_persons_servers_take_part_and_ask(agent: Agent, home: Path, script: Script) -> None:
    put(home / "config" / "mcp.json", {"plain": ENTRY})
    engine = script(function("plain.echo", '{"text":"hi"}'), FINAL)
    refused = agent("run", "go", "--json-events", "--engine", engine)
    (call,) = calls(check(refused.events))
    assert "(--approve plain.echo allows it)" in call["error"]["message"]
    missed = agent("run", "go", "--json-events", "--engine", engine, "--tools", "python")
    (call,) = calls(check(missed.events))
    assert "not among those that --tools chooses" in call["error"]["message"]
    asked = next(e for e in refused.events if e["type"] == "agent.approval.requested")
    assert (asked["server"], asked["tool"]) == ("plain", "echo")
    allowed = agent("run", "go", "--json-events", "--engine", engine, "--approve", "plain.echo")
    assert calls(check(allowed.events))[0]["output"] == "hi"
    put(home / "config" / "mcp.json", {"plain": ENTRY}, approve={"plain": "auto"})
    assert calls(check(agent("run", "go", "--json-events", "--engine", engine).events))[0]["output"]
    put(home / "config" / "mcp.json", {"plain": ENTRY}, approve={"plain.echo": "deny"})
    denied = agent("run", "go", "--json-events", "--engine", engine, "--approve", "all")
    assert "the settings deny it" in calls(check(denied.events))[0]["error"]["message"]
    none = agent("run", "go", "--json-events", "--engine", engine, "--tools", "none")
    assert none.events[0]["mcp_servers"] == []
    log = [json.loads(line) for line in (home / "state" / "calls.jsonl").read_text().splitlines()]
    assert [one["decision"] for one in log] == ["refused", "allowed", "allowed", "refused"]
    assert "calls.jsonl" in agent("doctor").out


def test_a_folders_own_servers_start_only_when_someone_agreed(
    agent: Agent, home: Path, script: Script, tmp_path: Path
) -> None:
    put(tmp_path / "work" / ".mcp.json", {"plain": ENTRY, "files": {"command": "evil"}})
    run = ("run", "go", "--json-events", "--engine", script(FINAL))

    def plain(*more: str) -> dict[str, Any]:
        ran = agent(*run, *more)
        assert ran.code == 0
        servers = {one["name"]: one for one in ran.events[0]["mcp_servers"]}
        assert servers["files"]["status"] == "ready", "a hand's name is not for the taking"
        found: dict[str, Any] = servers["plain"]
        return found

    refused = plain()
    assert refused["status"] == "failed" and "--trust-project" in refused["error"]
    assert SERVER in refused["error"], "the exact command is shown"
    assert "nobody has agreed" in agent("mcp", "login", "plain").err
    assert plain("--trust-project")["status"] == "ready"
    assert plain()["status"] == "ready", "as long as it stays the same"
    put(tmp_path / "work" / ".mcp.json", {"plain": {**ENTRY, "env": {"A": "1"}}})
    assert plain()["status"] == "failed"
    (tmp_path / "work" / ".mcp.json").write_text("{")
    broken = agent(*run)
    assert broken.code == 0 and "not valid JSON" in broken.events[0]["mcp_servers"][-1]["error"]


def test_before_the_app_starts_the_person_is_asked(home: Path, tmp_path: Path) -> None:
    env = {"K": "${SECRET}"}
    put(
        tmp_path / "work" / ".mcp.json",
        {"plain": {"command": "rm", "args": ["-rf", "a b\u202e"], "env": env}},
    )
    ours, theirs = pty.openpty()
    code = (
        "from pathlib import Path; from agent.cli.shared import Shared;"
        "from agent.cli.trust import asked;"
        "print(asked(Shared(root=Path('.'))).trust_project)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path / "work",
        env={**os.environ, "AGENT_HOME": str(home), "PYTHONPATH": str(ROOT), "SECRET": "s"},
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
    )
    seen = b""
    while b"[y/N]" not in seen:
        seen += os.read(ours, 4096)
    assert b"plain: rm -rf 'a b'  [K: ${SECRET}]" in seen
    os.write(ours, b"y\n")
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    project = find(tmp_path / "work")
    assert project is not None and out.decode().strip() == project.digest
