"""Which of the servers and hands take part: ``--tools all|none|NAME,…``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tools.config import ConfigError, ServerConfig


def select(option: str, servers: Sequence[ServerConfig]) -> list[ServerConfig]:
    """The servers named, each with only its named tools where a name was ``server.tool``.

    What is not chosen is left out as if it were not configured. A tool that a server turns out not
    to have is reported by that server's state: only the running server knows its tools.
    """
    names = [name.strip() for name in option.split(",") if name.strip()]
    if names == ["all"]:
        return list(servers)
    if names == ["none"]:
        return []
    chosen: dict[str, set[str] | None] = {}
    for name in names:
        server, tool = _find(name, servers)
        if tool is None:
            chosen[server.name] = None
        else:
            wanted = chosen.setdefault(server.name, set())
            if wanted is not None:
                wanted.add(tool)
    return [_only(server, chosen[server.name]) for server in servers if server.name in chosen]


def _find(name: str, servers: Sequence[ServerConfig]) -> tuple[ServerConfig, str | None]:
    for server in servers:
        own = [server.name, *([server.hand.short] if server.hand else [])]
        if name in own:
            return server, None
        for prefix in own:
            tool = name.removeprefix(f"{prefix}.")
            if tool != name and (
                server.hand is None or any(tool == one.name for one in server.hand.tools)
            ):
                return server, tool
    known = ", ".join(server.hand.short if server.hand else server.name for server in servers)
    raise ConfigError(f"--tools: no server or tool is called {name!r}; known: {known or 'none'}")


def _only(server: ServerConfig, tools: set[str] | None) -> ServerConfig:
    if tools is None:
        return server
    if server.enabled_tools is not None:
        tools = tools & set(server.enabled_tools)
    return replace(server, enabled_tools=tuple(sorted(tools)))
