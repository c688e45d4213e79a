"""Which of the servers and hands take part: ``--tools all|none|NAME,…``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tools.config.servers import ConfigError, ServerConfig
from tools.sanitize import word


def select(option: str, servers: Sequence[ServerConfig]) -> list[ServerConfig]:
    """The servers named, each with only its named tools where a name was ``server.tool``.

    ``all``: every server, and of the hands what is not offered by name only (``hand.default``).
    What is not chosen is left out as if it were not configured. A tool that a server turns out not
    to have is reported by that server's state: only the running server knows its tools.
    """
    names = [name.strip() for name in option.split(",") if name.strip()]
    if names == ["none"]:
        return []
    chosen: dict[str, set[str] | None] = {}
    for name in names:
        for server, tools in _all(servers) if name == "all" else [_find(name, servers)]:
            before = chosen.get(server.name, set())
            chosen[server.name] = None if tools is None or before is None else before | tools
    return [_only(server, chosen[server.name]) for server in servers if server.name in chosen]


def left_out(servers: Sequence[ServerConfig], chosen: Sequence[ServerConfig]) -> frozenset[str]:
    """What ``select`` did not choose, in the model's words: names of tools, or what those of a whole
    server begin with."""
    kept = {server.name: server for server in chosen}
    found = {word(server.name) for server in servers if server.name not in kept}
    for server in servers:
        own = kept.get(server.name)
        for tool in server.hand.tools if server.hand else ():
            if own is None or not own.offers(tool.name):
                found.add(tool.model_name or f"{word(server.name)}__{tool.name}")
    return frozenset(found)


def _all(servers: Sequence[ServerConfig]) -> Iterator[tuple[ServerConfig, set[str] | None]]:
    for server in servers:
        tools = set(server.hand.default) if server.hand else None
        if server.hand and tools == {tool.name for tool in server.hand.tools}:
            tools = None
        if tools is None or tools:
            yield server, tools


def _find(name: str, servers: Sequence[ServerConfig]) -> tuple[ServerConfig, set[str] | None]:
    """A server, and which of its tools; None: all."""
    for server in servers:
        own = [server.name, *([server.hand.short] if server.hand else [])]
        if name in own:
            return server, None
        for prefix in own:
            tool = name.removeprefix(f"{prefix}.")
            if tool != name and (
                server.hand is None or any(tool == one.name for one in server.hand.tools)
            ):
                return server, {tool}
    known = ", ".join(server.hand.short if server.hand else server.name for server in servers)
    raise ConfigError(f"--tools: no server or tool is called {name!r}; known: {known or 'none'}")


def _only(server: ServerConfig, tools: set[str] | None) -> ServerConfig:
    if tools is None:
        return server
    if server.enabled_tools is not None:
        tools = tools & set(server.enabled_tools)
    return replace(server, enabled_tools=tuple(sorted(tools)))
