"""Real MCP servers in a real run, the ones that misbehave included."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.test_run import FINAL, function
from tests.support.hosts import alive
from tests.support.invariants import check
from tests.support.program import ROOT, Agent

Script = Callable[..., str]
SERVERS = ROOT / "tests" / "support" / "mcp_servers"
PLAIN = f"plain={sys.executable} -I {SERVERS / 'plain.py'}"


def hostile(how: str) -> str:
    return f"hostile={sys.executable} -I {SERVERS / 'hostile.py'} {how}"


def gone(pid: int) -> None:
    """Killed it was; that it is dead comes a moment later."""
    until = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < until, f"{pid} is left"
        time.sleep(0.01)


def calls(final: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in final["output"] if item["type"] == "mcp_call"]


def test_a_servers_tool_is_listed_called_and_told(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", PLAIN,
        "--engine", script(function("functions.plain__echo", '{"text":"hi"}'), FINAL),
    )  # fmt: skip
    (call,) = calls(check(ran.events))
    assert ran.code == 0
    assert (call["server_label"], call["name"], call["output"]) == ("plain", "echo", "hi")
    assert "plain.echo" in ran.events[0]["tools"]
    assert ran.events[0]["mcp_servers"][-1]["status"] == "ready"


def test_progress_is_told_while_the_tool_runs(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", PLAIN,
        "--engine", script(function("plain.count", '{"to":3}'), FINAL),
    )  # fmt: skip
    check(ran.events)
    types = [event["type"] for event in ran.events]
    told = [at for at, kind in enumerate(types) if kind == "agent.tool_progress"]
    assert [ran.events[at]["message"] for at in told] == ["step 1", "step 2", "step 3"]
    done = types.index("response.mcp_call_arguments.done")
    assert done < told[0] and told[-1] < types.index("response.mcp_call.completed")


@pytest.mark.parametrize(
    ("arguments", "tool", "kind", "said"),
    [
        ("{}", "plain.fail", "mcp_tool_execution_error", "the moon is in the way"),
        ('{"size":"many"}', "plain.big", "mcp_protocol_error", "size"),
        ("{}", "plain.nothing", "mcp_protocol_error", "no tool named plain.nothing"),
    ],
)
def test_a_failure_is_an_item_and_the_answer_still_comes(
    agent: Agent, script: Script, arguments: str, tool: str, kind: str, said: str
) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", PLAIN,
        "--engine", script(function(tool, arguments), FINAL),
    )  # fmt: skip
    (call,) = calls(check(ran.events))
    assert ran.code == 0 and call["status"] == "failed"
    assert call["error"]["type"] == kind and said in json.dumps(call["error"])


def test_a_result_of_5_mb_is_cut_for_the_model_and_kept(
    agent: Agent, script: Script, home: Path
) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", PLAIN,
        "--engine", script(function("plain.big", '{"size":5000000}'), FINAL),
    )  # fmt: skip
    (call,) = calls(check(ran.events))
    assert call["status"] == "completed" and len(call["output"]) < 40_000
    assert call["output"].startswith("ax") and call["output"].rstrip().endswith("z")
    assert any(file.stat().st_size == 5_000_000 for file in home.glob("cache/results/*"))


def test_a_server_that_dies_in_the_call_is_there_for_the_next(agent: Agent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", hostile("well"),
        "--engine", script(function("hostile.die", "{}"), function("hostile.ping", "{}"), FINAL),
    )  # fmt: skip
    died, pinged = calls(check(ran.events))
    assert died["error"]["type"] == "mcp_protocol_error"
    assert "out of cheese" in died["error"]["message"]
    assert pinged["output"] == "pong"


def test_a_tool_that_hangs_is_timed_out(agent: Agent, script: Script, tmp_path: Path) -> None:
    entry = {
        "command": sys.executable,
        "args": ["-I", str(SERVERS / "hostile.py"), "well"],
        "tool_timeout_sec": 0.5,
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"hostile": entry}}))
    ran = agent(
        "run", "go", "--json-events", "--mcp-config", str(config),
        "--engine", script(function("hostile.hang", "{}"), FINAL),
    )  # fmt: skip
    (call,) = calls(check(ran.events))
    assert ran.code == 0 and "0.5 s" in call["error"]["message"]


def test_a_server_that_does_not_start_is_shown_and_the_rest_works(
    agent: Agent, script: Script
) -> None:
    ran = agent("run", "go", "--json-events", "--mcp", hostile("refuse"), "--engine", script(FINAL))
    assert ran.code == 0 and check(ran.events)["status"] == "completed"
    server = ran.events[0]["mcp_servers"][-1]
    assert server["status"] == "failed" and "cannot find the database" in server["error"]
    piped = agent("run", "go", "-q", "--mcp", hostile("refuse"), "--engine", script(FINAL))
    assert "cannot find the database" in piped.err


def test_a_required_server_that_does_not_start_ends_it_before_any_token(
    agent: Agent, script: Script, tmp_path: Path
) -> None:
    entry = {
        "command": sys.executable,
        "args": ["-I", str(SERVERS / "hostile.py"), "refuse"],
        "required": True,
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"db": entry}}))
    ran = agent(
        "run", "go", "--json-events", "--mcp-config", str(config), "--engine", script(FINAL)
    )
    final = check(ran.events)
    assert (ran.code, final["status"], final["error"]["code"]) == (3, "failed", "server_error")
    assert "db" in final["error"]["message"] and final["output"] == []
    assert final["usage"]["output_tokens"] == 0


def test_a_prompt_of_100_kb_is_no_problem(agent: Agent, script: Script) -> None:
    ran = agent("run", "-", "--json-events", "--engine", script(FINAL), stdin="word " * 20_000)
    assert ran.code == 0 and check(ran.events)["usage"]["input_tokens"] > 20_000


def test_the_same_on_the_real_model(agent: Agent) -> None:
    ran = agent("run", "-", "--json-events", "--max-output-tokens", "8", stdin="word " * 20_000)
    final = check(ran.events)
    assert ran.code in (0, 4) and final["usage"]["input_tokens"] > 20_000


@pytest.mark.parametrize("number", range(7))
def test_odd_schemas_are_no_trouble_in_a_run(agent: Agent, script: Script, number: int) -> None:
    odd = f"odd={sys.executable} -I {SERVERS / 'odd.py'}"
    ran = agent(
        "run", "go", "--json-events", "--mcp", odd, "--tools", f"odd.tool_00{number}",
        "--engine", script(function(f"odd__tool_00{number}", "{}"), FINAL),
    )  # fmt: skip
    (call,) = calls(check(ran.events))
    assert ran.code == 0
    assert call["output"] == f"'tool_00{number}'" or "schema" in call["error"]["message"]


@pytest.mark.slow
def test_kill_9_of_a_server_in_a_call_and_nothing_left_after_the_exit(
    agent: Agent, script: Script, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    ran = agent(
        "run", "go", "--json-events", "--mcp", hostile(f"orphan {note}"),
        "--engine", script(
            function("hostile.suicide", "{}"),
            function("hostile.process", "{}"),
            FINAL,
        ),
    )  # fmt: skip
    killed, after = calls(check(ran.events))
    assert ran.code == 0
    assert "was killed by signal 9" in killed["error"]["message"]
    assert after["status"] == "completed", "the next call works"
    for pid in (int(after["output"]), int(note.read_text())):
        gone(pid)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_a_run_is_ended_in_a_call(
    home: Path, tmp_path: Path, script: Script, number: int
) -> None:
    note = tmp_path / "pid"
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "agent", "run", "go", "--json-events"),
            *("--mcp", hostile(f"orphan {note}")),
            *("--engine", script(function("hostile.hang", "{}"), FINAL)),
        ],
        cwd=tmp_path,
        env={**os.environ, "AGENT_HOME": str(home)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if b"mcp_call_arguments.done" in line:
            break
    ours = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    for pid in (*ours, int(note.read_text())):
        gone(pid)
