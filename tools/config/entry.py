"""Reads one server's entry of an mcp.json, in the spellings of other clients. By hand: importing
pydantic takes longer than all that is done before the app's first paint."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from tools.config.servers import (
    ConfigError,
    OAuthSettings,
    Rule,
    SandboxSettings,
    ServerConfig,
    clean_headers,
    default_sandbox,
)

_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_URL_PASSWORD = re.compile(r"(?<=//)([^/@:]*:)[^/@]+(?=@)")
_INPUT = re.compile(r"\$\{input:[^}]*\}")
_TRANSPORTS: dict[str, Literal["", "http", "sse"]] = {
    "stdio": "",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_TIMEOUT_KEYS = ("startup_timeout_sec", "tool_timeout_sec")
_FLAG_KEYS = ("enabled", "required", "disabled", "trust", "constrain", "public")
_CODEX_MODES: dict[str, Rule] = {"auto": "auto", "prompt": "ask", "approve": "allow"}
"""Values of Codex's ``default_tools_approval_mode``."""
_OAUTH_ALIASES = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "callbackPort": "redirect_port",
    "clientMetadataUrl": "client_metadata_url",
}
_OAUTH_KEYS = ("client_id", "client_secret", "scopes", "redirect_port", "client_metadata_url")
_METADATA_URL = re.compile(r"https://[^/]+/.")
PROTOCOL_VERSIONS = ("2025-11-25", "2026-07-28")
"""Versions that ``protocol`` may name, the newest of either era; the first negotiates older ones."""
MIN_MILLISECONDS = 1000
"""From this number on a ``timeout`` is in milliseconds, as some clients write it."""


def read_entry(name: str, entry: Any, env: Mapping[str, str]) -> ServerConfig:
    """Read an entry; raises ConfigError, whose message is the predicate of a sentence about it."""
    if not isinstance(entry, dict):
        raise ConfigError("must be an object")
    if not name.strip():
        raise ConfigError("needs a name")
    return _EntryReader(entry, env).read(name)


def command_line(entry: Mapping[str, Any]) -> str:
    """Return an entry's command or URL as written, but for a password; of a wrong entry too."""
    if not (command := entry.get("command")):
        return _URL_PASSWORD.sub(r"\1…", _url(entry))
    args = entry.get("args")
    words = [command, *(args if isinstance(args, list) else ())]
    return shlex.join(str(word) for word in words)


def _url(entry: Mapping[str, Any]) -> str:
    return str(entry.get("url") or entry.get("httpUrl") or "")


def env_and_headers(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's environment and headers as they are written; works for any entry."""
    tables = (entry.get("env"), entry.get("headers"))
    return {k: v for table in tables if isinstance(table, dict) for k, v in table.items()}


def _secrets_digest(entry: Mapping[str, Any]) -> str:
    """SHA-256 of an entry's secrets: environment, headers, password, OAuth client; empty: none."""
    passwords = [match[0] for match in _URL_PASSWORD.finditer(_url(entry))]
    oauth = [entry["oauth"]] if entry.get("oauth") else []
    if not (env_and_headers(entry) or passwords or oauth):
        return ""
    values = [entry.get("env"), entry.get("headers"), *passwords, *oauth]
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _EntryReader:
    """Reads the values of one entry, or of an object in it; all methods raise ConfigError."""

    def __init__(self, entry: dict[str, Any], env: Mapping[str, str], prefix: str = "") -> None:
        """``prefix``: of its keys in messages."""
        self._entry, self._env, self._prefix = entry, env, prefix

    def read(self, name: str) -> ServerConfig:
        entry = self._entry
        targets = [key for key in ("command", "url", "httpUrl") if entry.get(key)]
        if len(targets) > 1:
            # Which of them counts would be a guess, also for the person who is asked about it.
            raise ConfigError(f"has a {' and a '.join(targets)}; remove one of them")
        command, url = self._text("command"), self._text("url") or self._text("httpUrl")
        kind = entry.get("type", "stdio" if command else "")
        if kind and kind not in _TRANSPORTS:
            raise ConfigError(f"unknown type {kind!r}; known: {', '.join(_TRANSPORTS)}")
        target = "command" if kind == "stdio" else "url"
        if not (command if target == "command" else url):
            raise ConfigError(
                f"needs a {target}" if "type" in entry else "needs a command or a url"
            )
        local = target == "command"
        flags = {key: self._flag(key) for key in _FLAG_KEYS}
        server = ServerConfig(
            name=name,
            command=(command or "") if local else "",
            args=self._texts("args") or (),
            env=self._table("env"),
            cwd=self._text("cwd"),
            url=None if local else url,
            transport="" if local else _TRANSPORTS.get(str(kind), ""),
            headers=clean_headers(self._table("headers")),
            oauth=self._oauth(),
            protocol=self._protocol(),
            sandbox=self._sandbox(command if local else None),
            enabled=flags["enabled"] is not False and not flags["disabled"],
            required=bool(flags["required"]),
            public=bool(flags["public"]),
            constrain=flags["constrain"] is not False,
            enabled_tools=self._texts("enabled_tools"),
            disabled_tools=self._texts("disabled_tools") or (),
            rules=self._rules(bool(flags["trust"])),
            command_line=command_line(entry),
            secrets_digest=_secrets_digest(entry),
        )
        if url and not url.lower().startswith(("http://", "https://")):
            raise ConfigError("the url must begin with https:// or http://")
        return self._with_tools(replace(server, **self._timeouts()))

    # --- values ---

    def _text(self, key: str) -> str | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{self._prefix}{key} must be a string")
        return self._expand(value)

    def _texts(self, key: str) -> tuple[str, ...] | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self._prefix}{key} must be a list of strings")
        return tuple(self._expand(item) for item in value)

    def _table(self, key: str) -> dict[str, str]:
        value = self._entry.get(key) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise ConfigError(f"{key} must map names to strings")
        return {k: self._expand(v) for k, v in value.items()}

    def _flag(self, key: str) -> bool | None:
        value = self._entry.get(key)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{key} must be true or false")
        return value

    def _expand(self, text: str) -> str:
        """Replace ``${NAME}``, ``${env:NAME}`` and ``${NAME:-default}``."""

        def substitute(match: re.Match[str]) -> str:
            variable, default = match["name"], match["default"]
            # As in a shell, ``:-`` also stands in for an empty value.
            value = self._env.get(variable)
            if default is not None:
                return value or default
            if value is None:
                raise ConfigError(f"the environment variable {variable} is not set")
            return value

        if unknown := _INPUT.search(text):
            raise ConfigError(f"{unknown[0]} is not supported; write ${{VARIABLE}} instead")
        return _VARIABLE.sub(substitute, text)

    def _sandbox(self, command: str | None) -> SandboxSettings | None:
        """Read ``sandbox``: true, or an object with ``write`` and ``hosts``."""
        value = self._entry.get("sandbox")
        if value is None or value is False:
            return None
        if command is None:
            raise ConfigError("sandbox is for servers with a command")
        if value is True:
            return default_sandbox(command)
        if not isinstance(value, dict) or value.keys() - {"write", "hosts"}:
            raise ConfigError('sandbox must be true or {"write": [folders], "hosts": [hosts]}')
        from tools.networks import HostError, HostRule

        inner = _EntryReader(value, self._env, "sandbox.")
        try:
            hosts = tuple(str(HostRule.parse(host)) for host in inner._texts("hosts") or ())
        except HostError as error:
            raise ConfigError(f"sandbox.hosts: {error}") from None
        return SandboxSettings(inner._texts("write") or (), hosts)

    # --- login and version ---

    def _oauth(self) -> OAuthSettings:
        """Read ``oauth``, also with the names that Claude Code has for its keys."""
        entry = self._entry.get("oauth")
        if entry is None:
            return OAuthSettings()
        if not isinstance(entry, dict):
            raise ConfigError("oauth must be an object")
        values = {_OAUTH_ALIASES.get(str(key), str(key)): entry[key] for key in entry}
        if unknown := values.keys() - _OAUTH_KEYS:
            raise ConfigError(f"oauth has no {min(unknown)}; known: {', '.join(_OAUTH_KEYS)}")
        if isinstance(values.get("scopes"), str):
            values["scopes"] = values["scopes"].split()
        inner = _EntryReader(values, self._env, "oauth.")
        texts = {
            key: inner._text(key) or ""
            for key in ("client_id", "client_secret", "client_metadata_url")
        }
        if texts["client_secret"] and not texts["client_id"]:
            raise ConfigError("oauth.client_secret needs a client_id")
        if (url := texts["client_metadata_url"]) and not _METADATA_URL.match(url):
            raise ConfigError("oauth.client_metadata_url must be an https URL with a path")
        port = values.get("redirect_port", 0)
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
            raise ConfigError("oauth.redirect_port must be the number of a port")
        return OAuthSettings(scopes=inner._texts("scopes") or (), redirect_port=port, **texts)

    def _protocol(self) -> str:
        version = self._entry.get("protocol", "")
        if version and version not in PROTOCOL_VERSIONS:
            raise ConfigError(f"protocol must be {' or '.join(PROTOCOL_VERSIONS)}")
        return str(version)

    # --- times, tools, rules ---

    def _timeouts(self) -> dict[str, Any]:
        timeouts: dict[str, Any] = {
            key: _seconds(key, self._entry[key]) for key in _TIMEOUT_KEYS if key in self._entry
        }
        if "timeout" in self._entry:
            timeouts.setdefault("tool_timeout_sec", _seconds("timeout", self._entry["timeout"]))
        return timeouts

    def _rules(self, trust: bool) -> dict[str, Rule]:
        rules: dict[str, Rule] = {"": "allow"} if trust else {}
        mode = self._entry.get("default_tools_approval_mode")
        if mode is not None:
            if mode not in _CODEX_MODES:
                raise ConfigError(
                    f"default_tools_approval_mode must be {' or '.join(_CODEX_MODES)}"
                )
            rules[""] = _CODEX_MODES[mode]
        if "approve" in self._entry:
            rules[""] = _rule(self._entry["approve"])
        for key in ("autoApprove", "alwaysAllow"):
            rules |= dict.fromkeys(self._texts(key) or (), "allow")
        return rules

    def _with_tools(self, server: ServerConfig) -> ServerConfig:
        """Apply ``tools``: a list of the tools to offer, or settings by tool name."""
        tools = self._entry.get("tools")
        if tools is None or tools == ["*"]:
            return server
        if isinstance(tools, list):
            return replace(server, enabled_tools=self._texts("tools"))
        if not isinstance(tools, dict) or not all(isinstance(v, dict) for v in tools.values()):
            raise ConfigError("tools must be a list of names, or map names to settings")
        times, rules = dict(server.tool_timeouts), dict(server.rules)
        disabled = list(server.disabled_tools)
        for name, settings in tools.items():
            if "timeout" in settings:
                times[name] = _seconds(f"tools.{name}.timeout", settings["timeout"])
            if "approve" in settings:
                rules[name] = _rule(settings["approve"])
            if settings.get("enabled") is False:
                disabled.append(name)
        return replace(server, tool_timeouts=times, rules=rules, disabled_tools=tuple(disabled))


def _rule(value: Any) -> Rule:
    known: tuple[Rule, ...] = get_args(Rule)
    for rule in known:
        if value == rule:
            return rule
    raise ConfigError(f"approve must be {' or '.join(known)}, not {value!r}")


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{key} must be a number of seconds")
    return value / 1000 if key.endswith("timeout") and value >= MIN_MILLISECONDS else float(value)
