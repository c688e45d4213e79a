"""Tool search: where definitions would take much of the context, prompts have one tool that finds the
others. Its results declare them, so that the cached prefix stays and they can be called."""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from agent.events import qualified_name
from agent.formats.protocol import Format, FunctionTool
from agent.turn.options import TurnOptions, declare_tool, server_instructions_section
from tools.builtin_server import object_schema
from tools.mcp.host import Host
from tools.sanitize import clean_line
from tools.tool_index import ToolIndex
from tools.types import Tool, ToolResult

SEARCH_NAME = "tool_search"
"""The name of the tool that searches, and of the server in its items."""
CONTEXT_SHARE = 10
"""Servers' tools that take more than this part of the context are searched."""
MAX_MATCHES = 5
MAX_NAMED_SERVERS = 60
_PREFACE = "\n\nTheir servers say how to use them:"
_sizes: deque[tuple[Format, tuple[Tool, ...], int]] = deque(maxlen=8)
"""Tools that were measured last: a prompt is made at each pause in typing."""


class ToolSearch:
    """The search of one turn."""

    def __init__(
        self, form: Format, declared: Sequence[Tool], tools: Sequence[Tool], options: TurnOptions
    ) -> None:
        """``declared``: what the prompt declares. ``tools``: those that are searched."""
        self.functions = [function for function in options.functions if function.deferred]
        self._form, self._tools, self._explained = form, tools, set[str]()
        self._searching = asyncio.Lock()
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
        self.prompt_tools = [*declared, self.tool]

    @cached_property
    def _index(self) -> ToolIndex:
        functions = [
            Tool(f.namespace or "", f.name, f.description, f.parameters) for f in self.functions
        ]
        return ToolIndex([*self._tools, *functions])

    async def run(
        self, arguments: str, offered: Sequence[dict[str, Any]] = ()
    ) -> tuple[ToolResult, list[dict[str, Any]]]:
        """Search, and return the result for the model and what matches of a request's tools."""
        query = str(json.loads(arguments).get("query", ""))
        async with self._searching:  # a generation may have several searches
            matches = await asyncio.to_thread(lambda: self._index.search(query, MAX_MATCHES))
        if not matches:
            text = f"No tool has these words; try others. There are tools of: {self._groups}"
            return ToolResult(text), []
        count = len(self._tools)
        tools = [self._tools[at] for at in matches if at < count]
        functions = [self.functions[at - count] for at in matches if at >= count]
        declared = self._form.describe_functions([*map(declare_tool, tools), *functions])
        new = [tool for tool in tools if tool.server not in self._explained]
        self._explained.update(tool.server for tool in new)
        text = declared + server_instructions_section(new, _PREFACE)
        return ToolResult(text), [*_requested(offered, tools, functions)]


def _requested(
    offered: Sequence[dict[str, Any]], tools: Sequence[Tool], functions: Sequence[FunctionTool]
) -> Iterator[dict[str, Any]]:
    """Yield the definitions of what matches among those of the request."""
    names = {function.model_name for function in functions}
    for each in offered:
        group, inner = each.get("name"), each.get("tools") or ()
        inner = [part for part in inner if qualified_name(part["name"], group) in names]
        matches = [tool.name for tool in tools if tool.server == each.get("server_label")]
        if inner:
            yield {**each, "tools": inner}
        elif matches:
            yield {"type": "mcp", "server_label": each["server_label"], "allowed_tools": matches}
        elif each["type"] in ("function", "custom") and group in names:
            yield each


def find_search(
    options: TurnOptions, form: Format, tools: Collection[Tool], host: Host, context_length: int
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
        is_long = _measure(form, options, hidden) * CONTEXT_SHARE > context_length
        hidden = hidden if is_long else []
        servers = servers if hidden else ()
    if not hidden and not any(function.deferred for function in options.functions):
        return None
    return ToolSearch(form, [tool for tool in tools if tool.server not in servers], hidden, options)


def prompt_tools(
    options: TurnOptions, form: Format, host: Host, context_length: int
) -> Sequence[Tool]:
    """The tools that the prompt of a next turn declares."""
    tools = host.tools() if options.tools is None else options.tools
    search = find_search(options, form, tools, host, context_length)
    return search.prompt_tools if search else tools


def _measure(form: Format, options: TurnOptions, tools: Sequence[Tool]) -> int:
    for measured, of, size in _sizes:
        if measured is form and of == tuple(tools):
            return size
    size = options.total_tool_tokens(form, tools) if tools else 0
    _sizes.append((form, tuple(tools), size))
    return size
