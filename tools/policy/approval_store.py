"""Remembers what a person has approved for good: tools as they were then, and projects' servers."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent.util import private_files
from tools.config.servers import ServerConfig
from tools.policy.rules import explain_rule
from tools.types import Tool

Kind = Literal["rule", "tool", "servers", "skills", "home"]


def tool_definition(tool: Tool, config: ServerConfig) -> str:
    """Describe everything that decides what a call does, what runs it and the tool's own words, in
    lines for a person to read and to compare. An approval holds for exactly this text."""
    runs = config.command_line or ("built in" if config.builtin else config.url or config.command)
    lines = [
        f"server: {tool.server}",
        f"runs: {runs}",
        f"environment: {', '.join(sorted(config.env)) or '-'}",
        f"headers: {', '.join(sorted(config.headers)) or '-'}",
        f"their values, digested: {config.secrets_digest or '-'}",
        f"folder: {config.cwd or '-'}",
        f"tool: {tool.name}",
        f"only reads: {'yes' if tool.read_only else 'no'}",
        f"description: {tool.description}",
        "arguments: "
        + json.dumps(tool.model_parameters, indent=1, sort_keys=True, ensure_ascii=False),
    ]
    if tool.server_instructions:
        lines.append(f"instructions of its server: {tool.server_instructions}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class StoredApproval:
    """An approval as it is listed and revoked."""

    folder: str
    kind: Kind
    subject: str
    """The rule as it is stored; ``server · tool``; the digest of a folder's mcp.json or skills; or
    empty."""

    @property
    def id(self) -> str:
        """Eight characters that name it."""
        text = json.dumps([self.folder, self.kind, self.subject])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def title(self) -> str:
        titles = {"servers": "the servers of its mcp.json", "home": "the home folder as a root"}
        titles["skills"] = "the skills of its repository"
        return titles.get(self.kind, self.subject)

    @property
    def explanation(self) -> str:
        match self.kind:
            case "rule":
                return explain_rule(self.subject)
            case "servers":
                return "they start; a changed mcp.json asks again"
            case "skills":
                return "the model may read them; changed ones ask again"
            case "home":
                return "commands and the files tools may be offered there"
        if self.subject == "shell · exec":
            return "of a version without rules: it allows nothing any more"
        return "with any arguments, as long as the tool's definition stays the same"


def _subjects(table: dict[str, Any]) -> Iterator[tuple[Kind, str]]:
    """Yield the kinds and subjects of a folder's approvals; invalid entries are left out."""
    rules, servers = table.get("rules"), table.get("tools")
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, str):
            yield "rule", rule
    for server, tools in servers.items() if isinstance(servers, dict) else ():
        for tool in tools if isinstance(tools, dict) else ():
            yield "tool", f"{server} · {tool}"
    kinds: tuple[Kind, ...] = ("servers", "skills")
    yield from ((kind, str(table[kind])) for kind in kinds if kind in table)
    if table.get("home") is True:
        yield "home", ""


class ApprovalStore:
    """A private JSON file of approvals by folder; an approval counts in its folder only."""

    def __init__(self, path: Path | None, root: Path) -> None:
        """``path``: None remembers approvals in this process only. ``root``: the working folder."""
        self.path, self._root = path, str(root)
        self._session: dict[str, Any] = {}

    def approved_definition(self, server: str, tool: str) -> str | None:
        text = self._folder(self._read()).get("tools", {}).get(server, {}).get(tool)
        return text if isinstance(text, str) else None

    def approve(self, server: str, tool: str, definition: str) -> None:
        with self._changed() as data:
            self._folder(data).setdefault("tools", {}).setdefault(server, {})[tool] = definition

    def rules(self) -> frozenset[str]:
        subjects = _subjects(self._folder(self._read()))
        return frozenset(subject for kind, subject in subjects if kind == "rule")

    def add_rules(self, rules: Sequence[str]) -> None:
        with self._changed() as data:
            stored = self._folder(data).setdefault("rules", [])
            stored += [rule for rule in rules if rule not in stored]

    def trusts(self, kind: Literal["servers", "skills"], digest: str) -> bool:
        return self._folder(self._read()).get(kind) == digest

    def trust(self, kind: Literal["servers", "skills"], digest: str) -> None:
        """Trust the project's servers or skills with this digest; raises OSError."""
        with self._changed() as data:
            self._folder(data)[kind] = digest

    def allows_home(self) -> bool:
        """Return whether the person lets tools change this folder although it holds the home."""
        return self._folder(self._read()).get("home") is True

    def allow_home(self) -> None:
        """Let tools change this folder although it holds the home; raises OSError."""
        with self._changed() as data:
            self._folder(data)["home"] = True

    # --- all that is stored, of every folder ---

    def approvals(self) -> list[StoredApproval]:
        """Return all stored approvals, those of this store's folder first."""
        folders = self._read().get("folders", {})
        listed = [
            StoredApproval(folder, kind, subject)
            for folder, table in folders.items()
            if isinstance(table, dict)
            for kind, subject in _subjects(table)
        ]
        return sorted(listed, key=lambda approval: (approval.folder != self._root, approval.folder))

    def revoke(self, approval: StoredApproval) -> None:
        """Remove an approval; raises OSError."""
        with self._changed() as data:
            table = data.get("folders", {}).get(approval.folder, {})
            match approval.kind:
                case "rule":
                    rules = table.get("rules", ())
                    table["rules"] = [rule for rule in rules if rule != approval.subject]
                case "tool":
                    server, _, tool = approval.subject.partition(" · ")
                    table.get("tools", {}).get(server, {}).pop(tool, None)
                case "servers" | "skills" | "home":
                    table.pop(approval.kind, None)

    def _folder(self, data: dict[str, Any]) -> dict[str, Any]:
        table: dict[str, Any] = data.setdefault("folders", {}).setdefault(self._root, {})
        return table

    def _read(self) -> dict[str, Any]:
        if self.path is None:
            return self._session
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) and isinstance(data.get("folders"), dict) else {}

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        """Yield what is stored, and store it as it is afterwards. Raises OSError."""
        if self.path is None:
            yield self._session
            return
        with private_files.locked(self.path):
            data = self._read()
            yield data
            private_files.write_text(self.path, json.dumps(data, indent=1))
