"""MCP servers that a request brings: ``mcp`` tools with a ``server_url``. Reference:
https://platform.openai.com/docs/guides/tools-remote-mcp"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from urllib.parse import urlsplit

from agent.server.http.errors import ApiError, invalid
from agent.server.input.declared_tools import DeclaredTool
from agent.server.input.schemas import RequestMcp
from tools.config.servers import ServerConfig
from tools.types import ServerState

STARTUP_SECONDS = 15.0
"""Time that such a server has to connect; the response waits for it."""
MAX_CLIENT_SERVERS = 16
"""In one request."""


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
    refusals = {state.name: state.error for state in states if state.refused}
    for one in declared:
        if not isinstance(one.tool, RequestMcp) or one.tool.server_label in known:
            continue
        if (label := one.tool.server_label) in refusals:
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
    headers = dict(tool.headers or {})
    if tool.authorization is not None:
        headers["Authorization"] = f"Bearer {tool.authorization}"
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
