"""What the safety page says that the model can do."""

import sys
from pathlib import Path

import pytest

from tests.support.hosts import SERVERS_FOLDER
from tools.factory import ToolboxOptions, build_toolbox
from tools.policy.safety import safety_report
from tools.sandbox import isolation


async def test_report_default_tools_read_below_root_and_run_python(tmp_path: Path) -> None:
    toolbox = build_toolbox(ToolboxOptions(root=tmp_path))
    report = safety_report(toolbox.host, toolbox.policy)
    assert report["Can read"] == [f"files below {tmp_path.resolve()}"]
    assert report["Can change"] == report["Can reach"] == ["nothing"]
    assert report["Can run"][0].startswith("Python code in a sandbox")
    assert "python, files.read" in report["Runs without asking"][0]
    assert "Asks first" not in report


async def test_report_named_tools_change_run_and_reach(tmp_path: Path) -> None:
    toolbox = build_toolbox(ToolboxOptions(tools="files,shell,browser", root=tmp_path))
    report = safety_report(toolbox.host, toolbox.policy)
    assert report["Can change"][0] == f"files below {tmp_path.resolve()}"
    assert report["Can run"][0].startswith("commands in a sandbox")
    assert report["Can reach"] == ["public web pages; the address that is opened is sent there"]
    assert "files.write" in report["Asks first"][0] and "shell" in report["Asks first"][0]


async def test_report_python_without_sandbox_can_do_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = isolation.Isolation("none", "no isolation works here", False)
    monkeypatch.setattr(isolation, "best_isolation", lambda: none)
    toolbox = build_toolbox(ToolboxOptions(root=tmp_path, allow_unsandboxed=True))
    report = safety_report(toolbox.host, toolbox.policy)
    for heading in ("Can read", "Can change", "Can run", "Can reach"):
        assert "everything that you can, by Python code without a sandbox" in report[heading]
    assert report["Asks first"] == ["python"]


@pytest.mark.long
async def test_report_mcp_program_has_the_rights_of_the_person(tmp_path: Path) -> None:
    toolbox = build_toolbox(
        ToolboxOptions(
            tools="plain",
            mcp=[f"plain={sys.executable} -I {SERVERS_FOLDER / 'plain.py'}"],
            root=tmp_path,
        )
    )
    await toolbox.host.start()
    await toolbox.host.wait_started()
    report = safety_report(toolbox.host, toolbox.policy)
    assert report["Can run"] == [
        "everything that you can: plain is a program that runs with your rights"
    ]
    await toolbox.host.close()
