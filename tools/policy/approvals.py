"""Decides whether a call may run without asking, and remembers the answers of those that ask."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.audit import AuditLog
from tools.builtin_server import ExtraPermission, ToolError
from tools.config.servers import ConfigError, Rule, ServerConfig
from tools.policy.approval_store import ApprovalStore, StoredApproval, tool_definition
from tools.policy.rules import MAX_RULES_CHARS, OnceOnlyError
from tools.policy.taint import Exposure, describe_read, find_leak
from tools.types import Answer, Decision, Mode, Requirement, Tool

ASK_REASON = "the policy asks before this tool runs"
ONCE_REASON = "it can only be allowed once"
CHANGED_REASON = "this tool is not what you allowed: its definition has changed"
OLD_APPROVAL_REASON = "you allowed all commands once; now each command is allowed by itself"
PLAN_REASON = "in plan mode only tools that read run; end with a plan"
NO_EXPOSURE = Exposure()
SESSION_FOLDER = "this session"
"""In place of a folder: an approval that counts until this process ends."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's decision about one call."""

    decision: Decision
    reason: str = ""
    diff: str | None = None
    """If an approved tool has changed: the unified diff from its approved definition."""
    rules: tuple[str, ...] | None = None
    """The rules that a lasting answer gives; empty: it counts once; None: the tool, however called."""
    implied: bool = False
    """Whether it is allowed without a decision about this tool by its name."""


def _runs_unconfined(config: ServerConfig) -> bool:
    """Return whether calls may do anything, each something else: then an answer counts once."""
    return config.builtin is not None and config.builtin.runs_unconfined()


def parse_rules(option: str, servers: Sequence[ServerConfig]) -> list[str]:
    """Read ``--approve RULE,…|all``. Raises ConfigError for a rule that names no server."""
    rules = [rule.strip() for rule in option.split(",") if rule.strip()]
    known = {"all"} | {s.name for s in servers} | {s.builtin.alias for s in servers if s.builtin}
    for rule in rules:
        if not any(rule == name or rule.startswith(f"{name}.") for name in known):
            names = ", ".join(sorted(known))
            raise ConfigError(f"--approve: no server is called {rule!r}; known: {names}")
    return rules


class Policy:
    """The operator's rules, and what the person answered in this process and before."""

    def __init__(
        self,
        rules: Sequence[str] = (),
        *,
        settings: Mapping[str, Rule] | None = None,
        store: ApprovalStore | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """``rules``: from the command line: ``server``, ``server.tool``, a built-in server's alias,
        or ``all``. ``settings``: rules by such names, from the person's own mcp.json."""
        self.rules = frozenset(rules)
        self._settings = dict(settings or {})
        self._audit = audit or AuditLog(None)
        self._session = ApprovalStore(None, Path(SESSION_FOLDER))
        self._store = store if store is not None and store.path is not None else self._session

    # --- deciding ---

    def decide(
        self,
        tool: Tool,
        config: ServerConfig,
        arguments: dict[str, Any] | None = None,
        *,
        by_name_only: bool = False,
        exposure: Exposure = NO_EXPOSURE,
        mode: Mode = "ask",
    ) -> Verdict:
        """Decide about a call; who is asked is the caller's affair. ``arguments``: None: no call is
        made. ``by_name_only``: rules for whole servers do not count. ``exposure``: what the
        conversation has read. May read files."""
        verdict = self._decide(tool, config, arguments, by_name_only)
        builtin = config.builtin
        if (
            mode == "plan"
            and not (by_name_only or verdict.decision == "deny" or tool.read_only)
            and not (builtin is not None and builtin.is_safe(tool.name))
        ):
            return Verdict("deny", PLAN_REASON)
        if (
            mode == "accept-edits"
            and verdict.decision == "ask"
            and builtin is not None
            and tuple(builtin.rule_verbs(tool)) == ("write",)
        ):
            return Verdict("allow", "the mode accepts edits")
        if verdict.decision == "deny" or arguments is None or by_name_only:
            return verdict
        leak = find_leak(tool, config, arguments, exposure)
        if leak is None or (verdict.decision == "allow" and not verdict.implied):
            return verdict
        reason, rules = leak
        if rules and self.granted_rules().issuperset(rules):
            return verdict
        if verdict.decision == "ask":
            return replace(verdict, reason=f"{verdict.reason}; {reason}")
        return Verdict("ask", reason, rules=rules)

    def decide_extra(
        self, tool: Tool, config: ServerConfig, extra: ExtraPermission, exposure: Exposure
    ) -> Verdict:
        """Decide about what a call needs beyond the permission for its tool. May read files."""
        own = self.decide(replace(tool, name=extra.name), config, by_name_only=True)
        if own.decision != "ask":
            return own
        granted = self.granted_rules()
        missing = tuple(r.rule for r in extra.requirements if not r.is_met(granted))
        if extra.requirements and not missing:
            return Verdict("allow", "the person's rules allow it")
        is_named = not extra.host or extra.host in exposure.hosts
        read = "" if is_named else describe_read(exposure)
        if extra.is_granted and not read:
            return Verdict("allow", "the settings allow it")
        return Verdict("ask", f"{extra.reason}; it {read}" if read else extra.reason, rules=missing)

    def _decide(
        self, tool: Tool, config: ServerConfig, arguments: dict[str, Any] | None, by_name_only: bool
    ) -> Verdict:
        names = [config.name, *([config.builtin.alias] if config.builtin else [])]
        rule = self._rule(tool, config, names, by_name_only)
        if rule == "deny":
            return Verdict("deny", "the settings deny it")
        allowing = [f"{name}.{tool.name}" for name in names] + ([] if by_name_only else names)
        if not self.rules.isdisjoint(allowing):
            return Verdict("allow", "--approve")
        if rule == "allow" or (rule == "auto" and tool.read_only):
            return Verdict("allow", "the settings allow it", implied=rule == "auto")
        if rule is None and not by_name_only:
            # Unconfined code is never covered by a sweeping "all".
            if "all" in self.rules and not _runs_unconfined(config):
                return Verdict("allow", "--approve all")
            earlier = self._earlier_answer(tool, config, arguments)
            if earlier.decision == "allow":
                return earlier
            if config.builtin is not None and config.builtin.is_safe(tool.name):
                return Verdict("allow", "it can do no harm", implied=True)
            if config.trusted:
                return Verdict("allow", "it was named to run", implied=True)
            return earlier
        return self._earlier_answer(tool, config, arguments)

    def _rule(
        self, tool: Tool, config: ServerConfig, names: Sequence[str], by_name_only: bool
    ) -> Rule | None:
        """Return the rule of the settings; the one for the tool itself comes first."""
        exact = [f"{name}.{tool.name}" for name in names]
        rules = [self._settings[key] for key in (*exact, *names) if key in self._settings]
        if (entry_rule := config.rule(tool.name)) is not None:
            rules.append(entry_rule)
        if "deny" in rules:
            return "deny"
        if by_name_only:
            rules = [self._settings[key] for key in exact if key in self._settings]
            rules += [config.rules[tool.name]] if tool.name in config.rules else []
        if config.from_project:
            # A project cannot allow itself anything, nor take what was allowed to another's name.
            return "ask" if rules else None
        return rules[0] if rules else None

    def _earlier_answer(
        self, tool: Tool, config: ServerConfig, arguments: dict[str, Any] | None
    ) -> Verdict:
        """Decide by what the person answered before; ask if the tool has changed since."""
        if _runs_unconfined(config):
            return Verdict("ask", ASK_REASON, rules=())
        builtin = config.builtin
        ask = Verdict("ask", ASK_REASON)
        if builtin is not None and arguments is not None:
            try:
                requirements = builtin.requirements(tool.name, arguments)
            except OnceOnlyError as error:
                ask = Verdict("ask", f"{ONCE_REASON}: {error}", rules=())
            except (ToolError, OSError):
                ask = Verdict("ask", ASK_REASON, rules=())  # the call fails, or shows why
            else:
                if requirements is not None:
                    ask = self._decide_by_rules(requirements)
        if ask.decision == "allow":
            return ask
        stores = (self._session, self._store)
        definitions = (each.approved_definition(tool.server, tool.name) for each in stores)
        approved = next((text for text in definitions if text is not None), None)
        if approved is None:
            return ask
        if builtin is not None and not builtin.keeps_tool_approvals:
            return replace(ask, reason=f"{ask.reason}; {OLD_APPROVAL_REASON}")
        current = tool_definition(tool, config)
        if approved == current:
            return Verdict("allow", "the person allowed it before")
        texts = approved.splitlines(), current.splitlines()
        lines = difflib.unified_diff(*texts, "allowed", "now", lineterm="")
        return replace(ask, reason=CHANGED_REASON, diff="\n".join(lines))

    def _decide_by_rules(self, requirements: Sequence[Requirement]) -> Verdict:
        granted = self.granted_rules()
        missing = dict.fromkeys(r.rule for r in requirements if not r.is_met(granted))
        if not missing:
            return Verdict("allow", "the person's rules allow it")
        if sum(map(len, missing)) > MAX_RULES_CHARS:
            return Verdict("ask", f"{ONCE_REASON}: its rules are too long", rules=())
        return Verdict("ask", ASK_REASON, rules=tuple(missing))

    def granted_rules(self) -> frozenset[str]:
        return self._store.rules() | self._session.rules()

    def tool_rules(self, tool: Tool, config: ServerConfig) -> list[str]:
        """Return the rules that count here and now for calls of a tool, sorted."""
        verbs = config.builtin.rule_verbs(tool) if config.builtin else ()
        return sorted(r for r in self.granted_rules() if r.partition(" ")[0] in verbs)

    # --- recording ---

    def record_answer(
        self,
        tool: Tool,
        config: ServerConfig,
        answer: Answer,
        arguments: str,
        by: str,
        *,
        rules: Sequence[str] | None = None,
    ) -> None:
        """Log an answer and remember it as long as it counts. ``rules``: of the verdict. Raises OSError
        if it cannot be written; it counts for this process then."""
        if answer and (_runs_unconfined(config) or (rules is not None and not rules)):
            answer = Answer("once")
        decision = "allowed" if answer else "refused"
        granted = " · ".join(rules or ()) if answer.choice in ("session", "always") else ""
        self.log_decision(
            tool, arguments, decision, by,
            choice=answer.choice, reason=answer.reason, rules=granted,
        )  # fmt: skip
        if answer.choice not in ("session", "always"):
            return
        store = self._store if answer.choice == "always" else self._session
        try:
            self._remember(store, tool, config, rules)
        except OSError:
            self._remember(self._session, tool, config, rules)
            raise
        if store is not self._session:  # in one place only: it ends when it is revoked
            subject = f"{tool.server} · {tool.name}"
            self._session.revoke(StoredApproval(SESSION_FOLDER, "tool", subject))

    def _remember(
        self, store: ApprovalStore, tool: Tool, config: ServerConfig, rules: Sequence[str] | None
    ) -> None:
        if rules is None:
            store.approve(tool.server, tool.name, tool_definition(tool, config))
        else:
            store.add_rules(rules)

    def allow_rule(self, rule: str) -> None:
        """Give a rule for good, or for this process where nothing is stored; raises OSError."""
        self._store.add_rules([rule])

    # --- looking at it, and taking it back ---

    def approvals(self) -> list[StoredApproval]:
        stored = [] if self._store is self._session else self._store.approvals()
        return self._session.approvals() + stored

    def revoke(self, approval: StoredApproval) -> None:
        (self._session if approval.folder == SESSION_FOLDER else self._store).revoke(approval)

    def log_decision(self, tool: Tool, args: str, decision: str, by: str, **details: str) -> None:
        """Write a decision into the audit log; ``details`` become keys of its entry."""
        details = {key: value for key, value in details.items() if value}
        self._audit.record(tool.server, tool.name, args, decision=decision, by=by, **details)


def join_verdicts(call: Verdict, extras: Sequence[Verdict]) -> Verdict:
    """Return the verdict about a call that needs more than the permission for its tool."""
    if denied := next((v for v in (call, *extras) if v.decision == "deny"), None):
        return denied
    asking = [verdict for verdict in extras if verdict.decision == "ask"]
    if not asking:
        return call
    reason = "; ".join(verdict.reason for verdict in asking)
    rules = [v.rules or () for v in (call, *asking) if v.decision == "ask"]
    joined = tuple(dict.fromkeys(rule for each in rules for rule in each))
    # If one part of a question can only be allowed once, the whole answer counts once.
    lasts = all(rules) and sum(map(len, joined)) <= MAX_RULES_CHARS
    return replace(call, decision="ask", reason=reason, rules=joined if lasts else ())
