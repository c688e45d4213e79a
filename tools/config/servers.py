"""Which servers there are: their settings, and where these are read from."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from tools.builtin.base import Hand

Rule = Literal["allow", "ask", "deny", "auto"]
"""May a tool run? auto: what only reads runs, the rest asks."""


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
    transport: Literal["", "http", "sse"] = ""
    """Of a URL; empty: streamable HTTP, or SSE where the server knows only that."""
    headers: Mapping[str, str] = field(default_factory=dict)
    hand: Hand | None = None
    enabled: bool = True
    required: bool = False
    """A turn without it does not start."""
    startup_timeout_sec: float = 30.0
    tool_timeout_sec: float = 120.0
    tool_timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds, of single tools."""
    enabled_tools: tuple[str, ...] | None = None
    """Only these, where set."""
    disabled_tools: tuple[str, ...] = ()
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Of single tools; under the empty name, of all others."""
    constrain: bool = True
    """The model is held to the tools' schemas."""
    trusted: bool = False
    """The operator named it on the command line: its calls need no question."""
    project: bool = False
    """It came with a folder that is worked in, not from the person."""
    guest: Literal["", "public", "private"] = ""
    """A client of the endpoint brought it: it gets no login or folder of the person. public: it may
    only lie at a public address."""
    origin: str = ""
    """The command or address as it is written down, nothing expanded: what a person is shown."""
    given: str = ""
    """A digest of its environment and headers as they are written down, nothing expanded."""
    problem: str | None = None
    """Why it cannot even be tried."""

    def offers(self, tool: str) -> bool:
        """Whether the settings let the model see this tool."""
        chosen = self.enabled_tools is None or tool in self.enabled_tools
        return chosen and tool not in self.disabled_tools

    @property
    def tries_sse(self) -> bool:
        """Its settings leave open which transport it has."""
        return self.url is not None and not self.transport

    def timeout(self, tool: str) -> float:
        """Seconds that a call of this tool may take."""
        return self.tool_timeouts.get(tool, self.tool_timeout_sec)

    def rule(self, tool: str) -> Rule | None:
        """What the settings say of its calls."""
        return self.rules.get(tool) or self.rules.get("")


def parse_server(option: str) -> ServerConfig:
    """Read ``--mcp 'NAME=command args'``; who writes it on the command line trusts it."""
    name, equals, line = option.partition("=")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"--mcp {option!r}: {str(error).lower()}") from None
    if not equals or not name.strip() or not words:
        raise ConfigError(f"--mcp wants NAME=command args, not {option!r}")
    server = ServerConfig(name.strip(), trusted=True, origin=line.strip())
    if words[0].startswith(("http://", "https://")):
        return replace(server, url=words[0])
    return replace(server, command=words[0], args=tuple(words[1:]))


def merge(*groups: list[ServerConfig]) -> list[ServerConfig]:
    """One list; of the same name, the later wins at the earlier's place."""
    return list({server.name: server for group in groups for server in group}.values())


@dataclass(frozen=True, slots=True)
class McpFile:
    """A file with ``mcpServers``, read."""

    path: Path
    servers: list[ServerConfig]
    """One that is not written right has a ``problem``."""
    approve: dict[str, Rule]
    """Rules by ``server`` or ``server.tool``, for hands too."""
    raw: dict[str, Any]
    """The whole of the file."""

    def entries(self) -> dict[str, Any]:
        return raw_servers(self.raw)


def read_file(path: Path, env: Mapping[str, str] = os.environ) -> McpFile:
    """Read a JSON file with ``mcpServers``, the shape that other MCP clients use.

    Raises ConfigError where the file as a whole cannot be used.
    """
    data = load(path)
    if not isinstance(data, dict) or not isinstance(raw_servers(data), dict):
        raise ConfigError(f'{path} has no "mcpServers" object')
    from tools.config.entry import read_entry

    servers = []
    for name, entry in raw_servers(data).items():
        try:
            servers.append(read_entry(name, entry, env))
        except ConfigError as error:
            servers.append(ServerConfig(name, problem=f"{path}: server {name!r}: {error}"))
    return McpFile(path, servers, _approve(path, data), data)


def read_servers(path: Path, env: Mapping[str, str] = os.environ) -> list[ServerConfig]:
    """The servers of a file that a person has just named: the first thing wrong is an error."""
    servers = read_file(path, env).servers
    for server in servers:
        if server.problem:
            raise ConfigError(server.problem)
    return servers


def raw_servers(data: Mapping[str, Any]) -> dict[str, Any]:
    """``servers`` is what VS Code calls them."""
    servers: dict[str, Any] = data.get("mcpServers", data.get("servers", None))
    return servers


def load(path: Path) -> Any:
    """A JSON file; raises ConfigError with the place of what is wrong."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path} is not valid JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None


def _approve(path: Path, data: dict[str, Any]) -> dict[str, Rule]:
    rules = data.get("approve", {})
    known = get_args(Rule)
    if not isinstance(rules, dict) or any(rule not in known for rule in rules.values()):
        raise ConfigError(f'{path}: "approve" must map servers or tools to {", ".join(known)}')
    return rules
