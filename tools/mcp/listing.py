"""What a server offers: its tools, resources and prompts, read from its lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

import mcp.types as T
from mcp import Client, MCPError

from tools.sanitize import clean, clean_schema
from tools.types import Prompt, Resource, Tool

MAX_PAGES = 100
"""Of one list: a paginator that never ends must not hang the start."""
MAX_TOOLS = 5000
"""No prompt has room for more, and each takes memory."""
LIST_RESOURCES, READ_RESOURCE = "list_resources", "read_resource"

Page = TypeVar("Page", bound=T.PaginatedResult)
NOT_THERE = (MCPError, ValueError)
"""What a list that a server does not have ends with."""


async def list_tools(client: Client, server: str) -> tuple[list[Tool], frozenset[str]]:
    """All of them, and the names of those that are ours, for its resources.

    Raises MCPError or ValueError (ValidationError is one).
    """
    found: dict[str, T.Tool] = {}
    try:
        async for page in _pages(lambda cursor: client.list_tools(cursor=cursor)):
            for tool in page.tools:
                found.setdefault(tool.name, tool)
            if len(found) > MAX_TOOLS:
                raise ValueError(f"it lists more than {MAX_TOOLS:,} tools")
    except MCPError as error:
        if client.server_capabilities.tools is not None or error.code != T.METHOD_NOT_FOUND:
            raise  # else it has prompts or resources, and no tools
    tools = [
        Tool(
            server=server,
            name=tool.name,
            description=clean(tool.description or tool.title or ""),
            parameters=clean_schema(tool.input_schema),
            read_only=bool(tool.annotations and tool.annotations.read_only_hint),
        )
        for tool in found.values()
        # Such a tool can only be run as a task, which the protocol no longer has.
        if not (tool.execution and tool.execution.task_support == "required")
    ]
    ours = []
    if await _has_resources(client):
        ours = [tool for tool in _resource_tools(server) if tool.name not in found]
    return tools + ours, frozenset(tool.name for tool in ours)


def _resource_tools(server: str) -> Iterable[Tool]:
    """How the model gets at resources; short, for each server that has some pays for them."""
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    one = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
    yield Tool(server, LIST_RESOURCES, f"List {clean(server)}'s resources.", nothing, "", True)
    yield Tool(server, READ_RESOURCE, "Read one of them.", one, "", True)


async def _has_resources(client: Client) -> bool:
    if client.server_capabilities.resources is None:
        return False
    try:
        if (await client.list_resources()).resources:
            return True
        return bool((await client.list_resource_templates()).resource_templates)
    except NOT_THERE:
        return False


async def list_resources(client: Client) -> list[Resource]:
    """Those with an address, then the templates; of a server without any, none."""
    if client.server_capabilities.resources is None:
        return []
    found = [
        Resource(str(one.uri), clean(one.name), clean(one.description or ""), one.mime_type or "")
        async for page in _pages(lambda cursor: client.list_resources(cursor=cursor))
        for one in page.resources
    ]
    try:
        templates = _pages(lambda cursor: client.list_resource_templates(cursor=cursor))
        pages = [page async for page in templates]
    except NOT_THERE:
        return found
    return found + [
        Resource(
            one.uri_template,
            clean(one.name),
            clean(one.description or ""),
            one.mime_type or "",
            True,
        )
        for page in pages
        for one in page.resource_templates
    ]


async def read_resource(client: Client, uri: str) -> list[dict[str, Any]]:
    """Its contents, as MCP blocks."""
    contents = (await client.read_resource(uri)).contents
    return [
        {"type": "resource", "resource": one.model_dump(mode="json", by_alias=True)}
        for one in contents
    ]


async def list_prompts(client: Client) -> list[Prompt]:
    if client.server_capabilities.prompts is None:
        return []
    return [
        Prompt(
            one.name,
            clean(one.description or ""),
            tuple((a.name, bool(a.required)) for a in one.arguments or ()),
        )
        async for page in _pages(lambda cursor: client.list_prompts(cursor=cursor))
        for one in page.prompts
    ]


async def get_prompt(
    client: Client, name: str, arguments: dict[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    """Its messages: the role, and the MCP block."""
    return [
        (message.role, message.content.model_dump(mode="json", by_alias=True, exclude_none=True))
        for message in (await client.get_prompt(name, arguments)).messages
    ]


def listing(resources: Iterable[Resource]) -> str:
    """As the model reads it: one a line."""
    lines = []
    for one in resources:
        about = ", ".join(filter(None, (one.name, one.mime, one.description)))
        lines.append(f"{one.uri}  ({about})" if about else one.uri)
    return "\n".join(lines) or "There are none."


async def _pages(fetch: Callable[[str | None], Awaitable[Page]]) -> AsyncIterator[Page]:
    cursor = None
    for _ in range(MAX_PAGES):
        page = await fetch(cursor)
        yield page
        if not (cursor := page.next_cursor):
            return
