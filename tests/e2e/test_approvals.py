"""`agent approvals`: what was allowed for good, explained and revoked."""

import json
from pathlib import Path

import pytest

from tests.support.program import RunAgent
from tools.policy.approval_store import ApprovalStore

pytestmark = pytest.mark.slow


@pytest.fixture
def store(home: Path, tmp_path: Path) -> ApprovalStore:
    store = ApprovalStore(home / "state" / "approvals.json", tmp_path / "work")
    store.add_rules(["run git status …", "write /x/…", "run echo \x1b[2J"])
    store.approve("git", "push", "x")
    return store


def test_approvals_list_explains_and_revoke_removes(
    agent: RunAgent, store: ApprovalStore, tmp_path: Path
) -> None:
    listed = agent("approvals", "list")
    assert listed.code == 0 and "run git status …" in listed.out and "git · push" in listed.out
    assert "commands that begin so" in listed.out and "\x1b" not in listed.out
    rows = {row["allows"]: row for row in json.loads(agent("approvals", "list", "--json").out)}
    assert rows["write /x/…"]["folder"] == str(tmp_path / "work")
    revoked = agent("approvals", "revoke", "run git status …", rows["git · push"]["id"])
    assert revoked.code == 0 and revoked.out.count("Revoked") == 2
    assert store.rules() == {"write /x/…", "run echo \x1b[2J"}
    assert store.approved_definition("git", "push") is None
    assert agent("approvals", "revoke", "--all").code == 0 and not store.approvals()
    assert "Nothing is allowed for good" in agent("approvals", "list").err


def test_approvals_wrong_use_is_one_sentence(agent: RunAgent, home: Path) -> None:
    for arguments in (["nothing"], [], ["--all", "x"]):
        refused = agent("approvals", "revoke", *arguments)
        assert (
            refused.code == 2 and refused.err.count("\n") == 1 and "agent approvals" in refused.err
        )
    assert "git status …" in agent("approvals", "--help").out
