"""The tools that hold for a request: its own, and those that items (``additional_tools``,
``tool_search_output``) added from there on, also for requests that continue the response; and the MCP
servers that it brings: ``mcp`` tools with a ``server_url``. Reference:
https://platform.openai.com/docs/guides/tools-remote-mcp"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from agent.server.http.errors import ApiError, invalid
from agent.server.input.foreign_items import searched_tools
from agent.server.input.parsing import has_few_values
from agent.server.input.schemas import (
    CreateResponse,
    InputAdditionalTools,
    InputForeignItem,
    InputItem,
    RequestMcp,
    RequestNamespace,
    RequestOther,
    RequestTool,
)
from tools.config.servers import ConfigError, ServerConfig, clean_headers
from tools.types import ServerState

MAX_ADDED_TOOLS, MAX_ADDED_VALUES = 1_000, 15_000
"""Tools that the items of a whole history may add, and their JSON values: each request renders them."""
_TOOLS: TypeAdapter[list[RequestTool]] = TypeAdapter(list[RequestTool])
STARTUP_SECONDS = 15.0
"""Time that a request's server has to connect; the response waits for it."""
MAX_CLIENT_SERVERS = 16
"""MCP servers that one request may bring."""


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A tool that holds for a request."""

    param: str
    """Its path in the request, ``input`` for one of an earlier request."""
    tool: RequestTool
    is_own: bool = False
    """Whether it is one of the request's own ``tools``, which its response repeats."""


AddedTools = dict[tuple[str, str], RequestTool]
"""Tools by type and name."""


def add_tools(added: AddedTools, item: InputItem) -> None:
    """Add an item's tools that hold for later requests, too, but no MCP servers, with their secrets."""
    for name, declared in _tools_of(item, ""):
        if isinstance(declared.tool, RequestMcp):
            continue
        added[name] = _merged(added.get(name), declared.tool)


def declared_tools(
    request: CreateResponse, items: str | Sequence[InputItem], earlier: AddedTools
) -> list[DeclaredTool]:
    """The request's tools and those that items added, ``earlier`` too. Raises ApiError for too many."""
    added = {name: DeclaredTool("input", tool) for name, tool in earlier.items()}
    requested = {_name(tool) for tool in request.tools or ()}
    for index, item in enumerate(() if isinstance(items, str) else items):
        for name, declared in _tools_of(item, f"input[{index}]"):
            if name in requested and getattr(item, "execution", None) == "server":
                continue  # this server's search has declared it, in its result
            known = added[name].tool if name in added else None
            added[name] = DeclaredTool(declared.param, _merged(known, declared.tool))
    own = [
        DeclaredTool(f"tools[{index}]", tool, is_own=True)
        for index, tool in enumerate(request.tools or ())
        if _name(tool) not in added
    ]
    tools = [declared.tool for declared in added.values()]
    number = sum(len(tool.tools) if isinstance(tool, RequestNamespace) else 1 for tool in tools)
    if number > MAX_ADDED_TOOLS or not has_few_values(tools_json(tools), MAX_ADDED_VALUES):
        message = (
            f"The input items add more than {MAX_ADDED_TOOLS:,} tools, or tools of more than"
            f" {MAX_ADDED_VALUES:,} JSON values."
        )
        raise invalid("input", message, "array_above_max_length")
    return [*own, *added.values()]


def tools_json(tools: Iterable[RequestTool]) -> list[dict[str, Any]]:
    return [tool.model_dump(exclude_none=True) for tool in tools]


def tools_from_json(stored: Sequence[dict[str, Any]]) -> AddedTools:
    return {_name(tool): tool for tool in _TOOLS.validate_python(stored)}


def _tools_of(item: InputItem, param: str) -> Iterable[tuple[tuple[str, str], DeclaredTool]]:
    tools: Sequence[RequestTool] = ()
    if isinstance(item, InputAdditionalTools):
        tools = item.tools
    elif isinstance(item, InputForeignItem) and item.type == "tool_search_output":
        tools = searched_tools(item)
    for index, tool in enumerate(tools):
        yield _name(tool), DeclaredTool(f"{param}.tools[{index}]", tool)


def _name(tool: RequestTool) -> tuple[str, str]:
    match tool:
        case RequestMcp(server_label=name):
            return "mcp", name
        case RequestOther():
            return tool.type, ""
        case _:
            # A function and a custom tool of one name are the same to the model.
            return "namespace" if isinstance(tool, RequestNamespace) else "function", tool.name


def _merged(known: RequestTool | None, tool: RequestTool) -> RequestTool:
    """A namespace with the tools that an earlier one of its name had, too; any other as it is."""
    if not (isinstance(known, RequestNamespace) and isinstance(tool, RequestNamespace)):
        return tool
    if len(known.tools) > MAX_ADDED_TOOLS:
        return known  # which is refused in the end
    inner = {part.name: part for part in (*known.tools, *tool.tools)}
    return tool.model_copy(update={"tools": list(inner.values())})


def client_servers(
    declared: Sequence[DeclaredTool],
    operator_servers: Collection[str],
    *,
    allowed: bool,
    private_urls: bool,
) -> list[ServerConfig]:
    """Configure the client's servers that are not among ``operator_servers``. ``allowed``: it may bring
    any. ``private_urls``: also at addresses that are not public. Raises ApiError."""
    configs = []
    for one in declared:
        tool, param = one.tool, one.param
        if isinstance(tool, RequestMcp) and tool.connector_id is not None:
            message = (
                "There are no connectors here, they are services of OpenAI's: name an MCP server by"
                " its 'server_url'."
            )
            raise invalid(f"{param}.connector_id", message, "unsupported_parameter")
        if isinstance(tool, RequestMcp) and tool.server_label not in operator_servers:
            configs.append(_client_server(tool, operator_servers, param, private_urls))
    if configs and not allowed:
        message = (
            "This server does not connect to clients' MCP servers: it is reachable from other machines"
            " and was started without --client-servers."
        )
        raise invalid("tools", message, "client_servers_not_allowed")
    if len(configs) > MAX_CLIENT_SERVERS:
        raise invalid("tools", f"A request may bring {MAX_CLIENT_SERVERS} MCP servers at most.")
    return configs


def refuse_unauthorized(
    declared: Sequence[DeclaredTool], states: Iterable[ServerState], known: Container[str]
) -> None:
    """Refuse servers that want a login first, unless their tools are ``known``. Raises ApiError."""
    refused = (state for state in states if state.refused and state.name not in known)
    refusals = {state.name: state.error for state in refused}
    for one in declared:
        if isinstance(one.tool, RequestMcp) and (label := one.tool.server_label) in refusals:
            message = (
                f"The tools of the MCP server '{label}' cannot be listed: it {refusals[label]}."
            )
            raise ApiError(424, message, code="http_error", param=one.param)


def _client_server(
    tool: RequestMcp, operator_servers: Collection[str], param: str, private_urls: bool
) -> ServerConfig:
    label, url = tool.server_label, tool.server_url or ""
    if "://" in url and not _is_http(url):
        message = f"'{param}.server_url' is not an http or https URL."
        raise invalid(f"{param}.server_url", message)
    if "://" not in url:  # a placeholder, for a server of the operator's
        names = ", ".join(operator_servers)
        known = f"it has {names}" if names else "it exposes none (--tools names them)"
        message = f"There is no MCP server called {label!r} here; {known}."
        raise invalid(f"{param}.server_label", message, "mcp_server_not_found")
    headers = tool.headers or {}
    if not isinstance(headers, dict) or not all(
        isinstance(text, str) for pair in headers.items() for text in pair
    ):
        raise invalid(f"{param}.headers", f"'{param}.headers' must map names to strings.")
    if tool.authorization is not None:
        if not isinstance(tool.authorization, str):
            raise invalid(f"{param}.authorization", f"'{param}.authorization' must be a string.")
        headers = {**headers, "Authorization": f"Bearer {tool.authorization.strip()}"}
    try:
        headers = clean_headers(headers)
    except ConfigError as error:
        field = "headers" if tool.authorization is None else "authorization"
        raise invalid(f"{param}.{field}", f"'{param}': {error}.") from None
    return ServerConfig(
        label,
        url=url,
        headers=headers,
        client_network="private" if private_urls else "public",
        startup_timeout_sec=STARTUP_SECONDS,
        trusted=True,
    )


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets, or an invalid port
        return False
