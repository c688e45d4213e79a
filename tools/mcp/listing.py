"""Reads a server's lists: its tools, resources and prompts."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import mcp.types as T
from mcp import Client, MCPError

from tools.mcp.mending import ResultMender
from tools.sanitize import clean_line, clean_schema, clean_text, is_single_line
from tools.types import UNKNOWN_LABELS, Label, Prompt, Resource, Tool

MAX_PAGES = 100
"""Pages of one list: a paginator that never ends must not hang the start."""
MAX_TOOLS = 5000
"""Tools of one server: no prompt has room for more, and each takes memory."""
LIST_RESOURCES, READ_RESOURCE = "list_resources", "read_resource"
"""Names of the tools through which the model reads a server's resources."""

PageT = TypeVar("PageT", bound=T.PaginatedResult)
log = logging.getLogger(__name__)

UNSUPPORTED_LIST_ERRORS = (MCPError, ValueError)
"""Exceptions of a request for a list that the server does not have."""


async def list_tools(
    client: Client, server: str, mender: ResultMender
) -> tuple[list[Tool], frozenset[str]]:
    """All tools, and the names of those that we add for resources. ``mender``: gets why tools are left
    out. Raises MCPError, ValueError."""
    definitions: dict[str, T.Tool] = {}
    mender.skipped.clear()
    try:
        async for page in _pages(client.list_tools):
            for tool in page.tools:
                if why := _unusable(tool, definitions):
                    mender.skip(tool.name, why)
                else:
                    definitions[tool.name] = tool
            if len(definitions) > MAX_TOOLS:
                raise ValueError(f"it lists more than {MAX_TOOLS:,} tools")
    except MCPError as error:
        if client.server_capabilities.tools is not None or error.code != T.METHOD_NOT_FOUND:
            raise  # else it has prompts or resources, and no tools
    tools = [
        Tool(
            server=server,
            name=tool.name,
            description=clean_text(tool.description or tool.title or ""),
            parameters=clean_schema(tool.input_schema),
            read_only=bool(tool.annotations and tool.annotations.read_only_hint),
            labels=_labels(tool.annotations),
        )
        for tool in definitions.values()
    ]
    added: list[Tool] = []
    if await _has_resources(client):
        added = [tool for tool in _resource_tools(server) if tool.name not in definitions]
    return tools + added, frozenset(tool.name for tool in added)


def _unusable(tool: T.Tool, known: Mapping[str, T.Tool]) -> str:
    """Return why a tool is left out: a clause; empty: it is not."""
    if not is_single_line(tool.name):
        return "its name is not a line of text"  # it could forge lines where it is listed
    if tool.name in known:
        return "another one has the same name"
    if tool.execution and tool.execution.task_support == "required":
        return "it can only be run as a task, which MCP no longer has"
    match tool.meta:
        case {"ui": {"visibility": [*audiences]}} if audiences and "model" not in audiences:
            return "it is for the server's own user interface"
    return ""


def _labels(annotations: T.ToolAnnotations | None) -> frozenset[Label]:
    """The labels from a tool's ``openWorldHint``. Its default is true, but most servers say nothing:
    their calls count as sending where an argument is an address."""
    match annotations and annotations.open_world_hint:
        case True:
            return UNKNOWN_LABELS | {"sends"}
        case False:
            return UNKNOWN_LABELS - {"untrusted"}
    return UNKNOWN_LABELS


def _resource_tools(server: str) -> Iterable[Tool]:
    """Yield the tools that read resources; short, since every prompt pays for them."""
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    uri = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
    yield Tool(server, LIST_RESOURCES, f"List {clean_text(server)}'s resources.", nothing, "", True)
    yield Tool(server, READ_RESOURCE, "Read one of them.", uri, "", True)


async def _has_resources(client: Client) -> bool:
    if client.server_capabilities.resources is None:
        return False
    try:
        if (await client.list_resources()).resources:
            return True
        return bool((await client.list_resource_templates()).resource_templates)
    except UNSUPPORTED_LIST_ERRORS:
        return False


async def list_resources(client: Client) -> list[Resource]:
    """Return the resources and after them the templates of resources; empty without any."""
    if client.server_capabilities.resources is None:
        return []
    resources = [
        _resource(resource, str(resource.uri))
        async for page in _pages(client.list_resources)
        for resource in page.resources
        if not str(resource.uri).startswith("ui://")  # a page of its user interface
    ]
    with contextlib.suppress(*UNSUPPORTED_LIST_ERRORS):
        resources += [
            _resource(template, template.uri_template, template=True)
            for page in [page async for page in _pages(client.list_resource_templates)]
            for template in page.resource_templates
        ]
    return [each for each in resources if _has_proper_names(each.uri)]


def _resource(about: T.Resource | T.ResourceTemplate, uri: str, template: bool = False) -> Resource:
    description, mime = about.description or "", about.mime_type or ""
    name = clean_line(about.name)
    size = getattr(about, "size", None)
    return Resource(uri, name, clean_line(description), clean_line(mime), template, size)


async def read_resource(client: Client, uri: str) -> list[dict[str, Any]]:
    """Return the contents of a resource as MCP blocks."""
    parts = (await client.read_resource(uri)).contents
    return [
        {"type": "resource", "resource": p.model_dump(mode="json", by_alias=True)} for p in parts
    ]


async def list_prompts(client: Client) -> list[Prompt]:
    """Return the prompts; empty if the server has none."""
    if client.server_capabilities.prompts is None:
        return []
    return [
        Prompt(
            prompt.name,
            clean_line(prompt.description or ""),
            tuple((a.name, bool(a.required)) for a in prompt.arguments or ()),
        )
        async for page in _pages(client.list_prompts)
        for prompt in page.prompts
        if _has_proper_names(prompt.name, *(a.name for a in prompt.arguments or ()))
    ]


async def get_prompt(
    client: Client, name: str, arguments: dict[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages of a prompt: pairs of a role and an MCP block."""
    return [
        (message.role, message.content.model_dump(mode="json", by_alias=True, exclude_none=True))
        for message in (await client.get_prompt(name, arguments)).messages
    ]


def format_resources(resources: Iterable[Resource]) -> str:
    lines = []
    for resource in resources:
        about = ", ".join(filter(None, (resource.name, resource.mime, resource.description)))
        lines.append(f"{resource.uri}  ({about})" if about else resource.uri)
    return "\n".join(lines) or "No resources."


async def _pages(fetch: Callable[..., Awaitable[PageT]]) -> AsyncIterator[PageT]:
    cursor = None
    for _ in range(MAX_PAGES):
        page = await fetch(cursor=cursor)
        yield page
        if not (cursor := page.next_cursor):
            return


def _has_proper_names(*names: str) -> bool:
    """Return whether names can forge no lines where they are listed; no ordinary server has others."""
    if all(map(is_single_line, names)):
        return True
    log.warning("left out for its name: %.100r", names)
    return False
