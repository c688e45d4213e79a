"""The configuration of each coding agent for a server of this machine: `clients.toml`, and what is put
into its texts."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

CLIENTS_FILE = Path(__file__).with_name("clients.toml")
TIMEOUT_MS = 3_600_000
"""Timeout of clients: a long prompt on a CPU takes longer than they usually wait."""
CLAUDE_CODE_WINDOW = 100_000
"""The smallest window that Claude Code takes; a percentage of it stands for a smaller context."""
NUMBERS = ("context", "prompt", "output", "ms", "window", "percent")


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """A table of clients.toml, which explains the fields."""

    title: str
    install: str
    api: str
    environment: Mapping[str, Any]
    arguments: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    files: Mapping[str, Any] = field(default_factory=dict)
    wrap: list[str] = field(default_factory=lambda: ["", ""])
    path: str = ""
    use: str = ""
    saved: Mapping[str, Any] = field(default_factory=dict)


@cache
def profiles() -> dict[str, ClientProfile]:
    """The clients by the names of their programs."""
    tables = tomllib.loads(CLIENTS_FILE.read_text("utf-8"))
    return {name: ClientProfile(**table) for name, table in tables.items()}


def fields_of(
    root: str, key: str, model: str, context: int | None, folder: object
) -> dict[str, Any]:
    """The values of the texts' names. ``context``: tokens; None: not known yet."""
    numbers: dict[str, Any] = {"context": context, "ms": TIMEOUT_MS}
    if context is not None:
        output = context // 4
        numbers |= {"output": output, "prompt": context - output}
        numbers["window"] = max(CLAUDE_CODE_WINDOW, context)
        numbers["percent"] = 80 * context // numbers["window"]
    fields: dict[str, Any] = {name: numbers.get(name) or f"<{name}>" for name in NUMBERS}
    fields |= {f"{name}_text": str(number) for name, number in fields.items()}
    texts = {"url": f"{root}/v1", "root": root, "key": key, "model": model, "folder": folder}
    return fields | texts


def filled(value: Any, fields: Mapping[str, Any]) -> Any:
    """Put the fields into the texts of a value; a text that is only a number's name becomes it."""
    match value:
        case str() if value[1:-1] in NUMBERS and value == f"{{{value[1:-1]}}}":
            return fields[value[1:-1]]
        case str():
            return value.format_map(fields)
        case dict():
            return {filled(key, fields): filled(each, fields) for key, each in value.items()}
        case list():
            return [filled(each, fields) for each in value]
        case _:
            return value


def as_text(value: Any) -> str:
    """A filled value as a variable or a file has it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
