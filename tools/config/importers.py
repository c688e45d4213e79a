"""Finds the MCP servers that the person has configured in other programs, and plans their import."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.errors import describe_cause
from tools.config import edit
from tools.config.file import load_json, servers_table
from tools.config.servers import ConfigError
from tools.sanitize import clean_text

IMPORTED_KEYS = (
    *("type", "command", "args", "env", "cwd", "url", "httpUrl", "headers", "oauth"),
    *("enabled", "required", "disabled", "enabled_tools", "disabled_tools"),
    *("timeout", "startup_timeout_sec", "tool_timeout_sec"),
)
"""Keys of an entry that are imported; what another program may do without asking is not."""
MAX_BYTES = 64 << 20
"""Largest file that is read: Claude Code keeps much else in the one with its servers."""
DESKTOP_FILE = "claude_desktop_config.json"
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.S)
"""A string, which is kept, or VS Code's extensions of JSON: comments and trailing commas."""
_INPUT = re.compile(r"\$\{input:([^}]*)\}")


@dataclass
class ClientServers:
    """The servers in one configuration file of another MCP client."""

    client: str
    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def find_client_servers(home: Path) -> Iterator[ClientServers]:
    """Read the configuration files below a home folder, one at a time."""
    for client, path in _config_paths(home):
        if not path.is_file():
            continue
        source = ClientServers(client, path)
        try:
            servers = _read_codex(path) if path.suffix == ".toml" else _read_json(path)
        except ConfigError as error:
            source.problems.append(str(error))
            servers = {}
        for name, entry in servers.items():
            if isinstance(entry, dict) and any(map(entry.get, ("command", "url", "httpUrl"))):
                imported = {key: entry[key] for key in IMPORTED_KEYS if entry.get(key)}
                source.entries[name] = _inputs_to_variables(imported)
            else:
                source.problems.append(f"{path}: {name!r} has neither a command nor a url")
        yield source


def _config_paths(home: Path) -> Iterator[tuple[str, Path]]:
    folders = [home / ".config"]
    if sys.platform == "darwin":
        folders.insert(0, home / "Library/Application Support")
    elif roaming := os.environ.get("APPDATA"):
        folders.insert(0, Path(roaming))
    for folder in folders:
        yield "Claude Desktop", folder / "Claude" / DESKTOP_FILE
    yield "Claude Code", home / ".claude.json"
    yield "Cursor", home / ".cursor/mcp.json"
    for folder in folders:
        yield "VS Code", folder / "Code/User/mcp.json"
    yield "Windsurf", home / ".codeium/windsurf/mcp_config.json"
    yield "Gemini CLI", home / ".gemini/settings.json"
    yield "LM Studio", home / ".lmstudio/mcp.json"
    yield "Codex", home / ".codex/config.toml"


def _inputs_to_variables(value: Any) -> Any:
    """Replace what VS Code asks its person for, ``${input:api-key}``, by a variable, ``${API_KEY}``."""
    match value:
        case str():
            return _INPUT.sub(lambda match: f"${{{_variable_name(match[1])}}}", value)
        case list():
            return [_inputs_to_variables(item) for item in value]
        case dict():
            return {key: _inputs_to_variables(item) for key, item in value.items()}
    return value


def _variable_name(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).upper()
    return name if name[:1].isalpha() else f"_{name}"


def _read_json(path: Path) -> dict[str, Any]:
    """Return the servers for all folders and for single ones (Claude Code). Raises ConfigError."""
    data = load_json(path, lambda text: _without_comments(_without_comments(text)), MAX_BYTES)
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is not a JSON object")
    servers: dict[str, Any] = {}
    for holder in (data, *_objects(data.get("projects"))):
        table = servers_table(holder) or {}
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: its servers are not a JSON object")
        for name, entry in table.items():
            servers.setdefault(name, entry)
    return servers


def _without_comments(text: str) -> str:
    """Blank comments and last commas, also before a comment; all else keeps line and column."""
    return _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)


def _objects(value: Any) -> list[dict[str, Any]]:
    return (
        [item for item in value.values() if isinstance(item, dict)]
        if isinstance(value, dict)
        else []
    )


def _read_codex(path: Path) -> dict[str, Any]:
    """Return the servers of Codex's TOML as entries of an mcp.json. Raises ConfigError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {describe_cause(error)}") from None
    servers = data.get("mcp_servers", {})
    if not isinstance(servers, dict):
        raise ConfigError(f"{path}: its servers are not a TOML table")
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


@dataclass
class ImportPlan:
    """Other programs' servers, compared with those that the person already has."""

    entries: dict[str, Any] = field(default_factory=dict)
    """The new ones, as ``mcpServers`` entries by name."""
    lines: list[str] = field(default_factory=list)
    """One line a server: its command line, or why it is left out."""
    problems: list[str] = field(default_factory=list)
    """Entries and files that could not be read."""


def plan_import(home: Path, path: Path) -> ImportPlan:
    """Compare other programs' servers below ``home`` with those of ``path``. Raises ConfigError."""
    known = edit.server_names(path)
    plan = ImportPlan()
    for source in find_client_servers(home):
        for name, entry in source.entries.items():
            if name in known or name in plan.entries:
                about = f"skipped: you have a server of that name ({source.client})"
            else:
                plan.entries[name] = entry
                about = f"{clean_text(edit.describe_entry(entry))}  ({source.client})"
            plan.lines.append(f"{clean_text(name)}: {about}")
        plan.problems += source.problems
    return plan
