"""The MCP servers that other programs of this person have configured."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.config.servers import ConfigError, load

KEPT = (
    *("type", "command", "args", "env", "cwd", "url", "headers", "enabled", "required", "disabled"),
    *("timeout", "startup_timeout_sec", "tool_timeout_sec", "enabled_tools", "disabled_tools"),
)
"""Of an entry; what another program was allowed to do unasked is not taken over."""


@dataclass
class Found:
    client: str
    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def found(home: Path) -> Iterator[Found]:
    """What lies below this home folder, client by client."""
    for client, path in _places(home):
        if not path.is_file():
            continue
        one = Found(client, path)
        try:
            servers = _codex(path) if path.suffix == ".toml" else _json(path)
        except ConfigError as error:
            one.troubles.append(str(error))
            servers = {}
        for name, entry in servers.items():
            if isinstance(entry, dict) and (entry.get("command") or entry.get("url")):
                one.entries[name] = {key: entry[key] for key in KEPT if entry.get(key)}
            else:
                one.troubles.append(f"{path}: {name!r} has neither a command nor a url")
        yield one


def _places(home: Path) -> Iterator[tuple[str, Path]]:
    if sys.platform == "darwin":
        yield "Claude Desktop", home / "Library/Application Support/Claude" / DESKTOP
    elif roaming := os.environ.get("APPDATA"):
        yield "Claude Desktop", Path(roaming) / "Claude" / DESKTOP
    yield "Claude Desktop", home / ".config/Claude" / DESKTOP
    yield "Claude Code", home / ".claude.json"
    yield "Cursor", home / ".cursor/mcp.json"
    yield "LM Studio", home / ".lmstudio/mcp.json"
    yield "Codex", home / ".codex/config.toml"


DESKTOP = "claude_desktop_config.json"


def _json(path: Path) -> dict[str, Any]:
    """Servers for all folders, and for single ones (Claude Code)."""
    data = load(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is no JSON object")
    servers: dict[str, Any] = {}
    for holder in (data, *_objects(data.get("projects"))):
        for name, entry in (holder.get("mcpServers") or {}).items():
            servers.setdefault(name, entry)
    return servers


def _objects(value: Any) -> list[dict[str, Any]]:
    return (
        [one for one in value.values() if isinstance(one, dict)] if isinstance(value, dict) else []
    )


def _codex(path: Path) -> dict[str, Any]:
    """Its TOML, in the words of an mcp.json."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    servers = data.get("mcp_servers", {})
    return {name: _from_codex(entry) for name, entry in servers.items() if isinstance(entry, dict)}


def _from_codex(entry: dict[str, Any]) -> dict[str, Any]:
    env = dict(entry.get("env") or {})
    for variable in entry.get("env_vars") or ():
        if isinstance(variable, str):
            env.setdefault(variable, f"${{{variable}}}")
    headers = dict(entry.get("http_headers") or {})
    for header, variable in (entry.get("env_http_headers") or {}).items():
        headers[header] = f"${{{variable}}}"
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    # False must not get lost among what is merely not there.
    disabled = {"disabled": True} if entry.get("enabled") is False else {}
    return {**entry, "env": env, "headers": headers, **disabled}
