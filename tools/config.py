"""Which servers there are: their settings, and where these are read from."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.hands import Hand


class ConfigError(Exception):
    """A setting is wrong; the message is one sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One MCP server: a ``command`` (stdio), a ``url``, or a built-in ``hand`` (in this process)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables that a server inherits."""
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hand: Hand | None = None
    enabled: bool = True
    required: bool = False
    """A turn without it does not start."""
    startup_timeout_sec: float = 30.0
    tool_timeout_sec: float = 120.0
    enabled_tools: tuple[str, ...] | None = None
    """Only these, where set."""
    disabled_tools: tuple[str, ...] = ()
    trusted: bool = False
    """The operator named it on the command line: its calls need no question."""

    def offers(self, tool: str) -> bool:
        """Whether the settings let the model see this tool."""
        chosen = self.enabled_tools is None or tool in self.enabled_tools
        return chosen and tool not in self.disabled_tools


def read_servers(path: Path, env: Mapping[str, str] = os.environ) -> list[ServerConfig]:
    """Read a JSON file with ``mcpServers``, the shape that other MCP clients use.

    Raises ConfigError with the file and, where it has one, the place in it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path} is not valid JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{path} has no "mcpServers" object')
    return [_server(name, entry, _Source(path, env)) for name, entry in servers.items()]


def parse_server(option: str) -> ServerConfig:
    """Read ``--mcp 'NAME=command args'``; who writes it on the command line trusts it."""
    name, equals, line = option.partition("=")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"--mcp {option!r}: {str(error).lower()}") from None
    if not equals or not name.strip() or not words:
        raise ConfigError(f"--mcp wants NAME=command args, not {option!r}")
    if words[0].startswith(("http://", "https://")):
        return ServerConfig(name.strip(), url=words[0], trusted=True)
    return ServerConfig(name.strip(), command=words[0], args=tuple(words[1:]), trusted=True)


def merge(*groups: list[ServerConfig]) -> list[ServerConfig]:
    """One list; of the same name, the later wins at the earlier's place."""
    return list({server.name: server for group in groups for server in group}.values())


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path
    env: Mapping[str, str]

    def wrong(self, name: str, what: str) -> ConfigError:
        return ConfigError(f"{self.path}: server {name!r}: {what}")

    def expand(self, name: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            variable, default = match["name"], match["default"]
            # As in a shell, ``:-`` also stands in for an empty value.
            found = self.env.get(variable)
            if default is not None:
                return found or default
            if found is None:
                raise self.wrong(name, f"the environment variable {variable} is not set")
            return found

        return _VARIABLE.sub(value, text)


_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_SECONDS = ("startup_timeout_sec", "tool_timeout_sec")
_FLAGS = ("enabled", "required")
_KINDS = {"stdio": "command", "http": "url", "sse": "url", "streamable-http": "url"}


def _server(name: str, entry: Any, source: _Source) -> ServerConfig:
    if not isinstance(entry, dict):
        raise source.wrong(name, "must be an object")
    if not name.strip():
        raise source.wrong(name, "needs a name")

    def text(key: str) -> str | None:
        value = entry.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise source.wrong(name, f"{key} must be a text")
        return source.expand(name, value)

    def texts(key: str) -> tuple[str, ...] | None:
        value = entry.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise source.wrong(name, f"{key} must be a list of texts")
        return tuple(source.expand(name, one) for one in value)

    def table(key: str) -> dict[str, str]:
        value = entry.get(key) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise source.wrong(name, f"{key} must map names to texts")
        return {k: source.expand(name, v) for k, v in value.items()}

    command, url = text("command"), text("url")
    wants = _KINDS.get(str(entry.get("type", "stdio" if command else "http")))
    if wants is None:
        raise source.wrong(name, f"unknown type {entry['type']!r}; known: {', '.join(_KINDS)}")
    if not (command if wants == "command" else url):
        raise source.wrong(name, f"needs a {wants}" if "type" in entry else "needs a command")
    server = ServerConfig(
        name=name,
        command=(command or "") if wants == "command" else "",
        args=texts("args") or (),
        env=table("env"),
        cwd=text("cwd"),
        url=url if wants == "url" else None,
        headers=table("headers"),
        enabled_tools=texts("enabled_tools"),
        disabled_tools=texts("disabled_tools") or (),
    )
    changes: dict[str, Any] = {}
    for key in _SECONDS:
        if (seconds := entry.get(key)) is not None:
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
                raise source.wrong(name, f"{key} must be a number of seconds")
            changes[key] = float(seconds)
    for key in (*_FLAGS, "disabled"):
        if (flag := entry.get(key)) is not None:
            if not isinstance(flag, bool):
                raise source.wrong(name, f"{key} must be true or false")
            changes[key] = flag
    if changes.pop("disabled", False):
        changes["enabled"] = False
    return replace(server, **changes)
