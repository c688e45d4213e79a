"""The servers in a project's own mcp.json: untrusted, so none starts before a person agreed."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.config.entry import command_line, env_and_headers
from tools.config.file import folder_environment, read_file
from tools.config.servers import ConfigError, ServerConfig, default_sandbox
from tools.config.spellings import plain_entry
from tools.policy.approval_store import ApprovalStore
from tools.run_later import PROJECT_FILES
from tools.sanitize import strip_hidden

UNTRUSTED = "is not started: this folder's servers are not trusted yet (--trust-project)"


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """A project's file with servers in it."""

    path: Path
    servers: list[ServerConfig]
    digest: str
    """SHA-256 of the servers' entries: what a person agrees to."""
    entries: Mapping[str, Any]

    def command_lines(self) -> list[str]:
        """One line for each enabled server, also one with a problem: what would run, unabridged, and
        which values of this machine it would get."""
        lines = []
        for server in self.servers:
            entry = self.entries.get(server.name)
            if not server.enabled or not isinstance(entry, dict):
                continue
            more = "".join(f"  [{key}: {value}]" for key, value in env_and_headers(entry).items())
            where = f"  (in {cwd})" if (cwd := plain_entry(entry).values.get("cwd")) else ""
            problem = f"  ({server.problem})" if server.problem else ""
            rights = server.sandbox.description if server.sandbox else "with all your rights"
            rights = f"  ({rights})" if server.command else ""
            line = f"{server.name}: {command_line(entry)}{where}{more}{rights}{problem}"
            lines.append(_in_a_line(line))
        return lines

    @property
    def startable(self) -> bool:
        return any(server.enabled and not server.problem for server in self.servers)


def find_project(root: Path, env: Mapping[str, str] = os.environ) -> ProjectConfig | None:
    """Read the project file of a folder; None: no servers. A broken one is a server with a problem."""
    for name in PROJECT_FILES:
        path = root / name
        if not path.is_file():
            continue
        try:
            file = read_file(path, folder_environment(root, env))
        except ConfigError as error:
            if name != PROJECT_FILES[0] and "mcpServers" in str(error):
                continue  # only the name with the dot is MCP's own; the other may be anything
            broken = ServerConfig(name, from_project=True, problem=f"cannot be used: {error}")
            return ProjectConfig(path, [broken], "", {})
        text = json.dumps(file.entries, sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        servers = [_project_server(s, path, file.entries.get(s.name)) for s in file.servers]
        return ProjectConfig(path, servers, digest, file.entries)
    return None


def _project_server(server: ServerConfig, path: Path, entry: object) -> ServerConfig:
    """Return a folder's server, which runs in the sandbox unless its entry says otherwise."""
    problem, sandbox = server.problem, server.sandbox
    if server.command and not (isinstance(entry, dict) and "sandbox" in entry):
        sandbox = default_sandbox(server.command)
    if "." in server.name:  # it would read like a tool of another server's in a rule
        problem = f"cannot be used: {path}: a folder's server may have no dot in its name"
    # Its relative paths begin at the folder, wherever this program was started.
    cwd = str(path.parent.absolute() / (server.cwd or ""))
    return replace(server, from_project=True, problem=problem, sandbox=sandbox, cwd=cwd)


def approved_servers(
    project: ProjectConfig | None, store: ApprovalStore, *, trust: bool | str
) -> list[ServerConfig]:
    """Return a project's servers; each with a ``problem`` until a person agrees to start them.
    ``trust``: the person has just agreed, or to those with this digest. Raises ConfigError."""
    if project is None:
        return []
    is_trusted = store.trusts("servers", project.digest)
    if not is_trusted and (trust is True or (trust and trust == project.digest)):
        try:
            store.trust("servers", project.digest)
            is_trusted = True
        except OSError as error:
            raise ConfigError(f"{store.path} cannot be written: {error.strerror}") from error
    if is_trusted:
        return project.servers
    return [
        replace(server, problem=f"{UNTRUSTED}: {_in_a_line(server.command_line)} ({project.path})")
        if server.enabled and not server.problem
        else server
        for server in project.servers
    ]


def _in_a_line(text: str) -> str:
    return strip_hidden(text).replace("\n", "\\n")
