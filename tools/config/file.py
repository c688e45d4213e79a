"""Reads files with ``mcpServers``, the format that most MCP clients share."""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from tools.config.entry import read_entry
from tools.config.servers import ConfigError, Rule, ServerConfig

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*"|[{\[]\s*,)|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""A string or a comma after nothing, which are kept, or VS Code's and Zed's extensions of JSON:
comments and trailing commas."""


@dataclass(frozen=True, slots=True)
class McpFile:
    """The contents of an mcp.json."""

    path: Path
    servers: list[ServerConfig]
    """A server whose entry is wrong has a ``problem``, the predicate of a sentence about it."""
    approve: dict[str, Rule]
    """Rules by ``server`` or ``server.tool``, for built-in servers too."""
    entries: dict[str, Any]


def read_file(path: Path, env: Mapping[str, str]) -> McpFile:
    """Read a file; raises ConfigError if it is of no use. ``env``: of `folder_environment`."""
    data = load_json(path, without_comments)
    entries = servers_table(data) if isinstance(data, dict) else None
    if not isinstance(entries, dict):
        raise ConfigError(f'{path} has no "mcpServers" object')
    servers = []
    for name, entry in entries.items():
        if not isinstance(entry, dict) and name.startswith(("_", "$", "/")):
            continue  # a comment
        try:
            server = read_entry(name, entry, env, path.parent)
            servers.append(server)
            if server.ignored:
                log.warning("%s: %s is not understood in %s", name, server.ignored, path)
        except ConfigError as error:
            servers.append(ServerConfig(name, problem=f"cannot be used: {path}: {error}"))
    rules, known = data.get("approve", {}), get_args(Rule)
    if not isinstance(rules, dict) or any(rule not in known for rule in rules.values()):
        raise ConfigError(f'{path}: "approve" must map servers or tools to {", ".join(known)}')
    return McpFile(path, servers, rules, entries)


def own_servers(file: McpFile) -> list[ServerConfig]:
    """The servers of the person's own file. They start in its folder or ``cwd``; those that name
    ``${workspaceFolder}`` in the working folder, unless their command would take code from it."""
    servers = []
    for server in file.servers:
        names_folder = "${workspaceFolder" in json.dumps(file.entries.get(server.name))
        takes_code = server.runs_package or "-m" in server.args
        if not server.cwd and (takes_code or not names_folder):
            server = replace(server, start_folder=file.path.parent)
        servers.append(server)
    return servers


def read_servers(path: Path, env: Mapping[str, str]) -> list[ServerConfig]:
    """Read a file that a person has just named: as `read_file`, but any problem is a ConfigError."""
    servers = read_file(path, env).servers
    for server in servers:
        if server.problem:
            raise ConfigError(f"the server {server.name} {server.problem}")
    return servers


def folder_environment(folder: Path, env: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the variables that entries may name, with those that VS Code and Cursor add."""
    named = {"workspaceFolder": str(folder), "workspaceFolderBasename": folder.name}
    return {**env, **named, "userHome": str(Path.home()), "pathSeparator": os.sep}


def without_comments(text: str) -> str:
    """Blank comments and last commas, also before a comment; all else keeps line and column."""
    for _ in range(2):
        text = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    return text


def servers_table(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``mcpServers``, or ``servers`` as VS Code calls it; the value may be anything."""
    servers: dict[str, Any] = data.get("mcpServers", data.get("servers", None))
    return servers


def object_at(about: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key; an empty one if there is none."""
    value = about.get(key)
    return value if isinstance(value, dict) else {}


def load_json(path: Path, prepare: Callable[[str], str] = str, limit: int = MAX_FILE_BYTES) -> Any:
    """Read JSON that ``prepare`` makes of a file; raises ConfigError, with a syntax error's place."""
    try:
        if path.is_fifo() and path.parts[:2] != ("/", "dev"):  # the shell's <(…) has a writer
            raise ConfigError(f"{path} is a pipe")
        with path.open("rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ConfigError(f"{path} is longer than {limit >> 20} MiB")
        return json.loads(prepare(data.decode("utf-8-sig")))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path} is not valid JSON: {error.msg} at {where}") from None
    except ValueError:
        raise ConfigError(f"{path} has a number that is too long") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None
