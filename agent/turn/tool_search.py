"""Tool search: where definitions would take much of the context, prompts have one tool that finds the
others. What it finds is declared in its result, so that the cached prefix of the prompt stays, and can
be called like any other tool."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from agent.formats.protocol import Format, FunctionTool
from agent.turn.options import TurnOptions, declare_tool, server_instructions_section
from tools.builtin_server import object_schema
from tools.mcp.host import Host
from tools.sanitize import clean_line
from tools.tool_index import ToolIndex
from tools.types import Tool, ToolResult

SEARCH_NAME = "tool_search"
"""The name of the tool that searches, and of its server, which is none."""
CONTEXT_SHARE = 10
"""Servers' tools that take more than this part of the context are searched."""
MAX_FOUND = 5
MAX_NAMED_SERVERS = 60
_PREFACE = "\n\nWhat their servers say of how to use them:"
_sizes: deque[tuple[Format, tuple[Tool, ...], int]] = deque(maxlen=8)
"""Tools that were measured last: a prompt is made at each pause in typing."""


class ToolSearch:
    """The search of one turn."""

    def __init__(
        self, form: Format, shown: Sequence[Tool], tools: Sequence[Tool], options: TurnOptions
    ) -> None:
        """``shown``: what the prompt declares. ``tools``: those that are found instead."""
        self.functions = [function for function in options.functions if function.deferred]
        self._form, self._tools, self._told = form, tools, set[str]()
        groups = Counter([tool.server for tool in tools])
        groups.update(function.namespace or "functions" for function in self.functions)
        names = [f"{clean_line(name)} ({count})" for name, count in groups.items()]
        more = ", …" if len(names) > MAX_NAMED_SERVERS else ""
        self._groups = f"{', '.join(names[:MAX_NAMED_SERVERS])}{more}"
        self.tool = Tool(
            SEARCH_NAME,
            "search",
            "Finds further tools by what they do. The result declares them; call them by these names"
            f" from then on. There are tools of: {self._groups}",
            object_schema(["query"], query="string"),
            SEARCH_NAME,
            read_only=True,
            labels=frozenset(),
        )
        self.shown = [*shown, self.tool]

    @cached_property
    def _index(self) -> ToolIndex:
        functions = [
            Tool(f.namespace or "", f.name, f.description, f.parameters) for f in self.functions
        ]
        return ToolIndex([*self._tools, *functions])

    async def run(self, arguments: str) -> tuple[ToolResult, list[dict[str, Any]]]:
        """Search, and return the result for the model and what was found as requests have it."""
        query = str(json.loads(arguments).get("query", ""))
        found = await asyncio.to_thread(lambda: self._index.search(query, MAX_FOUND))
        if not found:
            text = f"No tool has these words; try others. There are tools of: {self._groups}"
            return ToolResult(text), []
        tools = [self._tools[at] for at in found if at < len(self._tools)]
        functions = [
            self.functions[at - len(self._tools)] for at in found if at >= len(self._tools)
        ]
        declared = self._form.describe_functions([*map(declare_tool, tools), *functions])
        new = [tool for tool in tools if tool.server not in self._told]
        self._told.update(tool.server for tool in new)
        text = declared + server_instructions_section(new, _PREFACE)
        return ToolResult(text), [*_as_requested(tools, functions)]


def _as_requested(
    tools: Sequence[Tool], functions: Sequence[FunctionTool]
) -> Iterator[dict[str, Any]]:
    """Yield the ``tools`` of a request that has these and no others."""
    servers: dict[str, list[str]] = {}
    namespaces: dict[str, list[dict[str, Any]]] = {}
    for tool in tools:
        servers.setdefault(tool.server, []).append(tool.name)
    for server, names in servers.items():
        yield {"type": "mcp", "server_label": server, "allowed_tools": names}
    for f in functions:
        about: dict[str, Any] = {"name": f.name, "description": f.description}
        if f.custom:
            about |= {"type": "custom", "defer_loading": True}
        else:
            about |= {"type": "function", "parameters": f.parameters, "strict": f.strict}
            about |= {"defer_loading": True}
        if f.namespace is None:
            yield about
        else:
            namespaces.setdefault(f.namespace, []).append(about)
    for name, inner in namespaces.items():
        yield {"type": "namespace", "name": name, "description": "", "tools": inner}


def find_search(
    options: TurnOptions,
    form: Format,
    tools: Collection[Tool],
    host: Host,
    context_length: int,
) -> ToolSearch | None:
    """The search of a turn that may use these tools; None: the prompt declares all of them."""
    taken = {f.model_name for f in options.functions} | {tool.model_name for tool in tools}
    if SEARCH_NAME in taken:
        return None
    servers: Collection[str] = options.deferred_servers
    if options.tool_search != "never":
        servers = {tool.server for tool in tools} - {builtin.name for builtin in host.builtins}
    hidden = [tool for tool in tools if tool.server in servers]
    if options.tool_search == "auto":
        share = _measure(form, options, hidden) * CONTEXT_SHARE
        hidden = hidden if share > context_length else []
        servers = servers if hidden else ()
    if not hidden and not any(function.deferred for function in options.functions):
        return None
    return ToolSearch(form, [tool for tool in tools if tool.server not in servers], hidden, options)


def shown_tools(
    options: TurnOptions, form: Format, host: Host, context_length: int
) -> Sequence[Tool]:
    """The tools that the prompt of a next turn declares."""
    tools = host.tools() if options.tools is None else options.tools
    search = find_search(options, form, tools, host, context_length)
    return search.shown if search else tools


def _measure(form: Format, options: TurnOptions, tools: Sequence[Tool]) -> int:
    for measured, of, size in _sizes:
        if measured is form and of == tuple(tools):
            return size
    size = options.total_tool_tokens(form, tools) if tools else 0
    _sizes.append((form, tuple(tools), size))
    return size
