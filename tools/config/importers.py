"""Finds the MCP servers that the person has configured in other programs, and plans their import."""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

from agent.errors import describe_cause
from tools.config import edit
from tools.config.file import load_json, object_at, servers_table, without_comments
from tools.config.servers import ConfigError
from tools.config.spellings import plain_entry
from tools.sanitize import clean_text

IMPORTED_KEYS = (
    *("type", "command", "args", "env", "envFile", "cwd", "url", "headers", "oauth", "sandbox"),
    *("disabled", "required", "enabled_tools", "disabled_tools"),
    *("timeout", "startup_timeout", "startup_timeout_sec", "startup_timeout_ms"),
    *("tool_timeout_sec", "tool_timeout_ms"),
)
"""Keys of an entry that are imported; what another program may do without asking is not."""
MAX_BYTES = 64 << 20
"""Largest file that is read: Claude Code keeps much else in the one with its servers."""
DESKTOP_FILE = "claude_desktop_config.json"
_REFERENCES: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = {
    # VS Code asks its person for the value of ``${input:api-key}``.
    "VS Code": (re.compile(r"\$\{input:([^}]*)\}"), lambda match: _variable_name(match[1])),
    "Gemini CLI": (re.compile(r"\$([A-Za-z_]\w*)"), lambda match: match[1]),
    "opencode": (re.compile(r"\{env:([^}]*)\}"), lambda match: match[1].strip()),
}
"""By client: its references to variables, and the variable's name for each."""
_KEYS = {"Zed": "context_servers", "goose": "extensions", "opencode": "mcp", "Codex": "mcp_servers"}
_RULE_NAMES = {"Claude Code": ("mcp__", "__"), "Zed": ("mcp:", ":"), "opencode": ("", "_")}
"""By client: the text before a server's name in its rules, and the one between it and a tool's."""
_OWN_TYPES = ("builtin", "platform", "frontend", "inline_python")
"""Kinds of goose's extensions that are not MCP servers."""


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
            data = _load(path)
            servers, denials = _servers(client, path, data), _denials(client, path, data)
        except ConfigError as error:
            source.problems.append(str(error))
            servers, denials = {}, []
        for name, written in servers.items():
            if isinstance(written, dict) and written.get("type") in _OWN_TYPES:
                continue
            try:
                entry, left_out = _imported(client, written)
                _forbid(client, name, entry, denials)
                left_out += edit.check(name, entry).ignored
            except ConfigError as error:
                source.problems.append(f"{path}: {name!r} {error}")
                continue
            source.entries[name] = entry
            if left_out:
                keys = ", ".join(map(clean_text, left_out))
                source.problems.append(f"{path}: {name!r} is imported without {keys}")
        yield source


def _config_paths(home: Path) -> Iterator[tuple[str, Path]]:
    folders = [home / ".config"]
    if sys.platform == "darwin":
        folders.insert(0, home / "Library/Application Support")
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
    yield "opencode", home / ".config/opencode/opencode.json"
    yield "opencode", home / ".config/opencode/opencode.jsonc"
    yield "goose", home / ".config/goose/config.yaml"
    yield "Zed", home / ".config/zed/settings.json"


def _imported(client: str, written: Any) -> tuple[dict[str, Any], list[str]]:
    """Return an entry with the imported keys, and the keys that are not. Raises ConfigError."""
    written = dict(written) if isinstance(written, dict) else {}
    if client == "goose":
        if isinstance(inner := written.get("config"), dict):  # of older versions
            written = {**inner, "enabled": written.get("enabled")}
        written["tool_timeout_sec"] = written.pop("timeout", None)
    if client == "opencode" and isinstance(timeout := written.get("timeout"), int):
        written["timeout"] = {"startup": timeout}
    plain = plain_entry(_rewrite(written, *_REFERENCES.get(client, _REFERENCES["VS Code"])))
    values = plain.values
    if plain.rivals:
        raise ConfigError(f"has a {' and a '.join(plain.rivals)}")
    if not (values.get("command") or values.get("url")):
        raise ConfigError("has neither a command nor a url")
    if values.pop("enabled", True) is not True:
        values["disabled"] = True
    tools = values.pop("tools", None)
    if isinstance(tools, list) and tools != ["*"]:
        values["enabled_tools"] = tools
    for name, about in tools.items() if isinstance(tools, dict) else ():
        if about is False or (isinstance(about, dict) and about.get("enabled", True) is not True):
            _disable_tool(values, name)
    # That no tool is to be offered is a restriction; other empty values say nothing.
    entry = {
        key: values[key]
        for key in IMPORTED_KEYS
        if values.get(key) or (key == "enabled_tools" and values.get(key) is not None)
    }
    left_out = [key for key in values if key not in IMPORTED_KEYS and values[key]]
    return entry, plain.unknown + left_out


def _disable_tool(entry: dict[str, Any], tool: str) -> None:
    entry["disabled_tools"] = [*(entry.get("disabled_tools") or ()), tool]


def _rewrite(value: Any, pattern: re.Pattern[str], name: Callable[[re.Match[str]], str]) -> Any:
    """Write references to variables as this program does, ``${API_KEY}``."""
    match value:
        case str():
            return pattern.sub(lambda match: f"${{{name(match)}}}", value)
        case list():
            return [_rewrite(item, pattern, name) for item in value]
        case dict():
            return {key: _rewrite(item, pattern, name) for key, item in value.items()}
    return value


def _variable_name(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).upper()
    return name if name[:1].isalpha() else f"_{name}"


def _servers(client: str, path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Return the servers for all folders and for single ones (Claude Code). Raises ConfigError."""
    servers: dict[str, Any] = {}
    for holder in (data, *object_at(data, "projects").values()):
        if not isinstance(holder, dict):
            continue
        table = holder.get(_KEYS[client]) if client in _KEYS else servers_table(holder)
        if client == "opencode" and object_at(table or {}, "servers"):
            table = holder["mcp"]["servers"]
        if not isinstance(table or {}, dict):
            kind = "TOML table" if path.suffix == ".toml" else "JSON object"
            raise ConfigError(f"{path}: its servers are not a {kind}")
        off = holder.get("disabledMcpServers")
        for name, entry in (table or {}).items():
            is_off = isinstance(off, list) and name in off and isinstance(entry, dict)
            servers.setdefault(name, {**entry, "disabled": True} if is_off else entry)
    return servers


def _denials(client: str, path: Path, data: dict[str, Any]) -> list[str]:
    """Return what a client's rules outside the entries forbid: servers, and tools as it names them."""
    rules: Any = None
    match client:
        case "Claude Code":
            settings = _load(path.parent / ".claude/settings.json")
            rules = object_at(settings, "permissions").get("deny")
        case "Gemini CLI":
            settings = object_at(data, "mcp")
            rules, allowed = settings.get("excluded"), settings.get("allowed")
            if isinstance(allowed, list):
                others = [name for name in _servers(client, path, data) if name not in allowed]
                rules = [*(rules or ()), *others]
        case "goose":
            rules = object_at(_load(path.with_name("permission.yaml")), "user").get("never_allow")
        case "opencode":
            rules = object_at(data, "tools") | object_at(data, "permission")
        case "Zed":
            rules = object_at(object_at(object_at(data, "agent"), "tool_permissions"), "tools")
    if isinstance(rules, dict):
        named = {name: object_at(rules, name).get("default", rule) for name, rule in rules.items()}
        rules = [name for name, rule in named.items() if rule is False or rule == "deny"]
    return [rule for rule in rules if isinstance(rule, str)] if isinstance(rules, list) else []


def _forbid(client: str, name: str, entry: dict[str, Any], denials: list[str]) -> None:
    prefix, separator = _RULE_NAMES.get(client, ("", "__"))
    if client == "opencode":
        name = re.sub(r"[^\w-]", "_", name)
    tools = f"{prefix}{name}{separator}"
    for rule in denials:
        if rule == f"{prefix}{name}" or fnmatchcase(tools, rule):
            entry["disabled"] = True
        elif rule.startswith(tools):
            _disable_tool(entry, rule.removeprefix(tools))


def _load(path: Path) -> dict[str, Any]:
    """Read a client's JSON, TOML or YAML; empty: there is none. Raises ConfigError."""
    if not path.is_file():
        return {}
    if path.suffix not in (".toml", ".yaml"):
        data = load_json(path, without_comments, MAX_BYTES)
    else:
        yaml = import_module("yaml")
        load = tomllib.loads if path.suffix == ".toml" else yaml.safe_load
        try:
            data = load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} cannot be read: {describe_cause(error)}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return data


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
