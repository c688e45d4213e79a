"""Reads one server's entry of an mcp.json, in the spellings of other clients. By hand: importing
pydantic takes longer than all that is done before the app's first paint."""

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from agent.errors import describe_cause
from tools.config import servers
from tools.config.servers import ConfigError, OAuthSettings, Rule, SandboxSettings, ServerConfig
from tools.config.spellings import plain_entry, respelled_login

_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_URL_PASSWORD = re.compile(r"(?<=//)([^/@:]*:)[^/@]+(?=@)")
_FOREIGN = re.compile(r"\$\{(?:input|command|config|file):[^}]*\}")
_TYPES: dict[str, Literal["", "stdio", "http", "sse"]] = {
    "stdio": "stdio", "local": "stdio", "http": "http", "streamablehttp": "http", "sse": "sse",
    "remote": "",
}  # fmt: skip
_TIMEOUT_KEYS = (
    *("startup_timeout_sec", "startup_timeout_ms", "startup_timeout"),
    *("tool_timeout_sec", "tool_timeout_ms", "timeout"),
)
"""Spellings of each time, the one that counts first."""
MAX_ENV_FILE_BYTES = 1 << 20
_ENV_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([\w.]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\n]*))""",
    re.M,
)
_FLAG_KEYS = ("enabled", "required", "disabled", "trust", "constrain", "public")
_RULES: dict[str, Rule] = {rule: rule for rule in get_args(Rule)}
_MODES: dict[str, Rule] = {"auto": "auto", "writes": "auto", "prompt": "ask", "approve": "allow"}
"""Values of Codex's ``default_tools_approval_mode``."""
_OAUTH_TEXTS = ("client_id", "client_secret", "client_metadata_url", "grant_type")
_OAUTH_KEYS = (*_OAUTH_TEXTS, "scopes", "redirect_port")
_GRANT_TYPES = ("", "authorization_code", "client_credentials")
_METADATA_URL = re.compile(r"https://[^/]+/.")
PROTOCOL_VERSIONS = ("2025-11-25", "2026-07-28")
"""Versions that ``protocol`` may name, the newest of either era; the first negotiates older ones."""
MIN_MILLISECONDS = 1000
"""From this number on a ``timeout`` is in milliseconds, as some clients write it."""


def read_entry(
    name: str, entry: Any, env: Mapping[str, str], folder: Path | None = None
) -> ServerConfig:
    """Read an entry; raises ConfigError, whose message is the predicate of a sentence about it.
    ``folder``: of the file that it is in; None: its ``envFile`` is not read."""
    if not isinstance(entry, dict):
        raise ConfigError("must be an object")
    if not name.strip():
        raise ConfigError("needs a name")
    plain = plain_entry(entry)
    if plain.rivals:
        raise ConfigError(f"has a {' and a '.join(plain.rivals)}; remove one of them")
    reader = _EntryReader(plain.values, env)
    server = reader.read(name, folder)
    line, digest = command_line(entry), _secrets_digest(entry)
    ignored = (*plain.unknown, *reader.ignored)
    return replace(server, command_line=line, secrets_digest=digest, ignored=ignored)


def command_line(entry: Mapping[str, Any]) -> str:
    """Return an entry's command or URL as written, but for a password; of a wrong entry too."""
    entry = plain_entry(entry).values
    if not (command := entry.get("command")):
        # The variable that an entry asks for is shown; its password is not.
        return _URL_PASSWORD.sub(
            lambda m: m[0] if "${" in m[0] else f"{m[1]}…", str(entry.get("url") or "")
        )
    args = entry.get("args")
    words = [command, *(args if isinstance(args, list) else ())]
    return shlex.join(str(word) for word in words)


def env_and_headers(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's environment and headers as they are written; works for any entry."""
    entry = plain_entry(entry).values
    tables = (entry.get("env"), entry.get("headers"))
    values = {k: v for table in tables if isinstance(table, dict) for k, v in table.items()}
    return values | {key: entry[key] for key in ("envFile", "oauth") if entry.get(key)}


def _secrets_digest(entry: Mapping[str, Any]) -> str:
    """SHA-256 of an entry's secrets: environment, headers, password, OAuth client; empty: none."""
    plain = plain_entry(entry).values
    passwords = [match[0] for match in _URL_PASSWORD.finditer(str(plain.get("url") or ""))]
    others = [plain[key] for key in ("oauth", "envFile") if plain.get(key)]
    if not (env_and_headers(entry) or passwords or others):
        return ""
    values = [plain.get("env"), plain.get("headers"), *passwords, *others]
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _EntryReader:
    """Reads the values of one entry, or of an object in it; all methods raise ConfigError."""

    def __init__(self, entry: dict[str, Any], env: Mapping[str, str], prefix: str = "") -> None:
        """``prefix``: of its keys in messages."""
        self._entry, self._env, self._prefix = entry, env, prefix
        self.env_files: tuple[str, ...] = ()
        self.ignored: list[str] = []
        """Keys of its objects that are not understood."""

    def read(self, name: str, folder: Path | None) -> ServerConfig:
        written = self._entry.get("type")
        command, url = self._path("command"), (self._text("url") or "").strip()
        kind = _TYPES.get(re.sub(r"[_-]", "", str(written)).lower(), "") if written else ""
        if written and not kind and written != "remote":
            raise ConfigError(f"unknown type {written!r}; known: stdio, http, sse")
        kind = kind or ("stdio" if command and not written else "")
        target = "command" if kind == "stdio" else "url"
        if not (command if target == "command" else url):
            raise ConfigError(f"needs a {target}" if written else "needs a command or a url")
        local = target == "command"
        flags = {key: self._flag(key) for key in _FLAG_KEYS}
        server = ServerConfig(
            name=name,
            command=(command or "") if local else "",
            args=tuple(map(_from_home, self._texts("args") or ())),
            env={**self._file_variables(folder), **self._table("env")},
            cwd=self._path("cwd"),
            url=None if local else url,
            transport="" if kind == "stdio" else kind,
            headers=servers.clean_headers(self._table("headers")),
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
        )
        if url and not url.lower().startswith(("http://", "https://")):
            raise ConfigError("the url must begin with https:// or http://")
        server = replace(server, env_files=self.env_files, **self._timeouts())
        return self._with_tools(server)

    # --- values ---

    def _text(self, key: str) -> str | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise ConfigError(f"{self._prefix}{key} must be a string")
        return self._expand(value)

    def _path(self, key: str) -> str | None:
        text = self._text(key)
        return text and _from_home(text)

    def _texts(self, key: str) -> tuple[str, ...] | None:
        value = self._entry.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(map(_is_word, value)):
            raise ConfigError(f"{self._prefix}{key} must be a list of strings")
        return tuple(self._expand(_word(item)) for item in value)

    def _table(self, key: str) -> dict[str, str]:
        value = self._entry.get(key) or {}
        if not isinstance(value, dict) or not all(v is None or _is_word(v) for v in value.values()):
            raise ConfigError(f"{key} must map names to strings")
        return {k: self._expand(_word(v)) for k, v in value.items() if v is not None}

    def _file_variables(self, folder: Path | None) -> dict[str, str]:
        """Read the variables of ``envFile``, whose path begins at the folder of the entry's file."""
        name = self._path("envFile")
        if not name or folder is None:
            return {}
        path, work = (folder / name).resolve(), Path(self._env.get("workspaceFolder", "/-"))
        is_inside, is_own = (p.is_relative_to(work.resolve()) for p in (path, folder.resolve()))
        if is_inside and not is_own:
            raise ConfigError(
                "may have no envFile in the folder that you work in, which may be a stranger's: name"
                " it in that folder's .mcp.json"
            )
        if is_own and not is_inside:
            raise ConfigError(f"may have no envFile outside of its folder: {path}")
        self.env_files = (str(folder / name), str(path))
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ConfigError(f"has an envFile that is not a regular file: {path}")
        try:
            with path.open("rb") as file:
                text = file.read(MAX_ENV_FILE_BYTES).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = describe_cause(error)
            raise ConfigError(f"has an envFile that cannot be read: {why}") from None
        variables = {}
        for variable, double, single, bare in _ENV_LINE.findall(text):
            bare = re.sub(r"(?:^|\s+)#.*", "", bare).strip()
            double = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), double)
            variables[variable] = double or single or bare
        return variables

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

        if unknown := _FOREIGN.search(text):
            raise ConfigError(f"{unknown[0]} is not supported; write ${{VARIABLE}} instead")
        return _VARIABLE.sub(substitute, text.replace("${/}", os.sep))

    def _sandbox(self, command: str | None) -> SandboxSettings | None:
        """Read ``sandbox``: true, or an object with ``write`` and ``hosts``."""
        value = self._entry.get("sandbox")
        if value is None or value is False:
            return None
        if command is None:
            raise ConfigError("sandbox is for servers with a command")
        if value is True:
            return servers.default_sandbox(command)
        if not isinstance(value, dict) or value.keys() - {"write", "hosts"}:
            raise ConfigError('sandbox must be true or {"write": [folders], "hosts": [hosts]}')
        from tools.networks import HostError, HostRule

        inner = _EntryReader(value, self._env, "sandbox.")
        try:
            hosts = tuple(str(HostRule.parse(host)) for host in inner._texts("hosts") or ())
        except HostError as error:
            raise ConfigError(f"sandbox.hosts: {error}") from None
        packages = "hosts" not in value and servers.default_sandbox(command).packages
        return SandboxSettings(inner._texts("write") or (), hosts, packages)

    # --- login and version ---

    def _oauth(self) -> OAuthSettings:
        entry = self._entry.get("oauth")
        if entry is None:
            return OAuthSettings()
        if not isinstance(entry, dict):
            raise ConfigError("oauth must be an object")
        values = respelled_login(entry)
        self.ignored += [f"oauth.{key}" for key in sorted(values.keys() - _OAUTH_KEYS)]
        if isinstance(values.get("scopes"), str):
            values["scopes"] = values["scopes"].split()
        inner = _EntryReader(values, self._env, "oauth.")
        texts = {key: inner._text(key) or "" for key in _OAUTH_TEXTS}
        if texts["grant_type"] not in _GRANT_TYPES:
            raise ConfigError(f"oauth.grant_type must be {' or '.join(_GRANT_TYPES[1:])}")
        if texts["grant_type"] == _GRANT_TYPES[2] and not texts["client_secret"]:
            raise ConfigError("oauth.grant_type client_credentials needs a client_secret")
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
        timeouts: dict[str, Any] = {}
        for key in _TIMEOUT_KEYS:
            if key in self._entry:
                name = "startup" if key.startswith("startup") else "tool"
                timeouts.setdefault(f"{name}_timeout_sec", _seconds(key, self._entry[key]))
        return timeouts

    def _rules(self, trust: bool) -> dict[str, Rule]:
        rules: dict[str, Rule] = {"": "allow"} if trust else {}
        if (mode := self._entry.get("default_tools_approval_mode")) is not None:
            rules[""] = _rule("default_tools_approval_mode", mode, _MODES)
        if "approve" in self._entry:
            rules[""] = _rule("approve", self._entry["approve"], _RULES)
        for key in ("autoApprove", "alwaysAllow"):
            allowed = dict.fromkeys(self._texts(key) or ())
            rules |= {"" if name == "*" else name: "allow" for name in allowed}
        return rules

    def _with_tools(self, server: ServerConfig) -> ServerConfig:
        """Apply ``tools``: a list of the tools to offer, or settings by tool name."""
        tools = self._entry.get("tools")
        if tools is None or tools == ["*"]:
            return server
        if isinstance(tools, list):
            return replace(server, enabled_tools=self._texts("tools"))
        if not isinstance(tools, dict) or {*map(type, tools.values())} - {dict, bool}:
            raise ConfigError("tools must be a list of names, or map names to settings")
        times, rules = dict(server.tool_timeouts), dict(server.rules)
        disabled = list(server.disabled_tools)
        for name, value in tools.items():
            settings = {"enabled": value} if isinstance(value, bool) else value
            unknown = settings.keys() - {"timeout", "approve", "approval_mode", "enabled"}
            self.ignored += [f"tools.{name}.{key}" for key in sorted(unknown)]
            if "timeout" in settings:
                times[name] = _seconds(f"tools.{name}.timeout", settings["timeout"])
            if "approve" in settings:
                rules[name] = _rule("approve", settings["approve"], _RULES)
            elif "approval_mode" in settings:
                rules[name] = _rule("approval_mode", settings["approval_mode"], _MODES)
            if settings.get("enabled", True) is not True:
                disabled.append(name)
        return replace(server, tool_timeouts=times, rules=rules, disabled_tools=tuple(disabled))


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_home(path: str) -> str:
    """Expand ``~`` where a path begins with it, as a shell does."""
    return str(Path(path).expanduser()) if path == "~" or path.startswith("~/") else path


def _rule(key: str, value: Any, known: Mapping[str, Rule]) -> Rule:
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{key} must be {' or '.join(known)}, not {value!r}")
    return known[value]


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{key} must be a number of seconds")
    is_short = key.endswith("_ms") or (key.endswith("timeout") and value >= MIN_MILLISECONDS)
    return value / 1000 if is_short else float(value)
