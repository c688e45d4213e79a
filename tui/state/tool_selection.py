"""Which of the available tools the conversation's turns may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agent.errors import UserError

if TYPE_CHECKING:
    from tools.types import Tool


class ToolSelection:
    """The person's selection, at first all tools; by names of servers and ``server.tool``."""

    def __init__(self) -> None:
        self.only: frozenset[str] | None = None
        """The selected names; None selects everything."""
        self.disabled: set[str] = set()
        """``server.tool`` of single tools that are switched off."""

    def includes(self, tool: Tool) -> bool:
        name = f"{tool.server}.{tool.name}"
        selected = self.only is None or not self.only.isdisjoint((tool.server, name))
        return selected and name not in self.disabled

    def selected(self, tools: Sequence[Tool]) -> tuple[Tool, ...] | None:
        """The selected tools; None for all, including those of servers that connect later."""
        if self.only is None and not self.disabled:
            return None
        return tuple(tool for tool in tools if self.includes(tool))

    def select(self, argument: str, tools: Iterable[Tool]) -> None:
        """Select ``all``, ``none`` or comma-separated names of ``tools``. Raises UserError."""
        names = frozenset(name for part in argument.split(",") if (name := part.strip()))
        known = {name for tool in tools for name in (tool.server, f"{tool.server}.{tool.name}")}
        if names - known - {"all", "none"}:
            unknown = min(names - known - {"all", "none"})
            raise UserError(f"There is no tool {unknown} here; what there is: /tools")
        self.only = None if "all" in names else names - {"none"}
        self.disabled.clear()
