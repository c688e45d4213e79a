"""The README's first prompt on the embedded model: reasoning, a call of a real tool, an answer.

Each test below the first checks that a fault of another server's published stream is absent here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.invariants import check
from tests.support.waiting import HANG_SECONDS

PROMPT = "Multiply 123*456 using the mcp.code_interpreter tool."
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def events(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Events:
    """The events of one run with no option but --json-events."""
    home = tmp_path_factory.mktemp("home")
    (home / "cache").symlink_to(model_cache)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "agent", "run", PROMPT, "--json-events"],
        cwd=home,
        env={**os.environ, "AGENT_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def mcp_call(events: Events) -> dict[str, Any]:
    """The call in the final response."""
    item: dict[str, Any] = events[-1]["response"]["output"][1]
    return item


def test_seed_prompt_reasons_calls_answers(events: Events) -> None:
    final = check(events)
    assert final["status"] == "completed"
    reasoning, call, message = final["output"]
    assert reasoning["type"] == "reasoning" and reasoning["content"][0]["text"]
    assert call["type"] == "mcp_call"
    assert (call["server_label"], call["name"]) == ("code_interpreter", "python")
    assert "123" in json.loads(call["arguments"])["code"]
    assert "56088" in call["output"]
    assert message["phase"] == "final_answer"
    assert "56088" in message["content"][0]["text"].replace(",", "")
    usage = final["usage"]
    assert usage["input_tokens"] > 0 < usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0
    assert usage["input_tokens_details"]["cached_tokens"] > 0, "the second prompt extends the first"


def test_seed_prompt_first_event_names_model(events: Events) -> None:
    first = events[0]
    assert first["type"] == "agent.start" and first["model"] == "tiny"
    assert first["context_length"] == 32768 and first["engine"] == "llama.cpp"
    assert "code_interpreter.python" in first["tools"]
    assert {"name", "status", "tools", "error"} == set(first["mcp_servers"][0])


def test_seed_prompt_progress_and_stats_events(events: Events) -> None:
    types = [event["type"] for event in events]
    assert {"agent.load", "agent.prefill", "agent.stats"} <= set(types)
    assert types.index("agent.load") < types.index("agent.prefill")
    assert types[-2] == "agent.stats"
    assert events[-2]["tokens_per_second"] > 0


def test_seed_prompt_no_index_minus_one(events: Events) -> None:
    assert "-1" not in {
        str(event[key]) for event in events for key in event if key.endswith(("_index", "_number"))
    }


def test_seed_prompt_call_has_one_id(events: Events) -> None:
    ids = {e["item_id"] for e in events if e["type"].startswith("response.mcp_call")}
    assert ids == {mcp_call(events)["id"]}


def test_seed_prompt_arguments_streamed(events: Events) -> None:
    deltas = [e["delta"] for e in events if e["type"] == "response.mcp_call_arguments.delta"]
    assert len(deltas) > 2 and "".join(deltas) == mcp_call(events)["arguments"]


def test_seed_prompt_call_output_not_null(events: Events) -> None:
    done = next(
        e for e in events
        if e["type"] == "response.output_item.done" and e["item"]["type"] == "mcp_call"
    )  # fmt: skip
    assert done["item"]["output"] == "56088" == mcp_call(events)["output"]


def test_seed_prompt_call_completed_after_tool(events: Events) -> None:
    types = [event["type"] for event in events]
    arguments = types.index("response.mcp_call_arguments.done")
    completed = types.index("response.mcp_call.completed")
    assert arguments < completed
    partial = [i for i, e in enumerate(events) if e["type"] == "agent.tool_output.delta"]
    assert all(arguments < i < completed for i in partial)
    assert events[-2]["tool_ms"] > 0


def test_seed_prompt_call_item_kinds(events: Events) -> None:
    kinds = [item["type"] for item in events[-1]["response"]["output"]]
    assert kinds == ["reasoning", "mcp_call", "message"]


def test_seed_prompt_no_reasoning_part_events(events: Events) -> None:
    assert not any("reasoning_part" in event["type"] for event in events)
