"""The spellings of other MCP clients: brings the keys of a server's entry to those of this program."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SPELLINGS = """
command cmd | args arguments | env environment envs | env_vars envKeys | envFile
cwd workingDirectory workDir | sandbox | sandboxEnabled | protocol | required | public | constrain
url httpUrl serverUrl uri baseUrl | type | transport transportType | oauth | auth | scopes
headers httpHeaders | env_http_headers | bearer_token_env_var
enabled isActive active | disabled isDisabled | tools | enabled_tools includeTools allowedTools
disabled_tools excludeTools deniedTools blockedTools | available_tools
approve | trust | autoApprove | alwaysAllow | default_tools_approval_mode
timeout | tool_timeout_sec | tool_timeout_ms | startup_timeout_sec | startup_timeout_ms
startup_timeout initTimeout connectTimeout connectionTimeout
"""
"""The keys, and other spellings of each; letter case, ``_`` and ``-`` are of no account."""
_LOGIN_SPELLINGS = """
client_id | client_secret | client_metadata_url | grant_type | scopes scope
redirect_port callbackPort
"""
_NOTES = frozenset(
    ("author", "bundled", "description", "displayname", "gallery", "icon", "id", "name", "note")
    + ("notes", "source", "tags", "title", "version")
)
"""Keys that change nothing."""


def _folded(key: str) -> str:
    return re.sub(r"[_-]", "", key).lower()


def _keys(table: str) -> dict[str, str]:
    """Return the key for each folded spelling."""
    return {
        _folded(spelling): spellings.split()[0]
        for spellings in re.split(r"[|\n]", table.strip())
        for spelling in spellings.split()
    }


_KEYS, _LOGIN_KEYS = _keys(_SPELLINGS), _keys(_LOGIN_SPELLINGS)


@dataclass
class PlainEntry:
    """An entry in this program's spelling; its values may be wrong."""

    values: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    """Keys that are not understood."""
    rivals: list[str] = field(default_factory=list)
    """Two keys, as they are written, that say different things about the same."""


def plain_entry(entry: Mapping[str, Any]) -> PlainEntry:
    """Return an entry in this program's spelling; works for any entry."""
    plain, written = PlainEntry(), dict[str, str]()
    values = plain.values
    for key, value in entry.items():
        name = _KEYS.get(_folded(key))
        if name is None:
            if _folded(key) not in _NOTES and key[:1].isalpha():
                plain.unknown.append(key)
        elif value is None or (value == "" and name in values):
            continue
        elif values.get(name, "") in ("", value):
            values[name], written[name] = value, key
        else:
            plain.rivals = [written[name], key]
    if not plain.rivals and values.get("command") and values.get("url"):
        # Which of them counts would be a guess, also for the person who is asked about it.
        plain.rivals = [written["command"], written["url"]]
    _read_command(values)
    _read_variables(values)
    _read_sandbox(plain)
    _read_login(plain)
    values.setdefault("type", values.pop("transport", ""))
    if tools := values.pop("available_tools", None):  # goose's; none means all of them
        values.setdefault("enabled_tools", tools)
    if isinstance(timeout := values.get("timeout"), dict):  # opencode's, in milliseconds
        del values["timeout"]
        for key, name in (("startup", "startup_timeout_ms"), ("request", "tool_timeout_ms")):
            values |= {name: timeout[key]} if key in timeout else {}
    return plain


def respelled_login(oauth: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object ``oauth`` of an entry in this program's spelling."""
    return {_LOGIN_KEYS.get(_folded(key), key): value for key, value in oauth.items()}


def _read_command(values: dict[str, Any]) -> None:
    """Take apart a command with its arguments (opencode's list, an object of Zed's)."""
    command = values.get("command")
    if isinstance(command, dict):
        inner = plain_entry({**command, "command": command.get("path")}).values
        values |= {key: inner[key] for key in ("command", "args", "env") if key in inner}
    elif isinstance(command, list) and command:
        more = values.get("args")
        values["command"] = command[0]
        values["args"] = [*command[1:], *(more if isinstance(more, list) else ())]


def _read_variables(values: dict[str, Any]) -> None:
    """Write variables that an entry only names (Codex, goose) as references."""
    names, headers = values.pop("env_vars", None), values.pop("env_http_headers", None)
    token = values.pop("bearer_token_env_var", None)
    added: dict[str, dict[str, str]] = {"env": {}, "headers": {}}
    for each in names if isinstance(names, list) else ():
        name = each.get("name") if isinstance(each, dict) else each
        added["env"][str(name)] = f"${{{name}}}"
    for header, name in headers.items() if isinstance(headers, dict) else ():
        added["headers"][header] = f"${{{name}}}"
    if token:
        added["headers"]["Authorization"] = f"Bearer ${{{token}}}"
    for key, table in added.items():
        if table and isinstance(values.get(key, {}), dict):
            values[key] = table | values.get(key, {})


def _read_sandbox(plain: PlainEntry) -> None:
    """Read VS Code's form of ``sandbox``, which counts where ``sandboxEnabled`` is true."""
    values, box = plain.values, plain.values.get("sandbox")
    enabled = values.pop("sandboxEnabled", None)
    parts = ("filesystem", "network")
    if isinstance(box, dict) and any(isinstance(box.get(part), dict) for part in parts):
        rules = {key: value for part in parts for key, value in (box.get(part) or {}).items()}
        known = {"allowWrite": "write", "allowedDomains": "hosts"}
        values["sandbox"] = {name: rules[key] for key, name in known.items() if key in rules}
        plain.unknown += [f"sandbox.{key}" for key in rules if key not in known]
        enabled = bool(enabled)
    if enabled is False:
        values.pop("sandbox", None)
    elif enabled:
        values["sandbox"] = values.get("sandbox") or True


def _read_login(plain: PlainEntry) -> None:
    """Read Cursor's ``auth`` and Codex's ``scopes`` as parts of ``oauth``."""
    values = plain.values
    if isinstance(values.get("oauth"), bool):
        del values["oauth"]
    auth, scopes = values.pop("auth", None), values.pop("scopes", None)
    if isinstance(auth, dict):
        values.setdefault("oauth", auth)
    elif auth not in (None, "", "oauth"):
        plain.unknown.append("auth")
    if scopes:
        oauth = values.get("oauth", {})
        values["oauth"] = {"scopes": scopes, **oauth} if isinstance(oauth, dict) else oauth
