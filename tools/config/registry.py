"""Finds MCP servers in a registry, for a person to add to an mcp.json. Protocol (2025-12-01):
https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tools.config.file import object_at
from tools.config.servers import ConfigError
from tools.sanitize import clean_line

TIMEOUT_SECONDS, MAX_ANSWER_BYTES = 20.0, 8 << 20
MAX_LISTED, MAX_PAGES = 100, 10
"""Servers per page (the registry may return fewer), and pages that a search reads."""
_META = "io.modelcontextprotocol.registry/official"
_RUNNERS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "npm": ("npx", ("-y",), "@"),
    "pypi": ("uvx", (), "@"),
    "oci": ("docker", ("run", "-i", "--rm"), ":"),
    "nuget": ("dnx", ("--yes",), "@"),
}
"""By registry type: the program, its arguments, and the separator between a package and its version."""
_IDENTIFIER = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._/:-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """One server as a registry lists it."""

    name: str
    """As ``io.github.someone/something``."""
    version: str
    description: str
    status: str
    """active, deprecated or deleted."""
    data: Mapping[str, Any] = field(repr=False)
    """Its ``server.json``."""


@dataclass(frozen=True, slots=True)
class RegistryMatches:
    """The result of a search."""

    servers: list[RegistryServer]
    more: bool
    """Whether there are more, or servers that were not looked at."""


def search(registry: str, words: Sequence[str], limit: int) -> RegistryMatches:
    """Return servers whose name or description has all words. Raises ConfigError."""
    words = " ".join(words).split()
    wanted = [word.lower() for word in words]
    # A registry searches names for one text; the longest word leaves the least to sort out.
    text = max(words, key=len, default="")
    query = {"version": "latest", "limit": str(MAX_LISTED)} | ({"search": text} if text else {})
    matches: list[RegistryServer] = []
    for _ in range(MAX_PAGES):
        answer = _get(registry, "/v0.1/servers", query)
        matches += [
            server
            for server in map(_read_server, _objects(answer, "servers"))
            if server.name
            and server.status != "deleted"
            and all(word in f"{server.name} {server.description}".lower() for word in wanted)
        ]
        cursor = object_at(answer, "metadata").get("nextCursor")
        if not cursor or not isinstance(cursor, str) or len(matches) > limit:
            break
        query["cursor"] = cursor
    return RegistryMatches(matches[:limit], bool(cursor) or len(matches) > limit)


def fetch(registry: str, name: str, version: str = "latest") -> RegistryServer:
    """Return one server. Raises ConfigError, also for one that was deleted."""
    path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    server = _read_server(_get(registry, path, {}))
    if server.status == "deleted" or not server.name:
        raise ConfigError(f"{name} was deleted from the registry")
    return server


def installation(server: RegistryServer, *, remote: bool = False) -> Installation:
    """Return the entry for the first usable package, or (``remote``) address. Raises ConfigError."""
    packages, remotes = _objects(server.data, "packages"), _objects(server.data, "remotes")
    for package in () if remote else packages:
        is_stdio = object_at(package, "transport").get("type") == "stdio"
        if is_stdio and package.get("registryType") in _RUNNERS:
            return Installation.of_package(package)
    for address in remotes:
        return Installation.of_remote(address)
    kinds = ", ".join(sorted({str(package.get("registryType")) for package in packages}))
    raise ConfigError(
        f"{server.name} has no package that can be run here"
        + (f", only {clean_line(kinds)}" if kinds and not remote else "")
    )


@dataclass(slots=True)
class Installation:
    """A server's entry, and the variables that the person has to set before it can run."""

    entry: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that the entry refers to, with what they are for."""

    @classmethod
    def of_package(cls, package: Mapping[str, Any]) -> Installation:
        program, arguments, separator = _RUNNERS[str(package["registryType"])]
        identifier, version = str(package.get("identifier", "")), package.get("version")
        if not _IDENTIFIER.fullmatch(identifier):
            raise ConfigError(f"{identifier!r} is not a package name")
        if version is not None and not _VERSION.fullmatch(str(version)):
            raise ConfigError(f"{version!r} is not a package version")
        name = identifier.rpartition("/")[2]
        if version and separator not in name:  # else an image with its tag, or a digest
            identifier = f"{identifier}{separator}{version}"
        made = cls()
        words = [
            *made._arguments(_objects(package, "runtimeArguments")),
            identifier,
            *made._arguments(_objects(package, "packageArguments")),
        ]
        env = made._pairs(_objects(package, "environmentVariables"))
        if program == "docker":  # docker passes on only the variables that are named
            words = [*(word for variable in env for word in ("-e", variable)), *words]
        made.entry = {"command": program, "args": [*arguments, *words]}
        made.entry |= {"env": env} if env else {}
        return made

    @classmethod
    def of_remote(cls, remote: Mapping[str, Any]) -> Installation:
        made, kinds = cls(), {"streamable-http": "http", "sse": "sse"}
        url = made._filled(str(remote.get("url", "")), remote.get("variables"))
        if not url.lower().startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not a server's address")
        parts = {
            "url": url,
            "type": kinds.get(str(remote.get("type"))),
            "headers": made._pairs(_objects(remote, "headers")),
        }
        made.entry = {key: value for key, value in parts.items() if value}
        return made

    def _arguments(self, inputs: Sequence[Mapping[str, Any]]) -> list[str]:
        words: list[str] = []
        for each in inputs:
            named = each.get("type") == "named"
            name = str(each.get("name") or each.get("valueHint") or "ARGUMENT")
            value = self._value(each, name)
            if value is not None:
                words += [_literal(name), value] if named else [value]
        return words

    def _pairs(self, inputs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        pairs = {}
        for each in inputs:
            name = _literal(str(each.get("name") or ""))
            if name and (value := self._value(each, name)) is not None:
                pairs[name] = value
        return pairs

    def _value(self, about: Mapping[str, Any], name: str) -> str | None:
        """Return an input's value, or a reference to a variable; None: it is left out."""
        for key in ("value", "default"):
            if isinstance(about.get(key), str):
                return self._filled(about[key], about.get("variables"))
        return self._reference(about, name) if about.get("isRequired") else None

    def _filled(self, template: str, variables: Any) -> str:
        known = variables if isinstance(variables, dict) else {}

        def substitute(match: re.Match[str]) -> str:
            about = known.get(match[1])
            if not isinstance(about, dict):
                return match[0]
            value = about.get("value", about.get("default"))
            return _literal(value) if isinstance(value, str) else self._reference(about, match[1])

        return _PLACEHOLDER.sub(substitute, _literal(template))

    def _reference(self, about: Mapping[str, Any], name: str) -> str:
        variable = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
        variable = variable if variable[:1].isalpha() else f"MCP_{variable}"
        self.variables[variable] = clean_line(str(about.get("description") or ""))
        return f"${{{variable}}}"


def _literal(text: str) -> str:
    """Return a text of the registry's; raises ConfigError if it refers to a variable here."""
    if "${" in text:
        raise ConfigError(f"{clean_line(text)!r} would take a variable of this machine")
    return text


def _objects(about: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of the list under a key; none if there is no list."""
    value = about.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _read_server(item: Mapping[str, Any]) -> RegistryServer:
    data = object_at(item, "server")
    status = object_at(object_at(item, "_meta"), _META).get("status", "active")
    name, version, description = (
        clean_line(str(data.get(key) or "")) for key in ("name", "version", "description")
    )
    return RegistryServer(name, version, description, clean_line(str(status)), data)


def _get(registry: str, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    import httpx2

    try:
        answer = httpx2.get(registry.rstrip("/") + path, params=query, timeout=TIMEOUT_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise ConfigError(f"the registry {registry} cannot be reached: {error}") from error
    if answer.status_code == 404 and path.count("/") > 2:
        raise ConfigError("the registry has no such server; agent mcp search finds names")
    try:
        data = answer.json() if len(answer.content) <= MAX_ANSWER_BYTES else None
    except ValueError:
        data = None
    if not answer.is_success or not isinstance(data, dict):
        raise ConfigError(
            f"the registry {registry} answered with HTTP {answer.status_code}, not with servers"
        )
    return data
