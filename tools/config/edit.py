"""Edits a person's mcp.json: what else is in it stays as it is."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.util import private_files
from tools.config.entry import command_line, env_and_headers, read_entry
from tools.config.file import load_json, servers_table, without_comments
from tools.config.servers import ConfigError, ServerConfig


def server_names(path: Path) -> set[str]:
    """Return the names of the servers in a file, which need not exist. Raises ConfigError."""
    return set(servers_table(_read(path)))


def add(path: Path, entries: Mapping[str, Any], *, replace: bool = False) -> None:
    """Add servers' entries by name; ``replace`` allows names that are there. Raises ConfigError."""
    with _changing(path) as servers:
        for name, entry in entries.items():
            if name in servers and not replace:
                raise ConfigError(
                    f"{path} has a server {name!r} already; --force before the name replaces it"
                )
            try:
                check(name, entry)
            except ConfigError as error:
                raise ConfigError(f"the server {name!r}: {error}") from error
            servers[name] = entry


def check(name: str, entry: Any) -> ServerConfig:
    """Read an entry as if all variables were set. Raises ConfigError."""
    return read_entry(name, entry, _AllVariablesSet())


def remove(path: Path, name: str) -> None:
    with _changing(path) as servers:
        if servers.pop(name, None) is None:
            known = ", ".join(servers) or "none"
            raise ConfigError(f"{path} has no server {name!r}; it has {known}")


def describe_entry(entry: Any) -> str:
    """Return an entry in one line, without the values of its environment and headers."""
    if not isinstance(entry, dict):
        return "not an object"
    names = sorted(env_and_headers(entry))
    return command_line(entry) + (f"  [{', '.join(names)}]" if names else "")


class _AllVariablesSet(dict[str, str]):
    """An environment in which every variable is set: an entry is checked, not looked up."""

    def get(self, key: str, default: Any = None) -> Any:
        return "x"


def _read(path: Path) -> dict[str, Any]:
    """Return what is in a file, with a table of servers, be it empty. Raises ConfigError."""
    try:
        data = load_json(path) if path.exists() else {}
    except ConfigError as error:
        load_json(path, without_comments)  # raises the same error, unless these are the reason
        raise ConfigError(
            f"{path} has comments or trailing commas, so change it by hand"
        ) from error
    if isinstance(data, dict) and servers_table(data) is None:
        data["mcpServers"] = {}
    if not isinstance(data, dict) or not isinstance(servers_table(data), dict):
        raise ConfigError(f'{path} has no "mcpServers" object')
    return data


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[dict[str, Any]]:
    """The servers of a file, which is written when the block ends. Raises ConfigError."""
    try:
        with private_files.locked(path):
            data = _read(path)
            yield servers_table(data)
            private_files.write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
