"""Reads the corpus of requests (README.md beside this file) and checks it."""

from __future__ import annotations

import ast
import json
import re
import signal
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agent.tiny.train.words import Split, belongs

FOLDER = Path(__file__).parent
TABLES = (
    "intent",
    "follow",
    "files",
    "described",
    "function",
    "sequence",
    "chain",
    "decline",
    "chat",
    "odd",
)
"""What a file may contain."""
SLOT = re.compile(r"\{([a-z_]\w*)\}")
"""A slot in a request or in code."""
MARK = re.compile(r"\{(?:(\d)\.)?(\w+)=([^{}|]*)(?:\|([^{}]*))?\}")
"""An argument in a request: number of the call, parameter, value, the text if it is another."""


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """One table of a file."""

    table: str
    fields: dict[str, Any]
    path: Path

    @property
    def requests(self) -> list[str]:
        """The requests, one string each."""
        return split_lines(self.fields["requests"])


def split_lines(text: str | list[str]) -> list[str]:
    """The lines of a block that are not empty; a list is taken as it is."""
    return text if isinstance(text, list) else [line for line in text.splitlines() if line.strip()]


@dataclass(frozen=True, slots=True)
class MarkedRequest:
    """A request for functions: its parts, in order, of which some are arguments."""

    parts: tuple[str | tuple[int, str, str, str], ...]
    """Texts, and arguments as (index of the call, parameter, value, text in the request)."""

    @property
    def text(self) -> str:
        """The request as it is typed."""
        return "".join(part if isinstance(part, str) else part[3] for part in self.parts)

    def arguments(self, call: int) -> dict[str, str]:
        """The arguments of one call, as text."""
        return {
            part[1]: part[2] for part in self.parts if isinstance(part, tuple) and part[0] == call
        }


def parse_marks(request: str) -> MarkedRequest:
    """Read a request with its marked arguments."""
    parts: list[str | tuple[int, str, str, str]] = []
    at = 0
    for found in MARK.finditer(request):
        parts.append(request[at : found.start()])
        number, name, value, text = found.groups()
        parts.append((int(number or 1) - 1, name, value, value if text is None else text))
        at = found.end()
    parts.append(request[at:])
    return MarkedRequest(tuple(part for part in parts if part))


def read_file(path: Path) -> Iterator[CorpusEntry]:
    """Read the entries of one file. Raises ValueError for broken TOML or unknown tables."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    if unknown := document.keys() - set(TABLES):
        raise ValueError(f"unknown tables: {', '.join(sorted(unknown))}")
    for table, entries in document.items():
        for fields in entries:
            yield CorpusEntry(table, fields, path)


@cache
def entries(table: str) -> tuple[CorpusEntry, ...]:
    """All entries of one table, in the order of the files."""
    return tuple(
        entry
        for path in sorted(FOLDER.glob("*.toml"))
        for entry in read_file(path)
        if entry.table == table
    )


@cache
def requests_of(table: str, split: Split) -> tuple[tuple[CorpusEntry, tuple[str, ...]], ...]:
    """The entries of a table with their requests of one split; those without any are left out."""
    pairs = (
        (entry, tuple(line for line in entry.requests if belongs(line, split)))
        for entry in entries(table)
    )
    return tuple(pair for pair in pairs if pair[1])


def convert_argument(schema: dict[str, Any], value: str) -> Any:
    """The value of an argument by its parameter's schema. Raises ValueError if it does not fit."""
    match schema.get("type"):
        case "integer":
            return int(value)
        case "number":
            return json.loads(value)
        case "boolean":
            return {"true": True, "false": False}[value]
        case "array":
            return [item.strip() for item in value.split(",")]
        case "string":
            if "enum" in schema and value not in schema["enum"]:
                raise ValueError(f"{value!r} is not in the enum")
            return value
        case other:
            raise ValueError(f"the type {other!r} is not supported")


CODE_SECONDS = 0.2
"""Seconds after which code is stopped."""


def _stop_code(number: int, frame: object) -> None:
    raise TimeoutError


def run_code(code: str) -> str:
    """The value of the code's last line, as python shows it.

    Raises what the code raises, and TimeoutError after `CODE_SECONDS`; only in the main thread.
    """
    tree = ast.parse(code)
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        raise ValueError("the last line is not an expression")
    names: dict[str, Any] = {}
    signal.signal(signal.SIGALRM, _stop_code)
    signal.setitimer(signal.ITIMER_REAL, CODE_SECONDS)
    try:
        exec(compile(tree, "code", "exec"), names)
        return repr(eval(compile(ast.Expression(last.value), "code", "eval"), names))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
