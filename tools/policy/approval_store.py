"""What a person has allowed for good: tools as they were defined then, and folders' own servers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import private_files
from tools.config.servers import ServerConfig
from tools.types import Tool


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as it is offered now: what an approval is given to."""

    text: str
    """For people, and for the difference to a later one."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def define(tool: Tool, config: ServerConfig) -> Definition:
    """Everything that decides what a call does: what runs it, and what it says of itself."""
    lines = [
        f"server: {tool.server}",
        f"runs: {config.origin or ('built in' if config.hand else config.url or config.command)}",
        f"environment: {', '.join(sorted(config.env)) or '-'}",
        f"headers: {', '.join(sorted(config.headers)) or '-'}",
        f"their values, digested: {config.given or '-'}",
        f"folder: {config.cwd or '-'}",
        f"tool: {tool.name}",
        f"only reads: {'yes' if tool.read_only else 'no'}",
        f"description: {tool.description}",
        "arguments: " + json.dumps(tool.parameters, indent=1, sort_keys=True, ensure_ascii=False),
    ]
    return Definition("\n".join(lines))


class Memory:
    """A file of ours that only its owner can read; what is in it counts for one folder."""

    def __init__(self, path: Path | None, root: Path) -> None:
        """``path``: None remembers nothing beyond this process. ``root``: the folder worked in."""
        self.path, self._root = path, str(root)
        self._session: dict[str, Any] = {}

    def definition(self, server: str, tool: str) -> Definition | None:
        """The tool as it was when the person allowed it for good."""
        text = self._folder(self._read()).get("tools", {}).get(server, {}).get(tool)
        return Definition(text) if isinstance(text, str) else None

    def allow(self, server: str, tool: str, definition: Definition) -> None:
        """From now on; raises OSError where that cannot be written."""
        data = self._read()
        tools = self._folder(data).setdefault("tools", {})
        tools.setdefault(server, {})[tool] = definition.text
        self._write(data)

    def trusts(self, digest: str) -> bool:
        """Whether the folder's own servers, as they are now, may be started."""
        return self._folder(self._read()).get("servers") == digest

    def trust(self, digest: str) -> None:
        """They may; raises OSError where that cannot be written."""
        data = self._read()
        self._folder(data)["servers"] = digest
        self._write(data)

    def _folder(self, data: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = data.setdefault("folders", {}).setdefault(self._root, {})
        return found

    def _read(self) -> dict[str, Any]:
        if self.path is None:
            return self._session
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) and isinstance(data.get("folders"), dict) else {}

    def _write(self, data: dict[str, Any]) -> None:
        if self.path is None:
            return
        private_files.write(self.path, json.dumps(data, indent=1))
