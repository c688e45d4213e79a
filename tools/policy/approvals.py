"""May this call run without asking? And what was answered where it may not."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tools.config.servers import ConfigError, Rule, ServerConfig
from tools.policy.approval_store import Definition, Memory, define
from tools.policy.audit import Audit
from tools.types import Answer, Decision, Tool

if TYPE_CHECKING:
    from tools.sandbox.isolation import Isolation

ASKS = "the policy asks before this tool runs"
CHANGED = "this tool is not what you allowed: its definition has changed"


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: Decision
    why: str = ""
    diff: str | None = None
    """Where a tool that was allowed has changed: from then to now."""


@runtime_checkable
class Isolating(Protocol):
    """A hand whose calls are harmless where there is isolation."""

    def isolation(self) -> Isolation: ...


def _bare(config: ServerConfig) -> bool:
    """Its calls may do anything, each another thing: an answer counts for one of them."""
    return isinstance(config.hand, Isolating) and not config.hand.isolation().ok


class Policy:
    """The operator's rules, and what the person answered in this process and before."""

    def __init__(
        self,
        rules: Sequence[str] = (),
        *,
        settings: Mapping[str, Rule] | None = None,
        memory: Memory | None = None,
        audit: Audit | None = None,
    ) -> None:
        """``rules``: ``server``, ``server.tool``, a hand's short name, or ``all``, of the command
        line. ``settings``: rules by such names, of the person's own file."""
        self.rules = frozenset(rules)
        self._settings = dict(settings or {})
        self._memory, self._audit = memory, audit or Audit(None)
        self._session: dict[tuple[str, str], Definition] = {}

    @classmethod
    def parse(
        cls,
        option: str,
        servers: Sequence[ServerConfig],
        *,
        settings: Mapping[str, Rule] | None = None,
        memory: Memory | None = None,
        audit: Audit | None = None,
    ) -> Policy:
        """Read ``--approve RULE,…|all``; a rule must name a server (or a tool of it)."""
        rules = [rule.strip() for rule in option.split(",") if rule.strip()]
        known = {"all"} | {s.name for s in servers} | {s.hand.short for s in servers if s.hand}
        for rule in rules:
            if not any(rule == name or rule.startswith(f"{name}.") for name in known):
                names = ", ".join(sorted(known))
                raise ConfigError(f"--approve: no server is called {rule!r}; known: {names}")
        return cls(rules, settings=settings, memory=memory, audit=audit)

    # --- deciding ---

    def decide(self, tool: Tool, config: ServerConfig, *, named: bool = False) -> Verdict:
        """Who answers a question, and what silence means, is the caller's affair. ``named``: no rule
        for the whole server allows it, only one for this very tool."""
        names = [config.name, *([config.hand.short] if config.hand else [])]
        rule = self._rule(tool, config, names, named)
        if rule == "deny":
            return Verdict("deny", "the settings deny it")
        allowing = [f"{name}.{tool.name}" for name in names] + ([] if named else names)
        if not self.rules.isdisjoint(allowing):
            return Verdict("allow", "--approve")
        if rule == "allow" or (rule == "auto" and tool.read_only):
            return Verdict("allow", "the settings allow it")
        if rule is None and not named:
            # What runs here with nothing around it is never covered by a sweeping "all".
            if "all" in self.rules and not _bare(config):
                return Verdict("allow", "--approve all")
            if config.hand is not None and config.hand.contained(tool.name):
                return Verdict("allow", "it can do no harm")
            if config.trusted:
                return Verdict("allow", "it was named to run")
        return self._remembered(tool, config)

    def _rule(
        self, tool: Tool, config: ServerConfig, names: Sequence[str], named: bool
    ) -> Rule | None:
        """Of the settings; the one for the tool itself comes first."""
        exact = [f"{name}.{tool.name}" for name in names]
        found = [self._settings[key] for key in (*exact, *names) if key in self._settings]
        if (own := config.rule(tool.name)) is not None:
            found.append(own)
        if "deny" in found:
            return "deny"
        if named:
            found = [self._settings[key] for key in exact if key in self._settings]
            found += [config.rules[tool.name]] if tool.name in config.rules else []
        if config.project:
            # A folder cannot allow itself anything, nor take what was allowed to another's name.
            return "ask" if found else None
        return found[0] if found else None

    def _remembered(self, tool: Tool, config: ServerConfig) -> Verdict:
        if _bare(config):
            return Verdict("ask", ASKS)
        now = define(tool, config)
        allowed = self._session.get((tool.server, tool.name))
        if allowed is None and self._memory is not None:
            allowed = self._memory.definition(tool.server, tool.name)
        if allowed is None:
            return Verdict("ask", ASKS)
        if allowed == now:
            return Verdict("allow", "the person allowed it before")
        lines = difflib.unified_diff(
            allowed.text.splitlines(), now.text.splitlines(), "allowed", "now", lineterm=""
        )
        return Verdict("ask", CHANGED, "\n".join(lines))

    # --- what became of it ---

    def answered(
        self, tool: Tool, config: ServerConfig, answer: Answer, arguments: str, by: str
    ) -> None:
        """Keep what was answered, as long as it is meant to count; raises OSError where an answer
        for good cannot be written (it counts for this process then)."""
        if answer and _bare(config):
            answer = Answer("once")
        decision = "allowed" if answer else "refused"
        self.note(tool, arguments, decision, by, choice=answer.choice, reason=answer.reason)
        if answer.choice in ("session", "always"):
            self._session[tool.server, tool.name] = define(tool, config)
        if answer.choice == "always" and self._memory is not None:
            self._memory.allow(tool.server, tool.name, define(tool, config))

    def note(self, tool: Tool, arguments: str, decision: str, by: str, **said: str) -> None:
        """Every decision goes into the log."""
        said = {key: value for key, value in said.items() if value}
        self._audit.note(tool.server, tool.name, arguments, decision=decision, by=by, **said)
