"""Commands and changes of files are approved by rules; the question has each rule as it is stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.runtime.runtime import Runtime
from tests.support.invariants import check
from tests.support.runtimes import MakeRuntime
from tests.support.turns import FINAL, run_turn, write_script
from tools.policy.approval_store import ApprovalStore, tool_definition
from tools.policy.approvals import OLD_APPROVAL_REASON
from tools.types import Answer, Tool

ALWAYS, SESSION = Answer("always"), Answer("session")


def command(script: str, **more: Any) -> dict[str, str]:
    arguments = json.dumps({"cmd": ["bash", "-lc", script], **more})
    return {
        "markup": "<|channel|>commentary to=container.exec <|constrain|>json<|message|>"
        f"{arguments}<|call|>"
    }


def write(path: str) -> dict[str, str]:
    arguments = json.dumps({"path": path, "content": "x"})
    return raw_call("functions.files__write", arguments)


def raw_call(recipient: str, arguments: str) -> dict[str, str]:
    return {
        "markup": f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>"
        f"{arguments}<|call|>"
    }


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    (root := tmp_path / "root").mkdir()
    return {
        "tools": "shell,files", "root": root, "approvals_file": tmp_path / "approvals.json",
        "work_folder": tmp_path / "work",
    }  # fmt: skip


async def questions(
    runtime: Runtime, answer: Answer | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run the script: its calls and the questions about them, which get this answer."""

    async def approve(tool: Tool, arguments: str) -> Answer:
        assert answer is not None
        return answer

    events = await run_turn(runtime, approver=approve if answer else None)
    asked = [event for event in events if event["type"] == "agent.approval.requested"]
    return [item for item in check(events)["output"] if item["type"] == "mcp_call"], asked


@pytest.mark.long
async def test_command_always_covers_its_prefix_only(
    make_runtime: MakeRuntime, tmp_path: Path, settings: dict[str, Any]
) -> None:
    lines = write_script(
        tmp_path / "s.jsonl",
        command("ls -la && wc -l nothing > /dev/null"),
        command("ls"),
        command("ls; touch 'a b'"),
        {"markup": FINAL},
    )
    calls, asked = await questions(await make_runtime(lines, **settings), ALWAYS)
    assert [event["rules"] for event in asked] == [["run ls …", "run wc …"], ["run touch …"]]
    assert all("exit code" in item["output"] for item in calls)
    stored = json.loads((tmp_path / "approvals.json").read_text())["folders"]
    shown = [rule for event in asked for rule in event["rules"]]
    assert stored[str(settings["root"])]["rules"] == shown
    later = write_script(
        tmp_path / "t.jsonl", command("ls"), command("ls; rm x"), {"markup": FINAL}
    )
    (run, refused), (question,) = await questions(await make_runtime(later, **settings))
    assert run["error"] is None and question["rules"] == ["run rm x"]
    assert "there is no person" in refused["error"]["message"]


async def test_command_unclear_allowed_once_only(
    make_runtime: MakeRuntime, tmp_path: Path, settings: dict[str, Any]
) -> None:
    unclear, long = command("eval ls"), command(f"ls -d . || rm {'x' * 500}")
    lines = write_script(tmp_path / "s.jsonl", unclear, unclear, long, {"markup": FINAL})
    calls, asked = await questions(await make_runtime(lines, **settings), ALWAYS)
    assert all("exit code" in item["output"] for item in calls)
    assert [event["rules"] for event in asked] == [[], [], []]
    assert all("only be allowed once" in event["reason"] for event in asked)
    assert not (tmp_path / "approvals.json").exists()


async def test_old_shell_approval_asks_anew(
    make_runtime: MakeRuntime, tmp_path: Path, settings: dict[str, Any]
) -> None:
    lines = write_script(tmp_path / "s.jsonl", command("ls"), write("a.txt"), {"markup": FINAL})
    runtime = await make_runtime(lines, **settings)
    store = ApprovalStore(settings["approvals_file"], settings["root"])
    for tool in runtime.host.all_tools():
        config = runtime.host.server_config(tool.server)
        assert config is not None
        store.approve(tool.server, tool.name, tool_definition(tool, config))
    (shell, files), (question,) = await questions(runtime)
    assert OLD_APPROVAL_REASON in question["reason"] and question["rules"] == ["run ls …"]
    assert OLD_APPROVAL_REASON in shell["error"]["message"]
    assert files["error"] is None, "an approval of another tool still counts"


async def test_file_writes_allowed_by_folder(
    make_runtime: MakeRuntime, tmp_path: Path, settings: dict[str, Any]
) -> None:
    lines = write_script(
        tmp_path / "s.jsonl",
        write("src/a.txt"),
        write("src/deep/b.txt"),
        command("echo x > src/c.txt"),
        write("d.txt"),
        {"markup": FINAL},
    )
    calls, asked = await questions(await make_runtime(lines, **settings), SESSION)
    assert not any(item["error"] for item in calls)
    root = settings["root"]
    assert [event["rules"] for event in asked] == [[f"write {root}/src/…"], [f"write {root}/…"]]
    assert not (tmp_path / "approvals.json").exists()


@pytest.mark.parametrize(
    ("recipient", "arguments", "why"),
    [
        ("container.exec", '{"cmd":5}', "cmd"),
        ("container.exec", "{}", "cmd"),
        ("container.exec", '{"cmd":["ls"],"shell":true}', "unknown argument: shell"),
        ("functions.files__write", '{"path":"a"}', "content"),
        ("functions.files__write", '{"path":"a","content":"x","mode":"w"}', "unknown argument"),
    ],
)
async def test_invalid_call_needs_no_answer(
    make_runtime: MakeRuntime, tmp_path: Path, settings: dict[str, Any],
    recipient: str, arguments: str, why: str,
) -> None:  # fmt: skip
    lines = write_script(tmp_path / "s.jsonl", raw_call(recipient, arguments), {"markup": FINAL})
    (call,), asked = await questions(await make_runtime(lines, **settings), ALWAYS)
    assert not asked and why in call["error"]["message"]
    assert "do not fit the tool's schema" in call["error"]["message"]


@pytest.mark.parametrize(
    ("recipient", "arguments"),
    [
        ("container.exec", '{"command":"ls"}'),
        ("functions.apply_patch", "*** Begin Patch\n*** Add File: n.txt\n+x\n*** End Patch"),
    ],
)
async def test_call_in_another_spelling_runs(
    make_runtime: MakeRuntime, tmp_path: Path, settings: dict[str, Any],
    recipient: str, arguments: str,
) -> None:  # fmt: skip
    lines = write_script(tmp_path / "s.jsonl", raw_call(recipient, arguments), {"markup": FINAL})
    (call,), asked = await questions(await make_runtime(lines, **settings), ALWAYS)
    assert len(asked) == 1 and call["status"] == "completed", call
