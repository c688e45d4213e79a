"""One server's entry of an mcp.json, in the spellings of the clients that people paste from."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from tools.config.servers import ConfigError, Rule, ServerConfig

_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_PASSWORD = re.compile(r"(?<=//)([^/@:]*:)[^/@]+(?=@)")
_INPUT = re.compile(r"\$\{input:[^}]*\}")
_TRANSPORTS: dict[str, Literal["", "http", "sse"]] = {
    "stdio": "",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_SECONDS = ("startup_timeout_sec", "tool_timeout_sec")
_FLAGS = ("enabled", "required", "disabled", "trust", "constrain")
_MODES: dict[str, Rule] = {"auto": "auto", "prompt": "ask", "approve": "allow"}
"""Codex's words."""
MILLISECONDS = 1000
"""From this number on, a ``timeout`` is in milliseconds, as some clients write it."""


def read_entry(name: str, entry: Any, env: Mapping[str, str]) -> ServerConfig:
    """Raises ConfigError that says what is wrong with it."""
    if not isinstance(entry, dict):
        raise ConfigError("must be an object")
    if not name.strip():
        raise ConfigError("needs a name")
    return _Entry(name, entry, env).read()


def origin(entry: Mapping[str, Any]) -> str:
    """Its command or address as it stands there, but for a password; of any entry, also one that is
    wrong."""
    if not (command := entry.get("command")):
        return _PASSWORD.sub(r"\1…", _url(entry))
    args = entry.get("args")
    words = [command, *(args if isinstance(args, list) else ())]
    return shlex.join(str(word) for word in words)


def _url(entry: Mapping[str, Any]) -> str:
    return str(entry.get("url") or entry.get("httpUrl") or "")


def given(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Its environment and headers as they stand there, of any entry."""
    tables = (entry.get("env"), entry.get("headers"))
    return {k: v for table in tables if isinstance(table, dict) for k, v in table.items()}


def _digest(entry: Mapping[str, Any]) -> str:
    """Of what it is given, for that may be secret; empty where that is nothing."""
    passwords = [found[0] for found in _PASSWORD.finditer(_url(entry))]
    if not (given(entry) or passwords):
        return ""
    text = json.dumps([entry.get("env"), entry.get("headers"), *passwords], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Entry:
    def __init__(self, name: str, entry: dict[str, Any], env: Mapping[str, str]) -> None:
        self._name, self._entry, self._env = name, entry, env

    def read(self) -> ServerConfig:
        entry = self._entry
        ways = [key for key in ("command", "url", "httpUrl") if entry.get(key)]
        if len(ways) > 1:
            # Which of them counts would be a guess, of the person who is asked too.
            raise ConfigError(f"has a {' and a '.join(ways)}; one of them must go")
        command, url = self._text("command"), self._text("url") or self._text("httpUrl")
        kind = entry.get("type", "stdio" if command else "")
        if kind and kind not in _TRANSPORTS:
            raise ConfigError(f"unknown type {kind!r}; known: {', '.join(_TRANSPORTS)}")
        wants = "command" if kind == "stdio" else "url"
        if not (command if wants == "command" else url):
            raise ConfigError(f"needs a {wants}" if "type" in entry else "needs a command or a url")
        local = wants == "command"
        flags = {key: self._flag(key) for key in _FLAGS}
        server = ServerConfig(
            name=self._name,
            command=(command or "") if local else "",
            args=self._texts("args") or (),
            env=self._table("env"),
            cwd=self._text("cwd"),
            url=None if local else url,
            transport="" if local else _TRANSPORTS.get(str(kind), ""),
            headers=self._table("headers"),
            enabled=flags["enabled"] is not False and not flags["disabled"],
            required=bool(flags["required"]),
            constrain=flags["constrain"] is not False,
            enabled_tools=self._texts("enabled_tools"),
            disabled_tools=self._texts("disabled_tools") or (),
            rules=self._rules(bool(flags["trust"])),
            origin=origin(entry),
            given=_digest(entry),
        )
        return self._with_tools(replace(server, **self._timeouts()))

    # --- values ---

    def _text(self, key: str) -> str | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{key} must be a text")
        return self._expand(value)

    def _texts(self, key: str) -> tuple[str, ...] | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"{key} must be a list of texts")
        return tuple(self._expand(one) for one in value)

    def _table(self, key: str) -> dict[str, str]:
        value = self._entry.get(key) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise ConfigError(f"{key} must map names to texts")
        return {k: self._expand(v) for k, v in value.items()}

    def _flag(self, key: str) -> bool | None:
        value = self._entry.get(key)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{key} must be true or false")
        return value

    def _expand(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            variable, default = match["name"], match["default"]
            # As in a shell, ``:-`` also stands in for an empty value.
            found = self._env.get(variable)
            if default is not None:
                return found or default
            if found is None:
                raise ConfigError(f"the environment variable {variable} is not set")
            return found

        if unknown := _INPUT.search(text):
            raise ConfigError(f"nobody asks for {unknown[0]} here; write ${{VARIABLE}} instead")
        return _VARIABLE.sub(value, text)

    # --- times, tools, rules ---

    def _timeouts(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            key: _seconds(key, self._entry[key]) for key in _SECONDS if key in self._entry
        }
        if "timeout" in self._entry:
            found.setdefault("tool_timeout_sec", _seconds("timeout", self._entry["timeout"]))
        return found

    def _rules(self, trust: bool) -> dict[str, Rule]:
        rules: dict[str, Rule] = {"": "allow"} if trust else {}
        mode = self._entry.get("default_tools_approval_mode")
        if mode is not None:
            if mode not in _MODES:
                raise ConfigError(f"default_tools_approval_mode must be {' or '.join(_MODES)}")
            rules[""] = _MODES[mode]
        if "approve" in self._entry:
            rules[""] = _rule(self._entry["approve"])
        for key in ("autoApprove", "alwaysAllow"):
            rules |= dict.fromkeys(self._texts(key) or (), "allow")
        return rules

    def _with_tools(self, server: ServerConfig) -> ServerConfig:
        """``tools``: a list of those that are wanted, or settings by name."""
        tools = self._entry.get("tools")
        if tools is None or tools == ["*"]:
            return server
        if isinstance(tools, list):
            return replace(server, enabled_tools=self._texts("tools"))
        if not isinstance(tools, dict) or not all(isinstance(v, dict) for v in tools.values()):
            raise ConfigError("tools must be a list of names, or map names to settings")
        times, rules = dict(server.tool_timeouts), dict(server.rules)
        off = list(server.disabled_tools)
        for name, said in tools.items():
            if "timeout" in said:
                times[name] = _seconds(f"tools.{name}.timeout", said["timeout"])
            if "approve" in said:
                rules[name] = _rule(said["approve"])
            if said.get("enabled") is False:
                off.append(name)
        return replace(server, tool_timeouts=times, rules=rules, disabled_tools=tuple(off))


def _rule(value: Any) -> Rule:
    known: tuple[Rule, ...] = get_args(Rule)
    for rule in known:
        if value == rule:
            return rule
    raise ConfigError(f"approve must be {' or '.join(known)}, not {value!r}")


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{key} must be a number of seconds")
    return value / 1000 if key.endswith("timeout") and value >= MILLISECONDS else float(value)
