"""The settings of MCP servers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from agent.errors import AgentError

if TYPE_CHECKING:
    from tools.builtin_server import BuiltinServer

Rule = Literal["allow", "ask", "deny", "auto"]
"""Whether a tool may run. auto: a tool that only reads runs, others ask."""

NODE_RUNNERS = frozenset(("bun", "bunx", "npm", "npx", "pnpm", "pnpx", "yarn"))
MIN_SECRET_CHARS = 6
"""Shorter values of headers may be words of other texts, not secrets."""
STARTUP_SECONDS = 30.0
"""Time in which a server has to answer after its start, where its settings do not say."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
PACKAGE_RUNNERS = NODE_RUNNERS | {"uvx", "uv", "pipx"}


class ConfigError(AgentError):
    """A setting is wrong; the message is one sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """How to log in to a server: by a client that someone registered for this program."""

    client_id: str = ""
    """Empty: this program registers itself, where the authorization server lets it."""
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    """Requested at every login, in addition to those that the server wants."""
    redirect_port: int = 0
    """The port of http://127.0.0.1:PORT/callback; 0: any free one."""
    client_metadata_url: str = ""
    """The URL of a Client ID Metadata Document."""
    grant_type: str = ""
    """``client_credentials``: the client itself gets the tokens, without a person's login."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Permissions of a server in the sandbox in addition to reading the paths of its settings."""

    write: tuple[str, ...] = ()
    """Files and folders; below the working folder where they are relative."""
    hosts: tuple[str, ...] = ()
    """Hosts that it may reach, as `tools.networks.HostRule` reads them."""
    packages: bool = False
    """Whether it may also reach the hosts from which its command gets packages."""

    @property
    def reach(self) -> str:
        """A text for the person that names the reachable hosts; empty: none."""
        packages = ("where its packages come from",) if self.packages else ()
        return ", ".join((*self.hosts, *packages))

    @property
    def description(self) -> str:
        writes = f", writes {', '.join(self.write)}" if self.write else ""
        reaches = f", reaches {self.reach}" if self.reach else ""
        return f"in a sandbox{writes}{reaches}"


def default_sandbox(command: str) -> SandboxSettings:
    """Return the settings where an entry names none: ``npx`` and the like reach their packages."""
    return SandboxSettings(packages=PurePath(command).name in PACKAGE_RUNNERS)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server: a ``command`` (stdio), a ``url``, or a ``builtin`` one (in this process)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables that a server inherits."""
    env_files: tuple[str, ...] = ()
    """Paths of the file that some of them are from."""
    cwd: str | None = None
    start_folder: Path | None = None
    """Where it starts without a ``cwd``; None: in this process's working folder."""
    url: str | None = None
    transport: Literal["", "http", "sse"] = ""
    """The transport of a URL; empty: streamable HTTP, or SSE where the server supports only that."""
    headers: Mapping[str, str] = field(default_factory=dict)
    oauth: OAuthSettings = OAuthSettings()
    protocol: str = ""
    """The version of MCP to speak; empty: the one with which the most works."""
    builtin: BuiltinServer | None = None
    sandbox: SandboxSettings | None = None
    """Set for a command that runs in the sandbox; None: with the person's rights."""
    enabled: bool = True
    required: bool = False
    """Whether a turn does not start without the server."""
    startup_timeout_sec: float = field(default_factory=lambda: STARTUP_SECONDS)
    tool_timeout_sec: float = 120.0
    tool_timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds, by the names of single tools."""
    enabled_tools: tuple[str, ...] | None = None
    """If set, no other tools are offered; names, or patterns with ``*``."""
    disabled_tools: tuple[str, ...] = ()
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Rules by tool name; the one with the empty name is for all other tools."""
    constrain: bool = True
    """Whether grammars hold the model to the tools' schemas."""
    trusted: bool = False
    """Whether the operator named it on the command line: then its calls need no approval."""
    from_project: bool = False
    """Whether it comes from the working folder's own mcp.json, not from the person."""
    public: bool = False
    """Whether the operator marked its results as nothing private."""
    client_network: Literal["", "public", "private"] = ""
    """For an API client's server, without login or folder: at a public address, or (private) any."""
    command_line: str = ""
    """The command or address as it is written down, nothing expanded: shown to a person."""
    secrets_digest: str = ""
    """SHA-256 of its environment and headers as they are written down, nothing expanded."""
    problem: str | None = None
    """Why it cannot even be tried: the predicate of a sentence."""
    ignored: tuple[str, ...] = ()
    """Keys of its entry that are not understood."""

    def offers(self, tool: str) -> bool:
        enabled = self.enabled_tools is None or names_tool(self.enabled_tools, tool)
        return enabled and not names_tool(self.disabled_tools, tool)

    @property
    def has_authorization(self) -> bool:
        """Whether its settings have an authorization of their own, as a header or in the URL."""
        names = {name.lower() for name in self.headers}
        host = (self.url or "").partition("://")[2].partition("/")[0]
        return "authorization" in names or "@" in host

    def hide_headers(self, text: str) -> str:
        """Return a text without the values of headers, which a server or library may repeat."""
        values = {part for value in self.headers.values() for part in (value, *value.split()[1:])}
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, "…") if len(value) >= MIN_SECRET_CHARS else text
        return text

    @property
    def runs_package(self) -> bool:
        """Whether its command looks for a package in the folder that it starts in, and above it."""
        return PurePath(self.command).name in NODE_RUNNERS

    @property
    def tries_sse(self) -> bool:
        """Whether it has a URL and the settings do not say which transport it speaks."""
        return self.url is not None and not self.transport

    def timeout(self, tool: str) -> float:
        """Return how many seconds a call of this tool may take."""
        return self.tool_timeouts.get(tool, self.tool_timeout_sec)

    def rule(self, tool: str) -> Rule | None:
        return self.rules.get(tool) or self.rules.get("")


def clean_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers without blanks and line breaks around their values, which do not belong to them
    (RFC 9110, section 5.5). Raises ConfigError, which names the header but has no value."""
    for name, value in headers.items():
        token = _TOKEN.match(name)
        if token is None or token[0] != name:
            raise ConfigError(f"the name of the header {token[0] if token else ''}… is not valid")
        if not value.isascii() or not value.strip().replace("\t", " ").isprintable():
            raise ConfigError(
                f"the value of the header {name} has characters that no header can have"
            )
    return {name: value.strip() for name, value in headers.items()}


def names_tool(patterns: Iterable[str], tool: str) -> bool:
    """Return whether a tool is one of those named; ``*`` stands for any characters."""
    return any(pattern == tool or fnmatchcase(tool, pattern) for pattern in patterns)


def parse_server(option: str) -> ServerConfig:
    """Read ``--mcp 'NAME=command args'`` or ``NAME=URL``, a trusted server. Raises ConfigError."""
    name, equals, line = option.partition("=")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"--mcp {option!r}: {str(error).lower()}") from None
    if not equals or not name.strip() or not words:
        raise ConfigError(f"--mcp must be NAME=COMMAND ARGS, not {option!r}")
    server = ServerConfig(name.strip(), trusted=True, command_line=line.strip())
    if words[0].startswith(("http://", "https://")):
        return replace(server, url=words[0])
    return replace(server, command=words[0], args=tuple(words[1:]))


def merge(*groups: list[ServerConfig]) -> list[ServerConfig]:
    """Join lists; of servers with the same name, the later wins at the earlier's position."""
    return list({server.name: server for group in groups for server in group}.values())
