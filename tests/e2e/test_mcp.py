"""`agent mcp …`; the user's own MCP servers and those of a project's folder in `agent run`."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.hosts import SERVERS_FOLDER, server_command, server_entry
from tests.support.invariants import check, mcp_calls
from tests.support.mcp_registry import serve_registry
from tests.support.program import ROOT, RunAgent
from tests.support.scripts import DONE, reasoned_call
from tests.support.waiting import HANG_SECONDS
from tools.policy.project import find_project

pytestmark = pytest.mark.slow

Script = Callable[..., str]
SERVER = str(SERVERS_FOLDER / "light.py")
PLAIN = server_command("light")
ENTRY = server_entry("light")
RAW_TOOLS = (
    "ping",
    "blocks",
    "million_",
    "long_",
    "endless",
    "deep",
    "ascii_text",
    "stalling",
    "pattern",
    "structured",
    "table",
    "list",
    "many_",
)
ECHO = reasoned_call("plain.echo", '{"text":"hi"}')


def read_servers(home: Path) -> Any:
    """The servers of the user's mcp.json."""
    return json.loads((home / "config" / "mcp.json").read_text())["mcpServers"]


def write_servers(path: Path, servers: Any, **settings: Any) -> None:
    """Write an mcp.json; ``settings``: other keys beside the servers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers, **settings}))


def test_mcp_add_list_inspect_call_remove(agent: RunAgent, home: Path, tmp_path: Path) -> None:
    assert "agent mcp add" in agent("mcp", "list").out
    assert agent("mcp", "add", "plain", "--env", "KEY=${NOT_SET:-x}", "--", *PLAIN).code == 0
    assert read_servers(home) == {"plain": {**ENTRY, "env": {"KEY": "${NOT_SET:-x}"}}}
    assert (home / "config" / "mcp.json").stat().st_mode & 0o777 == 0o600
    duplicate = agent("mcp", "add", "plain", "--", "x")
    assert duplicate.code == 2 and "--force" in duplicate.err
    listed = agent("mcp", "list")
    assert listed.code == 0 and "ready" in listed.out and SERVER in listed.out
    inspected = agent("mcp", "inspect", "plain")
    for line in ("echo (only reads): Say it again.", "prompt greet(name)", "light is up"):
        assert line in inspected.out
    assert "resource note://one" in inspected.out
    called = agent("mcp", "call", "plain", "echo", '{"text":"hi"}')
    assert (called.code, called.out) == (0, "hi\n")
    failed = agent("mcp", "call", "plain", "fail")
    assert failed.code == 1 and "the moon is in the way" in failed.err and not failed.out
    for args, error in (
        (("call", "plain", "echo", "{"), "not valid JSON"),
        (("call", "plain", "nope"), "has no tool 'nope'"),
        (("inspect", "nobody"), "There is no server 'nobody'; known: plain."),
        (("add", "q", "--", "it's"), "no closing quotation"),
        (("add", "q", ""), "The command is empty"),
        (("login", "plain"), "needs no login"),
        (("add", "web", "https://example.org/mcp", "more"), "takes no arguments"),
        (("remove", "nobody"), "has no server 'nobody'; it has plain"),
    ):
        refused = agent("mcp", *args)
        assert refused.code in (1, 2) and error in refused.err
    assert agent("mcp", "remove", "plain").code == 0 and read_servers(home) == {}
    (program := tmp_path / "a b").touch()
    assert agent("mcp", "add", "q", str(program)).code == 0
    assert read_servers(home) == {"q": {"command": str(program)}}


def test_mcp_add_leaves_its_options_to_the_command(agent: RunAgent, home: Path) -> None:
    npx = ["-y", "--env", "A=1", "x", "--force"]
    assert "npx -y --env A=1 x --force" in agent("mcp", "add", "a", "npx", *npx).out
    assert agent("mcp", "add", "-e", "K=V", "-s", "user", "b", "docker", "run", "-i").code == 0
    assert agent("mcp", "add", "--env=K=V", "c", "--", "x", "--", "-y").code == 0
    url = "https://example.org/mcp"
    assert agent("mcp", "add", "-t", "http", "d", url, "-H", "X: y").code == 0
    assert agent("mcp", "add", "e", "--url", url).code == 0
    settings = {"command": ["x", "y"], "disabledTools": ["t"], "colour": 1}
    added = agent("mcp", "add-json", "f", json.dumps(settings))
    assert added.code == 0 and "Not understood in its settings: colour" in added.out
    servers = {
        "a": {"command": "npx", "args": npx},
        "b": {"command": "docker", "args": ["run", "-i"], "env": {"K": "V"}},
        "c": {"command": "x", "args": ["--", "-y"], "env": {"K": "V"}},
        "d": {"type": "http", "url": url, "headers": {"X": "y"}},
        "e": {"url": url},
        "f": settings,
    }
    assert read_servers(home) == servers
    assert agent("mcp", "rm", "a").code == 0 and "a" not in read_servers(home)
    assert "must be user or project" in agent("mcp", "add", "-s", "local", "g", "x").err
    listed = json.loads(agent("mcp", "get", "f", "--json").out)
    assert listed["ignored"] == ["colour"]


def test_mcp_registry_search_and_add(agent: RunAgent, home: Path) -> None:
    package = {
        "registryType": "pypi",
        "identifier": "notes",
        "version": "1.0",
        "transport": {"type": "stdio"},
        "environmentVariables": [{"name": "NOTES_KEY", "isRequired": True, "description": "a key"}],
    }
    notes = {"name": "org.example/notes", "version": "1.0", "description": "Keeps notes."}
    with serve_registry({**notes, "packages": [package]}) as url:
        registry = {"AGENT_MCP_REGISTRY": url}
        found = agent("mcp", "search", "notes", env=registry)
        assert found.code == 0 and "org.example/notes  1.0\n  Keeps notes." in found.out
        (whole,) = json.loads(agent("mcp", "search", "notes", "--json", "--registry", url).out)
        assert whole["packages"] == [package]
        assert agent("mcp", "search", "notes keeps", env=registry).out == found.out
        add = ("mcp", "add", "n", "--from", "org.example/notes")
        declined = agent(*add, stdin="\n", env=registry)
        assert "runs  uvx notes@1.0" in declined.out and "Nothing was changed." in declined.out
        assert "set NOTES_KEY before it starts: a key" in declined.out
        assert not (home / "config" / "mcp.json").exists()
        assert agent(*add, stdin="y\n", env=registry).code == 0
        added = {"command": "uvx", "args": ["notes@1.0"], "env": {"NOTES_KEY": "${NOTES_KEY}"}}
        assert read_servers(home) == {"n": added}
        assert "--force replaces it" in agent(*add, "--yes", env=registry).err
        forced = agent(*add, "--yes", "--force", "--env", "NOTES_KEY=x", env=registry)
        assert forced.code == 0 and read_servers(home)["n"]["env"] == {"NOTES_KEY": "x"}
        unknown = agent("mcp", "add", "m", "--from", "org.example/none", env=registry)
        assert unknown.code == 2 and "the registry has no such server" in unknown.err
    others = [{**notes, "name": f"org.example/notes-{number}"} for number in range(3)]
    with serve_registry(*others, page_size=1) as many:
        some = agent("mcp", "search", "notes", "--limit", "2", "--registry", many)
        assert some.out.count("Keeps notes.") == 2
        more = "There may be more: add a word of the name, or list up to 100 with --limit.\n"
        assert (some.code, some.err) == (0, more)
    gone = agent("mcp", "search", "notes", env=registry)
    assert gone.code == 2 and "cannot be reached" in gone.err


def test_mcp_json_for_programs(agent: RunAgent, home: Path) -> None:
    servers = {"plain": ENTRY, "gone": {"command": "no-such-command"}}
    write_servers(home / "config" / "mcp.json", servers)
    listed = agent("mcp", "list", "--json")
    plain, gone = json.loads(listed.out)
    assert listed.code == 1 and (plain["name"], plain["status"]) == ("plain", "ready")
    assert (plain["transport"], plain["protocol"]) == ("stdio", "2025-11-25")
    assert "echo" in plain["tools"] and SERVER in plain["command"]
    assert gone["status"] == "failed" and "no such command" in gone["error"]
    inspected = json.loads(agent("mcp", "inspect", "plain", "--json").out)
    echo = next(tool for tool in inspected["tools"] if tool["name"] == "echo")
    assert echo["annotations"]["readOnlyHint"] and "text" in echo["inputSchema"]["properties"]
    assert [prompt["name"] for prompt in inspected["prompts"]] == ["greet"]
    assert inspected["resources"][0]["uri"] == "note://one" and inspected["stderr"]
    table = json.loads(agent("mcp", "call", "plain", "table", "--json").out)
    assert not table["isError"] and table["structuredContent"] == {"rows": [1, 2]}
    assert table["content"][0]["type"] == "text"
    failed = agent("mcp", "call", "plain", "fail", "--json")
    assert failed.code == 1 and json.loads(failed.out)["isError"]
    unknown = json.loads(agent("mcp", "call", "plain", "nope", "--json").out)
    assert "has no tool 'nope'" in unknown["error"]["message"]


def test_mcp_inspect_shows_instructions(agent: RunAgent, home: Path) -> None:
    entry = server_entry("many", "1", "Count twice.\nThen add.")
    write_servers(home / "config" / "mcp.json", {"many": entry})
    shown = agent("mcp", "inspect", "many").out
    assert "\nIts instructions, which the model reads:\n  Count twice.\n  Then add.\n" in shown
    inspected = json.loads(agent("mcp", "inspect", "many", "--json").out)
    assert inspected["instructions"] == "Count twice.\nThen add."


def test_mcp_call_json_has_structured_content_as_sent(agent: RunAgent, home: Path) -> None:
    write_servers(home / "config" / "mcp.json", {"raw": server_entry("raw", "stdio", "-")})
    table = json.loads(agent("mcp", "call", "raw", "table", "--json").out)
    assert table["content"] == [{"type": "text", "text": "two rows"}]
    assert table["structuredContent"] == {"rows": ["one", "\ufffd"], "about": {"unit": "m"}}
    listed = json.loads(agent("mcp", "call", "raw", "list", "--json").out)
    assert listed["structuredContent"] == ["one", "two"]


def test_mcp_call_result_into_pipe_is_not_cut(agent: RunAgent, home: Path) -> None:
    write_servers(home / "config" / "mcp.json", {"plain": ENTRY})
    big = agent("mcp", "call", "plain", "big", '{"size": 1000000}')
    assert (big.code, len(big.out), big.out[0], big.out[-2]) == (0, 1_000_001, "a", "z")


def test_mcp_call_answers_forms(agent: RunAgent, home: Path) -> None:
    write_servers(home / "config" / "mcp.json", {"booking": server_entry("booking")})
    call = ("mcp", "call", "booking", "book")
    booked = agent(*call, "--answer", '{"seats": 3, "extras": ["w", "b"]}')
    values = {"mail": None, "seats": 3, "meal": "v", "extras": ["w", "b"], "window": True}
    assert (booked.code, json.loads(booked.out)) == (0, values)
    for answer, problem in (
        ('{"seats": 9}', "--answer: Seats: must be a whole number, 1 to 8."),
        ('{"seats": 1, "seat": 1}', "--answer: seat: is not a field; the form has mail, seats"),
        ("{}", "--answer: Seats: is required."),
    ):
        wrong = agent(*call, "--answer", answer)
        assert wrong.code == 1 and problem in wrong.err
    assert agent(*call, "--answer", "decline").out.startswith("decline\n")
    assert "must be a JSON object, decline or cancel" in agent(*call, "--answer", "x").err
    nobody = agent(*call)
    assert nobody.out.startswith("decline\n") and """--answer '{"seats": "…"}'""" in nobody.err


def test_mcp_call_asks_on_terminal(home: Path) -> None:
    write_servers(home / "config" / "mcp.json", {"booking": server_entry("booking")})
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*forks.relay(), "mcp", "call", "booking", "book"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with os.fdopen(master, "w") as terminal:
        terminal.write("ada\n\n9\n4\n1\n.\n")
        terminal.flush()
        out, _ = process.communicate(timeout=HANG_SECONDS)
    os.close(slave)
    assert "E-mail: must be an e-mail address." in out
    assert "Seats: must be a whole number, 1 to 8." in out
    values = {"mail": None, "seats": 4, "meal": "m", "extras": ["b"], "window": True}
    assert json.loads(out[out.rindex("{") :]) == values


@pytest.mark.long
def test_mcp_call_prints_output_once_on_terminal(home: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "agent", "mcp", "call", "code_interpreter", "python",
         '{"code": "print(56088)"}'],
        env={**os.environ, "AGENT_HOME": str(home)}, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    assert process.wait(timeout=HANG_SECONDS) == 0
    os.close(slave)
    assert os.read(master, 4096).decode().split() == ["56088"]
    os.close(master)


def test_mcp_call_interrupted_at_a_question_ends(home: Path) -> None:
    write_servers(home / "config" / "mcp.json", {"booking": server_entry("booking")})
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*forks.relay(), "mcp", "call", "booking", "book"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    asked = b""
    assert process.stderr is not None
    while b"E-mail" not in asked:
        asked += os.read(process.stderr.fileno(), 4096)
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(timeout=HANG_SECONDS) == 130
    finally:
        process.kill()
        process.communicate()
        os.close(master)
        os.close(slave)


def test_mcp_list_broken_servers_say_why(agent: RunAgent, home: Path) -> None:
    write_servers(
        home / "config" / "mcp.json",
        {"key": {"command": "x", "env": {"K": "${NO_SUCH_KEY}"}}, "gone": {"command": "no-such"}},
    )
    listed = agent("mcp", "list")
    assert listed.code == 1
    assert "the environment variable NO_SUCH_KEY is not set" in listed.out
    assert "no such command: no-such" in listed.out
    called = agent("mcp", "call", "gone", "read")
    assert called.err == "Error: the server gone cannot be started: no such command: no-such\n"
    why = "the environment variable NO_SUCH_KEY is not set"
    login = agent("mcp", "login", "key").err
    path = home / "config" / "mcp.json"
    assert login == f"agent: The server key cannot be used: {path}: {why}.\n"


def test_mcp_list_prints_servers_as_they_settle(home: Path) -> None:
    hung = {"command": "sleep", "args": ["1000"], "startup_timeout_sec": 600}
    write_servers(home / "config" / "mcp.json", {"hung": hung, "plain": ENTRY})
    process = subprocess.Popen(
        [*forks.relay(), "mcp", "list"],
        env={**os.environ, "AGENT_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("plain  ready")
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG_SECONDS)


def test_mcp_import_reads_other_clients(agent: RunAgent, home: Path, tmp_path: Path) -> None:
    person = tmp_path / "person"
    write_servers(
        person / ".cursor" / "mcp.json", {"one": {"command": "a", "autoApprove": ["all"]}}
    )
    project = {"mcpServers": {"two": {"type": "http", "url": "https://example.org/mcp"}}}
    (person / ".claude.json").write_text(
        json.dumps({"mcpServers": {"one": {"command": "b"}}, "projects": {"/src": project}})
    )
    write_servers(person / ".lmstudio" / "mcp.json", {"odd": {"nothing": 1}})
    (person / ".codex").mkdir()
    (person / ".codex" / "config.toml").write_text(
        'model = "x"\n[mcp_servers.three]\ncommand = "c"\nenv_vars = ["TOKEN"]\n'
        '[mcp_servers.four]\nurl = "https://example.org"\nbearer_token_env_var = "KEY"\n'
        "enabled = false\n"
    )
    code = person / ".config" / "Code" / "User" / "mcp.json"
    code.parent.mkdir(parents=True)
    code.write_text(
        '{ // asked for once\n "inputs": [{"id": "api-key", "type": "promptString"}],\n'
        ' "servers": {"five": {"command": "d", "args": ["//x", "${input:api-key}",]}, /* , */ }}'
    )
    write_servers(person / ".gemini" / "settings.json", {"six": {"httpUrl": "http://h/mcp"}})
    env = {"HOME": str(person)}
    declined = agent("mcp", "import", stdin="n\n", env=env)
    assert "Nothing was changed." in declined.out
    assert "three: c  [TOKEN]  (Codex)" in declined.out
    assert not (home / "config" / "mcp.json").exists()
    imported = agent("mcp", "import", "--yes", env=env)
    assert imported.code == 0 and "neither a command nor a url" in imported.err
    assert read_servers(home) == {
        "one": {"command": "b"},
        "two": {"type": "http", "url": "https://example.org/mcp"},
        "three": {"command": "c", "env": {"TOKEN": "${TOKEN}"}},
        "four": {
            "url": "https://example.org",
            "headers": {"Authorization": "Bearer ${KEY}"},
            "disabled": True,
        },
        "five": {"command": "d", "args": ["//x", "${API_KEY}"]},
        "six": {"url": "http://h/mcp"},
    }
    assert "No new servers" in agent("mcp", "import", "--yes", env=env).out


def test_mcp_user_servers_join_runs_with_approval(
    agent: RunAgent, home: Path, script: Script
) -> None:
    write_servers(home / "config" / "mcp.json", {"plain": ENTRY})
    engine = script(ECHO, DONE)
    refused = agent("run", "go", "--json-events", "--engine", engine)
    (call,) = mcp_calls(check(refused.events))
    assert "to allow it: --approve plain.echo" in call["error"]["message"]
    quiet = agent("run", "go", "-q", "--engine", engine)
    assert quiet.err.count("\n") == 1 and "to allow it: --approve plain.echo" in quiet.err
    unselected = agent("run", "go", "--json-events", "--engine", engine, "--tools", "python")
    (call,) = mcp_calls(check(unselected.events))
    assert "not among those that --tools chooses" in call["error"]["message"]
    request = next(e for e in refused.events if e["type"] == "agent.approval.requested")
    assert (request["server"], request["tool"]) == ("plain", "echo")
    allowed = agent("run", "go", "--json-events", "--engine", engine, "--approve", "plain.echo")
    assert mcp_calls(check(allowed.events))[0]["output"] == "hi"
    write_servers(home / "config" / "mcp.json", {"plain": ENTRY}, approve={"plain": "auto"})
    assert mcp_calls(check(agent("run", "go", "--json-events", "--engine", engine).events))[0][
        "output"
    ]
    write_servers(home / "config" / "mcp.json", {"plain": ENTRY}, approve={"plain.echo": "deny"})
    denied = agent("run", "go", "--json-events", "--engine", engine, "--approve", "all")
    assert "the settings deny it" in mcp_calls(check(denied.events))[0]["error"]["message"]
    none = agent("run", "go", "--json-events", "--engine", engine, "--tools", "none")
    assert none.events[0]["mcp_servers"] == []
    log = [json.loads(line) for line in (home / "state" / "calls.jsonl").read_text().splitlines()]
    decisions = [entry["decision"] for entry in log]
    assert decisions == ["refused", "refused", "allowed", "allowed", "refused"]
    assert "calls.jsonl" in agent("doctor").out


def test_mcp_hung_server_not_awaited_unless_named(
    agent: RunAgent, home: Path, script: Script
) -> None:
    hung = {"command": "sleep", "args": ["1000"], "startup_timeout_sec": 1000}
    path = home / "config" / "mcp.json"
    write_servers(path, {"hung": hung, "plain": ENTRY})
    options = ("--engine", script(DONE))
    events = agent("run", "hello", "--json-events", *options).events
    states = {server["name"]: server["status"] for server in events[0]["mcp_servers"]}
    assert (states["hung"], states["plain"]) == ("starting", "ready")
    hello = agent("run", "hello", *options)
    assert hello.code == 0 and "the server hung has not started yet" in hello.err
    write_servers(path, {"hung": {**hung, "startup_timeout_sec": 5}, "plain": ENTRY})
    named = agent("run", "Ask Hung!", *options)
    assert "the server hung did not answer within 5 s of its start" in named.err


def test_mcp_project_servers_need_trust(
    agent: RunAgent, home: Path, script: Script, tmp_path: Path
) -> None:
    plain = {**ENTRY, "sandbox": False}
    write_servers(tmp_path / "work" / ".mcp.json", {"plain": plain, "files": {"command": "evil"}})
    run = ("run", "go", "--json-events", "--engine", script(DONE))

    def plain_status(*options: str) -> dict[str, Any]:
        ran = agent(*run, *options)
        assert ran.code == 0
        servers = {server["name"]: server for server in ran.events[0]["mcp_servers"]}
        assert servers["files"]["status"] == "ready", "a builtin server's name is reserved"
        status: dict[str, Any] = servers["plain"]
        return status

    refused = plain_status()
    assert refused["status"] == "failed" and "--trust-project" in refused["error"]
    assert SERVER in refused["error"], "the exact command is shown"
    assert "not trusted yet" in agent("mcp", "login", "plain").err
    assert plain_status("--trust-project")["status"] == "ready"
    assert plain_status()["status"] == "ready", "as long as it stays the same"
    write_servers(tmp_path / "work" / ".mcp.json", {"plain": {**ENTRY, "env": {"A": "1"}}})
    assert plain_status()["status"] == "failed"
    (tmp_path / "work" / ".mcp.json").write_text("{")
    broken = agent(*run)
    assert broken.code == 0 and "not valid JSON" in broken.events[0]["mcp_servers"][-1]["error"]


def test_mcp_list_and_inspect_no_line_is_forged(agent: RunAgent, home: Path) -> None:
    forged = "import sys; sys.exit('no\\nplain  ready  9 tools')"
    write_servers(
        home / "config" / "mcp.json",
        {
            "raw": server_entry("raw", "stdio", "names"),
            "liar": {"command": sys.executable, "args": ["-c", forged]},
        },
    )
    for command in (("list",), ("inspect", "raw"), ("inspect", "liar")):
        for line in filter(str.strip, agent("mcp", *command).out.splitlines()):
            assert line.startswith((" ", "raw", "liar", "MCP 2025", "Last on", *RAW_TOOLS)), line


def test_mcp_project_servers_confirmed_on_terminal(home: Path, tmp_path: Path) -> None:
    env = {"K": "${SECRET}"}
    write_servers(
        tmp_path / "work" / ".mcp.json",
        {"plain": {"command": "rm", "args": ["-rf", "a b\u202e"], "env": env}},
    )
    terminal, tty = pty.openpty()
    code = (
        "from pathlib import Path; from agent.config.launch import LaunchOptions;"
        "from agent.cli.trust import confirm_project_servers;"
        "print(confirm_project_servers(LaunchOptions(root=Path('.'))).trust_project)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path / "work",
        env={**os.environ, "AGENT_HOME": str(home), "PYTHONPATH": str(ROOT), "SECRET": "s"},
        stdin=tty,
        stderr=tty,
        stdout=subprocess.PIPE,
    )
    question = b""
    while b"[y/N]" not in question:
        question += os.read(terminal, 4096)
    assert b"plain: rm -rf 'a b'  [K: ${SECRET}]" in question
    os.write(terminal, b"y\n")
    out, _ = process.communicate(timeout=HANG_SECONDS)
    os.close(terminal)
    os.close(tty)
    project = find_project(tmp_path / "work")
    assert project is not None and out.decode().strip() == project.digest
