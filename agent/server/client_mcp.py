"""MCP servers that a request brings."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from agent.server.errors import ApiError, invalid
from agent.server.schemas import CreateResponse, RequestMcp
from tools.config.servers import ServerConfig

SECONDS = 15.0
"""So long such a server has to answer at first; a response waits for it."""
MOST = 16
"""Servers of one request."""


def guests(request: CreateResponse, servers: Collection[str], private: bool) -> list[ServerConfig]:
    """Those of the request's servers that the operator has not configured. Raises ApiError.

    ``servers``: the names that are the operator's. ``private``: they may lie at any address.
    """
    found = []
    for place, tool in enumerate(request.tools or ()):
        if isinstance(tool, RequestMcp) and tool.server_label not in servers:
            found.append(_guest(tool, servers, f"tools[{place}]", private))
    if len(found) > MOST:
        raise invalid("tools", f"A request may bring {MOST} MCP servers at most.")
    return found


def _guest(tool: RequestMcp, servers: Collection[str], param: str, private: bool) -> ServerConfig:
    label, url = tool.server_label, tool.server_url or ""
    try:
        parts = urlsplit(url)
        leads = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        leads = False
    if not leads:
        known = (
            f"it has {', '.join(servers)}" if servers else "it exposes none (--tools names them)"
        )
        message = f"There is no MCP server called {label!r} here; {known}."
        raise ApiError(400, message, code="mcp_server_not_found", param=f"{param}.server_label")
    headers = tool.headers or {}
    if not isinstance(headers, dict) or not all(
        isinstance(text, str) for pair in headers.items() for text in pair
    ):
        raise invalid(f"{param}.headers", f"'{param}.headers' maps names to strings.")
    if tool.authorization is not None:
        if not isinstance(tool.authorization, str):
            raise invalid(f"{param}.authorization", f"'{param}.authorization' is a string.")
        headers = {**headers, "Authorization": f"Bearer {tool.authorization}"}
    return ServerConfig(
        label,
        url=url,
        headers=headers,
        guest="private" if private else "public",
        startup_timeout_sec=SECONDS,
        trusted=True,
    )
