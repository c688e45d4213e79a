"""May this call run without asking?"""

from __future__ import annotations

from collections.abc import Sequence

from tools.base import Decision, Tool
from tools.config import ConfigError, ServerConfig


class Policy:
    """The operator's rules: ``server``, ``server.tool``, a hand's short name, or ``all``."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        self.rules = frozenset(rules)

    @classmethod
    def parse(cls, option: str, servers: Sequence[ServerConfig]) -> Policy:
        """Read ``--approve RULE,…|all``; a rule must name a server (or a tool of it)."""
        rules = [rule.strip() for rule in option.split(",") if rule.strip()]
        known = {"all"} | {s.name for s in servers} | {s.hand.short for s in servers if s.hand}
        for rule in rules:
            if not any(rule == name or rule.startswith(f"{name}.") for name in known):
                names = ", ".join(sorted(known))
                raise ConfigError(f"--approve: no server is called {rule!r}; known: {names}")
        return cls(rules)

    def decide(self, tool: Tool, config: ServerConfig) -> Decision:
        """Allow or ask; who answers a question, and what silence means, is the caller's affair."""
        names = {config.name} | ({config.hand.short} if config.hand else set())
        if any(name in self.rules or f"{name}.{tool.name}" in self.rules for name in names):
            return "allow"
        if config.hand is not None:
            if config.hand.contained(tool.name):
                return "allow"
            # What runs here with nothing around it is never covered by a sweeping "all".
            return "ask"
        return "allow" if config.trusted or "all" in self.rules else "ask"
