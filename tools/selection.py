"""Selects the servers and tools that take part: ``--tools all|none|NAME,…``."""

from collections.abc import Iterator
from dataclasses import replace

from tools.config.servers import ConfigError, ServerConfig
from tools.sanitize import identifier


def select_servers(option: str, servers: list[ServerConfig]) -> list[ServerConfig]:
    """The servers named, each with only its named tools where a name was ``server.tool``. ``all``:
    every server, built-in ones with their ``default_tools``. Raises ConfigError."""
    names = [name.strip() for name in option.split(",") if name.strip()]
    if names == ["none"]:
        return []
    selected: dict[str, set[str] | None] = {}
    for name in names:
        matches = _default_tools(servers) if name == "all" else [_match(name, servers)]
        for server, tools in matches:
            before = selected.get(server.name, set())
            selected[server.name] = None if tools is None or before is None else before | tools
    return [_restricted(each, selected[each.name]) for each in servers if each.name in selected]


def unselected_names(servers: list[ServerConfig], selected: list[ServerConfig]) -> frozenset[str]:
    """Names of unselected tools as the model writes them; for a server, its name prefix."""
    by_name = {server.name: server for server in selected}
    names = {identifier(server.name) for server in servers if server.name not in by_name}
    for server in servers:
        restricted = by_name.get(server.name)
        for tool in server.builtin.tools if server.builtin else ():
            if restricted is None or not restricted.offers(tool.name):
                names.add(tool.model_name or f"{identifier(server.name)}__{tool.name}")
    return frozenset(names)


def _default_tools(servers: list[ServerConfig]) -> Iterator[tuple[ServerConfig, set[str] | None]]:
    """Yield what ``all`` stands for: servers with the names of their tools; None: all tools."""
    for server in servers:
        tools = set(server.builtin.default_tools) if server.builtin else None
        if server.builtin and tools == {tool.name for tool in server.builtin.tools}:
            tools = None
        if tools is None or tools:
            yield server, tools


def _match(name: str, servers: list[ServerConfig]) -> tuple[ServerConfig, set[str] | None]:
    """Return the server that a name stands for, and which of its tools; None: all tools."""
    for server in servers:
        names = [server.name, *([server.builtin.alias] if server.builtin else [])]
        own = {tool.name for tool in server.builtin.tools} if server.builtin else None
        if name in names:
            return server, None
        for prefix in names:
            tool_name = name.removeprefix(f"{prefix}.")
            if tool_name != name and (own is None or tool_name in own):
                return server, {tool_name}
    known = ", ".join(server.builtin.alias if server.builtin else server.name for server in servers)
    raise ConfigError(f"--tools: no server or tool is called {name!r}; known: {known or 'none'}")


def _restricted(server: ServerConfig, tools: set[str] | None) -> ServerConfig:
    if tools is None:
        return server
    if server.enabled_tools is not None:
        tools = {tool for tool in tools if server.offers(tool)}
    return replace(server, enabled_tools=tuple(sorted(tools)))
