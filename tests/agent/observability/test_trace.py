"""--trace: tokens, segments and events with their times, in the Trace Event Format."""

import json
import re
import stat
from collections import Counter
from pathlib import Path

import pytest

from tests.support.program import RunAgent


def test_trace_has_tokens_segments_and_events(agent: RunAgent, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.touch(mode=0o644)
    prompt = "Multiply 123*456 using the mcp.code_interpreter tool."
    done = agent("run", prompt, "--json-events", "--trace", str(path))
    assert done.code == 0 and stat.S_IMODE(path.stat().st_mode) == 0o600
    entries = json.loads(path.read_text())
    times = [entry["ts"] for entry in entries]
    assert times == sorted(times)

    output = done.events[-1]["response"]
    tokens = [entry for entry in entries if entry["ph"] == "i" and entry["tid"] == 1]
    assert len(tokens) >= output["usage"]["output_tokens"]
    text = "".join(entry["name"] for entry in tokens)
    assert output["output"][-1]["content"][0]["text"] in text

    spans = Counter(
        (entry["cat"], entry["name"], entry["ph"]) for entry in entries if "cat" in entry
    )
    assert spans["segment", "mcp_call python", "b"] == 1
    assert all(spans[kind, name, "e"] == n for (kind, name, ph), n in spans.items() if ph == "b")
    assert {kind for kind, _, _ in spans} == {"turn", "segment", "engine"}

    names = [entry["name"] for entry in entries if entry["ph"] == "i" and entry["tid"] == 2]
    official = [event["type"] for event in done.events]
    assert [name for name in names if name in official] == official


def test_trace_unwritable_file_is_usage_error(agent: RunAgent, tmp_path: Path) -> None:
    done = agent("run", "hello", "--trace", str(tmp_path / "no" / "trace.json"))
    assert (done.code, done.err.count("\n")) == (2, 1) and "--trace: cannot write" in done.err


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
@pytest.mark.parametrize("words", [1, 2000])  # it is full at the end, or on the way
def test_trace_full_disk_ends_only_the_trace(
    agent: RunAgent, home: Path, tmp_path: Path, words: int
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"markup":"<|channel|>final<|message|>ok<|return|>"}')
    strict = {"PYTHONDEVMODE": "1"}
    done = agent(
        "run", "hello " * words, "--engine", f"script:{script}", "--trace", "/dev/full", env=strict
    )
    assert (done.code, done.out.strip()) == (0, "ok"), done.err
    assert "No space" not in done.err and "trace.py" not in done.err
    log = home / "state" / "agent.log"
    lines = log.read_text().splitlines() if log.exists() else []
    slow = re.compile(r"Executing .* took [0-9.]+ seconds")  # asyncio's own, of a busy machine
    assert not [line for line in lines if not slow.search(line)]
