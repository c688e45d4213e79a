"""Modes: plan lets only tools that read run, accept-edits lets the files tools write below the root."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.files.server import FilesServer
from tools.builtin.shell.server import ShellServer
from tools.builtin_server import BuiltinServer
from tools.config.servers import ServerConfig
from tools.factory import ToolboxOptions, build_toolbox
from tools.policy.approvals import NO_EXPOSURE, PLAN_REASON, Policy
from tools.policy.safety import safety_report
from tools.types import Decision, Mode, Tool

MINE = ServerConfig("mine", command="x", command_line="x", trusted=True)
SEND = Tool("mine", "send", "Send.", {"type": "object"})
LOOK = replace(SEND, name="look", read_only=True)


def builtin(server: BuiltinServer, name: str) -> tuple[Tool, ServerConfig]:
    config = ServerConfig(server.name, builtin=server)
    return next(tool for tool in server.tools if tool.name == name), config


@pytest.mark.parametrize(
    ("name", "arguments", "decisions"),
    [
        ("read", {"path": "a"}, ("allow", "allow", "allow")),
        ("write", {"path": "a", "content": "x"}, ("ask", "deny", "allow")),
        ("undo", {}, ("ask", "deny", "allow")),
        ("exec", {"cmd": ["ls"]}, ("ask", "deny", "ask")),
        ("send", {}, ("allow", "deny", "allow")),
        ("look", {}, ("allow", "allow", "allow")),
    ],
)
def test_mode_decides(
    tmp_path: Path, name: str, arguments: dict[str, Any], decisions: tuple[Decision, ...]
) -> None:
    files = FilesServer(tmp_path)
    shell = ShellServer(tmp_path, files=files)
    if name in ("send", "look"):
        tool, config = (SEND if name == "send" else LOOK), MINE
    else:
        tool, config = builtin(shell if name == "exec" else files, name)
    modes: tuple[Mode, ...] = ("ask", "plan", "accept-edits")
    found = [Policy().decide(tool, config, arguments, mode=mode) for mode in modes]
    assert tuple(verdict.decision for verdict in found) == decisions
    assert found[1].decision == "allow" or found[1].reason == PLAN_REASON


def test_settings_and_plan_mode_deny_whatever_else_allows(tmp_path: Path) -> None:
    tool, config = builtin(FilesServer(tmp_path), "write")
    arguments = {"path": "a", "content": "x"}
    denied = Policy(settings={"files.write": "deny"})
    assert denied.decide(tool, config, arguments, mode="accept-edits").decision == "deny"
    allowed = Policy(["all", "files.write"])
    assert allowed.decide(tool, config, arguments, mode="plan").decision == "deny"


def test_accepted_edits_do_not_cover_what_runs_later(tmp_path: Path) -> None:
    files = FilesServer(tmp_path)
    tool, config = builtin(files, "write")
    (extra,) = files.extra_permissions("write", {"path": ".envrc", "content": "x"})
    assert Policy().decide_extra(tool, config, extra, NO_EXPOSURE).decision == "ask"


async def test_report_names_the_mode(tmp_path: Path) -> None:
    toolbox = build_toolbox(ToolboxOptions(tools="files", root=tmp_path))
    report = safety_report(toolbox.host, toolbox.policy, "plan")
    assert report["Mode"] == ["plan: only tools that read run; the answer is a plan"]
    assert "files.write" in report["Is denied"][0]
    report = safety_report(toolbox.host, toolbox.policy, "accept-edits")
    assert "files.write" in report["Runs without asking"][0]
