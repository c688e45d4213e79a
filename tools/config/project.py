"""The servers that a folder brings along: another's words, so nothing of them runs unasked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.config.entry import given, origin
from tools.config.project_files import FILES
from tools.config.servers import ConfigError, ServerConfig, read_file
from tools.policy.approval_store import Memory
from tools.sanitize import visible

UNTRUSTED = "is not started, for nobody has agreed to this folder's servers (--trust-project does)"


@dataclass(frozen=True, slots=True)
class Project:
    path: Path
    servers: list[ServerConfig]
    digest: str
    """Of all that the file says of its servers."""
    entries: Mapping[str, Any]

    def commands(self) -> list[str]:
        """What would run, as it is written there, and what of this machine's it would be given: one
        line a server, with nothing left out. What is wrong is said: once it is not, it would run."""
        lines = []
        for one in self.servers:
            entry = self.entries.get(one.name)
            if not one.enabled or not isinstance(entry, dict):
                continue
            more = "".join(f"  [{key}: {value}]" for key, value in given(entry).items())
            where = f"  (in {entry['cwd']})" if entry.get("cwd") else ""
            wrong = f"  ({one.problem})" if one.problem else ""
            line = f"{one.name}: {origin(entry)}{where}{more}{wrong}"
            lines.append(visible(line).replace("\n", "\\n"))
        return lines

    @property
    def possible(self) -> bool:
        """Some of it could be started now."""
        return any(one.enabled and not one.problem for one in self.servers)

    def trusted(self, memory: Memory) -> bool:
        return memory.trusts(self.digest)


def find(root: Path, env: Mapping[str, str] = os.environ) -> Project | None:
    """The folder's file, where it has one with servers in it; one that is broken says so in the
    place of a server."""
    for name in FILES:
        path = root / name
        if not path.is_file():
            continue
        try:
            file = read_file(path, env)
        except ConfigError as error:
            if name != FILES[0] and "mcpServers" in str(error):
                continue  # only the name with the dot is MCP's own; the other may be anything
            return Project(path, [ServerConfig(name, project=True, problem=str(error))], "", {})
        entries = file.entries()
        text = json.dumps(entries, sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return Project(path, [_brought(one, path) for one in file.servers], digest, entries)
    return None


def _brought(one: ServerConfig, path: Path) -> ServerConfig:
    problem = one.problem
    if "." in one.name:  # it would read like a tool of another server's in a rule
        problem = f"{path}: server {one.name!r}: a folder's server may have no dot in its name"
    return replace(one, project=True, problem=problem)


def admitted(project: Project | None, memory: Memory, *, trust: bool | str) -> list[ServerConfig]:
    """Its servers; where nobody has agreed to start them, each says so instead of starting.

    ``trust``: the person has just said so; a text: of the servers with this digest, which need not
    be those that are there by now.
    """
    if project is None:
        return []
    trust = trust is True or (bool(trust) and trust == project.digest)
    if trust and not project.trusted(memory):
        try:
            memory.trust(project.digest)
        except OSError as error:
            raise ConfigError(f"{memory.path} cannot be written: {error.strerror}") from error
    if trust or project.trusted(memory):
        return project.servers
    return [
        replace(one, problem=f"{UNTRUSTED}: {one.origin} ({project.path})")
        if one.enabled and not one.problem
        else one
        for one in project.servers
    ]
