"""Changing a person's mcp.json: what else is in it stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools import private_files
from tools.config.entry import given, origin, read_entry
from tools.config.servers import ConfigError, load, raw_servers


def names(path: Path) -> set[str]:
    """Of the servers in it. Raises ConfigError, as do these all."""
    return set(_servers(_read(path), path))


def put(path: Path, entries: Mapping[str, Any], *, replace: bool = False) -> None:
    """Add these; one of a name that is there only where it may be replaced."""
    data = _read(path)
    servers = _servers(data, path)
    for name, entry in entries.items():
        if name in servers and not replace:
            raise ConfigError(f"{path} has a server {name!r} already; --force replaces it")
        read_entry(name, entry, _Anything())
        servers[name] = entry
    _write(path, data)


def take(path: Path, name: str) -> None:
    """Remove it."""
    data = _read(path)
    servers = _servers(data, path)
    if servers.pop(name, None) is None:
        raise ConfigError(f"{path} has no server {name!r}; it has {', '.join(servers) or 'none'}")
    _write(path, data)


def shown(entry: Any) -> str:
    """An entry in one line, without the values of its environment and headers."""
    if not isinstance(entry, dict):
        return "not an object"
    kept = sorted(given(entry))
    return origin(entry) + (f"  [{', '.join(kept)}]" if kept else "")


class _Anything(dict[str, str]):
    """An environment in which everything is set: what is written is checked, not looked up."""

    def get(self, key: str, default: Any = None) -> Any:
        return "x"


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"mcpServers": {}}
    data = load(path)
    if not isinstance(data, dict):
        raise ConfigError(f'{path} has no "mcpServers" object')
    return data


def _servers(data: dict[str, Any], path: Path) -> dict[str, Any]:
    if raw_servers(data) is None:
        data["mcpServers"] = {}
    servers = raw_servers(data)
    if not isinstance(servers, dict):
        raise ConfigError(f'{path} has no "mcpServers" object')
    return servers


def _write(path: Path, data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    try:
        private_files.write(path, text)  # keys of services stand in it
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
