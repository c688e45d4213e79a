"""The question before the app opens in the home folder."""

import io
from pathlib import Path

import pytest

from agent.cli.trust import confirm_folder
from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from tools.policy.approval_store import ApprovalStore


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "allowed"), [("y\n", True), ("\n", False), ("", False)])
def test_confirm_home_asks_where_tools_change_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    allowed: bool,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("AGENT_HOME", str(tmp_path / "agent"))
    (tmp_path / "me").mkdir()
    monkeypatch.setattr("sys.stdin", Terminal(answer * 2))
    monkeypatch.setattr("sys.stderr", Terminal())
    for tools in (None, "all", "python"):
        assert not confirm_folder(LaunchOptions(root=tmp_path / "me", tools=tools)).allow_home
    for root in (tmp_path / "me", tmp_path):
        launch = LaunchOptions(root=root, tools="all,shell")
        assert confirm_folder(launch).allow_home is allowed
    (tmp_path / "me" / "project").mkdir()
    assert not confirm_folder(LaunchOptions(root=tmp_path / "me/project", tools="shell")).allow_home
    store = ApprovalStore(user_paths().approvals, (tmp_path / "me").resolve())
    store.allow_home()
    again = confirm_folder(LaunchOptions(root=tmp_path / "me", tools="shell"))
    assert not again.allow_home and store.allows_home(), "not asked again"
