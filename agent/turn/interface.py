"""The interfaces that turns come through, and what each of them expects of a turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interface:
    """Options of a turn by the interface that started it."""

    name: str
    prefetches: bool = True
    """The prompt of the conversation's next turn is prefilled once this one has ended."""
    waits_for_servers: bool = False
    """Optional MCP servers are waited for until they have started or failed."""
    reports_context: bool = False
    """``agent.context`` tells what fills the context."""


RUN = Interface("run", prefetches=False, waits_for_servers=True, reports_context=True)
APP = Interface("app", reports_context=True)
HTTP = Interface("http")
MCP = Interface("mcp")
SAMPLING = Interface("sampling", prefetches=False)
