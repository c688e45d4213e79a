"""Which of the tools that there are the conversation's turns may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.types import Tool


class Toolset:
    """All, until the person says otherwise. Names are a server's or a hand's, or ``server.tool``."""

    def __init__(self) -> None:
        self.only: frozenset[str] | None = None
        """The names of what is offered; None: everything."""
        self.off: set[str] = set()
        """``server.tool`` of those that are switched off one by one."""

    def offers(self, tool: Tool) -> bool:
        name = f"{tool.server}.{tool.name}"
        chosen = self.only is None or not self.only.isdisjoint((tool.server, name))
        return chosen and name not in self.off

    def of(self, tools: Sequence[Tool]) -> tuple[Tool, ...] | None:
        """Those that are offered; None: whatever there is, also what comes later."""
        if self.only is None and not self.off:
            return None
        return tuple(tool for tool in tools if self.offers(tool))

    def choose(self, said: str, tools: Iterable[Tool]) -> None:
        """``all``, ``none`` or names with commas between them. Raises UserError."""
        from agent.errors import UserError

        names = frozenset(name for part in said.split(",") if (name := part.strip()))
        known = {name for one in tools for name in (one.server, f"{one.server}.{one.name}")}
        if names - known - {"all", "none"}:
            unknown = min(names - known - {"all", "none"})
            raise UserError(f"There is no tool {unknown} here; what there is: /tools")
        self.only = None if "all" in names else names - {"none"}
        self.off.clear()
