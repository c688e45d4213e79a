"""The person sees which files a command has changed, also one that was stopped."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import events as ev
from tests.support.invariants import check as check_stream
from tests.support.program import RunAgent


def call(line: str, timeout: int = 60_000) -> str:
    return (
        "<|channel|>analysis to=container.exec code<|message|>"
        f'{{"cmd":["bash","-c","{line}"],"timeout":{timeout}}}<|call|>'
    )


MAKE = call("echo 2 > old; rm gone; touch new; touch odd$(printf '\\\\\\\\n\\\\\\\\377')")
STOP = call("touch late; sleep 500", 10_000)
DONE = "<|channel|>final<|message|>Done.<|return|>"


@pytest.mark.long
def test_run_commands_changed_files_on_stderr_and_in_events(
    agent: RunAgent, script: Callable[..., str], tmp_path: Path
) -> None:
    options = ("--tools", "shell", "--approve", "shell")
    for name in ("old", "gone"):
        (tmp_path / "work" / name).write_text("1")
    engine = ("--engine", script(MAKE, STOP, call("true"), DONE))
    ran = agent("run", "go", *options, *engine)
    assert ran.out == "Done.\n"
    lines = [line for line in ran.err.splitlines() if "changed: " in line]
    first, second = lines
    assert first.startswith("  changed: new (new), odd") and first.endswith("old, gone (deleted)")
    assert second == "  changed: late (new)"

    (tmp_path / "work" / "late").unlink()
    ran = agent("run", "go", *options, "--json-events", "--engine", script(STOP, DONE))
    item: Any = check_stream(ran.events)["output"][0]
    types = [event["type"] for event in ran.events]
    changed = next(event for event in ran.events if event["type"] == "agent.file_changes")
    assert changed["created"] == ["late"] and changed["total"] == 1
    assert changed["item_id"] == item["id"] and "stopped after" in str(item["error"])
    assert types.index("agent.file_changes") < types.index("response.mcp_call.failed")


def test_file_changes_summary_is_one_short_line() -> None:
    many = [f"{number}.txt" for number in range(9)]
    for changes, line in (
        ({"created": ["a\n\x1b[1mb\u202e"], "total": 1}, "changed: a��[1mb� (new)"),
        ({"modified": many, "total": 60}, f"changed: {', '.join(many[:5])} (+55 more)"),
        ({"deleted": ["x"], "modified": ["y"], "total": 2}, "changed: y, x (deleted)"),
        ({}, "changed: not known (too many files to compare)"),
    ):
        event = ev.AgentFileChanges.model_validate({"item_id": "mcp_1", **changes})
        assert event.summary == line
