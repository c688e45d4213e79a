"""MCP servers in `agent run`: calls, progress, failures, servers that hang, die or leave processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.hosts import is_alive, server_entry, server_option
from tests.support.invariants import check, mcp_calls
from tests.support.program import RunAgent
from tests.support.scripts import DONE, reasoned_call
from tests.support.waiting import HANG_SECONDS

Script = Callable[..., str]
LIGHT_SERVER = server_option("light", name="plain")


def hostile(*args: str) -> str:
    """The value of ``--mcp`` for the server that misbehaves; ``args``: how it does."""
    return server_option("hostile", *args)


def wait_exit(pid: int) -> None:
    """Wait until a process that was killed is dead."""
    deadline = time.monotonic() + HANG_SECONDS
    while is_alive(pid):
        assert time.monotonic() < deadline, f"{pid} is left"
        time.sleep(0.01)


def test_mcp_option_tool_listed_and_called(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", LIGHT_SERVER,
        "--engine", script(reasoned_call("functions.plain__echo", '{"text":"hi"}'), DONE),
    )  # fmt: skip
    (call,) = mcp_calls(check(ran.events))
    assert ran.code == 0
    assert (call["server_label"], call["name"], call["output"]) == ("plain", "echo", "hi")
    assert "plain.echo" in ran.events[0]["tools"]
    assert ran.events[0]["mcp_servers"][-1]["status"] == "ready"


def test_mcp_tool_progress_events_during_call(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", LIGHT_SERVER,
        "--engine", script(reasoned_call("plain.count", '{"to":3}'), DONE),
    )  # fmt: skip
    check(ran.events)
    types = [event["type"] for event in ran.events]
    progress = [at for at, kind in enumerate(types) if kind == "agent.tool_progress"]
    assert [ran.events[at]["message"] for at in progress] == ["step 1", "step 2", "step 3"]
    done = types.index("response.mcp_call_arguments.done")
    assert done < progress[0] and progress[-1] < types.index("response.mcp_call.completed")


@pytest.mark.parametrize(
    ("arguments", "tool", "kind", "message"),
    [
        ("{}", "plain.fail", "mcp_tool_execution_error", "the moon is in the way"),
        ('{"size":"many"}', "plain.big", "mcp_protocol_error", "size"),
        ("{}", "plain.nothing", "mcp_protocol_error", "no tool named plain.nothing"),
    ],
)
def test_mcp_tool_failure_answer_follows(
    agent: RunAgent, script: Script, arguments: str, tool: str, kind: str, message: str
) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", LIGHT_SERVER,
        "--engine", script(reasoned_call(tool, arguments), DONE),
    )  # fmt: skip
    (call,) = mcp_calls(check(ran.events))
    assert ran.code == 0 and call["status"] == "failed"
    assert call["error"]["type"] == kind and message in json.dumps(call["error"])


def test_mcp_result_5_mb_shortened_and_saved(agent: RunAgent, script: Script, home: Path) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", LIGHT_SERVER,
        "--engine", script(reasoned_call("plain.big", '{"size":5000000}'), DONE),
    )  # fmt: skip
    (call,) = mcp_calls(check(ran.events))
    assert call["status"] == "completed" and len(call["output"]) < 40_000
    assert call["output"].startswith("ax") and call["output"].rstrip().endswith("z")
    assert any(file.stat().st_size == 5_000_000 for file in home.glob("cache/results/*"))


def test_mcp_server_dies_restarts_for_next_call(agent: RunAgent, script: Script) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", hostile("well"),
        "--engine", script(reasoned_call("hostile.die"), reasoned_call("hostile.ping"), DONE),
    )  # fmt: skip
    died, pinged = mcp_calls(check(ran.events))
    assert died["error"]["type"] == "mcp_protocol_error"
    assert "out of cheese" in died["error"]["message"]
    assert pinged["output"] == "pong"


def test_mcp_tool_hangs_times_out(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    entry = server_entry("hostile", "well", tool_timeout_sec=0.5)
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"hostile": entry}}))
    ran = agent(
        "run", "go", "--json-events", "--mcp-config", str(config),
        "--engine", script(reasoned_call("hostile.hang"), DONE),
    )  # fmt: skip
    (call,) = mcp_calls(check(ran.events))
    assert ran.code == 0 and "0.5 s" in call["error"]["message"]


def test_mcp_server_fails_to_start_run_continues(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "go", "--json-events", "--mcp", hostile("refuse"), "--engine", script(DONE))
    assert ran.code == 0 and check(ran.events)["status"] == "completed"
    server = ran.events[0]["mcp_servers"][-1]
    assert server["status"] == "failed" and "cannot find the database" in server["error"]
    piped = agent("run", "go", "-q", "--mcp", hostile("refuse"), "--engine", script(DONE))
    assert "cannot find the database" in piped.err


def test_mcp_required_server_fails_no_tokens(
    agent: RunAgent, script: Script, tmp_path: Path
) -> None:
    entry = server_entry("hostile", "refuse", required=True)
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"db": entry}}))
    ran = agent("run", "go", "--json-events", "--mcp-config", str(config), "--engine", script(DONE))
    final = check(ran.events)
    assert (ran.code, final["status"], final["error"]["code"]) == (3, "failed", "server_error")
    assert "db" in final["error"]["message"] and final["output"] == []
    assert final["usage"]["output_tokens"] == 0


def test_run_prompt_100_kb_scripted(agent: RunAgent, script: Script) -> None:
    ran = agent("run", "-", "--json-events", "--engine", script(DONE), stdin="word " * 20_000)
    assert ran.code == 0 and check(ran.events)["usage"]["input_tokens"] > 20_000


def test_run_prompt_100_kb_embedded_model(agent: RunAgent) -> None:
    prompt = "-" * 99 + "\n"  # a few tokens: 20,000 take a minute and more on a busy machine
    ran = agent("run", "-", "--json-events", "--max-output-tokens", "8", stdin=prompt * 1_000)
    final = check(ran.events)
    assert ran.code in (0, 4) and final["usage"]["input_tokens"] > 2_000


@pytest.mark.parametrize("number", range(7))
def test_mcp_odd_schemas_run_completes(agent: RunAgent, script: Script, number: int) -> None:
    ran = agent(
        "run", "go", "--json-events", "--mcp", server_option("odd"), "--tools", f"odd.tool_00{number}",
        "--engine", script(reasoned_call(f"odd__tool_00{number}"), DONE),
    )  # fmt: skip
    (call,) = mcp_calls(check(ran.events))
    assert ran.code == 0
    assert call["output"] == f"'tool_00{number}'" or "schema" in call["error"]["message"]


@pytest.mark.long
def test_mcp_server_killed_no_orphans(agent: RunAgent, script: Script, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    ran = agent(
        "run", "go", "--json-events", "--mcp", hostile("orphan", str(note)),
        "--engine", script(
            reasoned_call("hostile.suicide"),
            reasoned_call("hostile.process"),
            DONE,
        ),
    )  # fmt: skip
    killed, after = mcp_calls(check(ran.events))
    assert ran.code == 0
    assert "was killed by signal 9" in killed["error"]["message"]
    assert after["status"] == "completed", "the next call works"
    for pid in (int(after["output"]), int(note.read_text())):
        wait_exit(pid)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_signal_in_call_no_orphans(
    home: Path, tmp_path: Path, script: Script, number: int
) -> None:
    note = tmp_path / "pid"
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "agent", "run", "go", "--json-events"),
            *("--mcp", hostile("orphan", str(note))),
            *("--engine", script(reasoned_call("hostile.hang"), DONE)),
        ],
        cwd=tmp_path,
        env={**os.environ, "AGENT_HOME": str(home)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if b"mcp_call_arguments.done" in line:
            break
    children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(number)
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130
    for pid in (*children, int(note.read_text())):
        wait_exit(pid)
