"""Resolves the recipients that models write to declared tools. A *recipient* is the address of a
Harmony message (``to=functions.get_weather``), elsewhere the tool's name. gpt-oss's own tools are
``python``, ``browser.*``, ``container.exec``: https://cookbook.openai.com/articles/openai-harmony."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tools.sanitize import strip_hidden

NON_TOOL_RECIPIENTS = frozenset({"assistant", "user", "all"})
"""Recipients that are not tools: a message to them is text, not a call."""

PYTHON_TOOL = "python"
"""gpt-oss's own tool for code; the body of its calls is code instead of JSON."""
TRAINED_NAMESPACES = frozenset({PYTHON_TOOL, "browser", "container"})
"""Namespaces of gpt-oss's own tools, normally called in analysis; others are in ``functions``."""
BUILTIN_TOOL_SERVERS = {
    PYTHON_TOOL: ("code_interpreter", "python"),
    "container.exec": ("shell", "exec"),
}
"""Server and name of gpt-oss's own tools that differ here; it also calls those not offered."""
TOOL_ALIASES = {
    PYTHON_TOOL: PYTHON_TOOL,  # and what a model writes behind it: python.run
    "code_interpreter": PYTHON_TOOL,
    "shell": "container.exec",
    **dict.fromkeys(
        ("web_search", "web_search_preview", "web.run", "web.search"), "browser.search"
    ),
}

_SHELL_WORDS = frozenset(
    ["bash", "sh", "zsh", "shell", "terminal", "console", "cmd", "command", "powershell"]
)
"""Words in the names that models give a tool which runs commands."""
_NAMESPACE_PREFIXES = re.compile(r"^(?:(?:functions|mcp)\.)+")
_GENERAL_NAMESPACES = re.compile(r"^(?:(?:functions?|mcp|tools?|multi_tool_use)\.)+", re.IGNORECASE)


_LEADING_MARKUP = re.compile(r"(?:\s*<\|\w*\|>)+\s*")
_CHANNEL_TAIL = re.compile(r"\.+(?:analysis|commentary|final)\W*\Z")
_SEPARATORS = re.compile(r"(?:__|[^\w-])+")
_NOT_NAME_CHARACTER = re.compile(r"[^\w.-]")


def without_markup(name: str) -> str:
    """Return the name without the special tokens that it spells, and without what is behind it."""
    leading = _LEADING_MARKUP.match(name)
    return name[leading.end() if leading else 0 :].partition("<|")[0].strip()


def header_name(name: str) -> str:
    """Make a name of a model or a client safe as one word of a header; markup behind it is cut off."""
    name = strip_hidden(without_markup(name)).strip()
    return _NOT_NAME_CHARACTER.sub("_", name)[:256] or "unknown"


def plain_name(name: str) -> str:
    """Return the name without ``functions.`` and without the rest of a header: ``f..commentary``."""
    return _CHANNEL_TAIL.sub("", _NAMESPACE_PREFIXES.sub("", without_markup(name)))


def _normalised(name: str) -> str:
    """The name without prefixes, and with ``.`` as the only separator: equal for all spellings."""
    return _NAMESPACE_PREFIXES.sub("", _SEPARATORS.sub(".", name).strip("."))


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


class Recipients:
    """The tools that a conversation declares, by canonical names (``functions.files__read``,
    ``python``, ``browser.search``). An alias also matches every name below it: ``code_interpreter`` →
    ``python`` matches ``mcp.code_interpreter`` and ``code_interpreter.exec``."""

    def __init__(
        self,
        declared: Iterable[str],
        aliases: Mapping[str, str] | None = None,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Index the names; ``schemas`` are the JSON Schemas of the arguments, by declared name."""
        self._schemas = schemas or {}
        self.declared = tuple(dict.fromkeys(declared))
        self._declared_set = known = frozenset(self.declared)
        self._by_normalised_name: dict[str, str | None] = {}
        self._by_last_part: dict[str, str | None] = {}
        self._by_letters: dict[str, str | None] = {}
        for name in self.declared:
            normalised = _normalised(name)
            _add(self._by_normalised_name, normalised, name)
            _add(self._by_last_part, normalised.rpartition(".")[2], name)
            _add(self._by_letters, _letters(normalised), name)
        pairs = (aliases or {}).items()
        self._aliases = {_normalised(alias): name for alias, name in pairs if name in known}

    def as_json(self) -> dict[str, Any]:
        return {"declared": self.declared, "aliases": self._aliases, "schemas": self._schemas}

    def resolve(self, raw: str) -> str | None:
        """Return the declared name that ``raw`` means, or None. Tries the name; with or without
        ``functions.``; without ``mcp.``; with equal separators (``.``, ``__``, a blank); an alias, or a
        name below one; a last part of only one tool; without a header's rest (``f.commentary``)."""
        suffix = raw.removeprefix("mcp.")
        bare = raw.removeprefix("functions.")
        for name in (raw, f"functions.{raw}", bare, suffix, f"functions.{suffix}"):
            if name in self._declared_set:
                return name
        normalised = _normalised(raw)
        found = (
            self._by_normalised_name.get(normalised)
            or self._resolve_alias(normalised)
            or self._by_last_part.get(normalised)
        )
        rest = without_markup(raw) if "<|" in raw else _CHANNEL_TAIL.sub("", raw)
        return found or (self.resolve(rest) if rest != raw else None)

    def resolve_recipient(self, raw: str) -> str | None:
        """Resolve a name after ``to=``, which may also have the letters of one tool only, in any case
        and with any punctuation: ``tools.Get-Weather``."""
        if found := self.resolve(raw):
            return found
        letters = _letters(_GENERAL_NAMESPACES.sub("", raw))
        return self._by_letters.get(letters) if letters else None

    def argument_schema(self, name: str) -> Mapping[str, Any]:
        return self._schemas.get(name, {})

    def nearest(self, raw: str, limit: int = 3) -> list[str]:
        """Return at most ``limit`` declared names, the most similar to ``raw`` first."""
        normalised = _normalised(raw)
        names = {_normalised(name): name for name in self.declared}
        matches = difflib.get_close_matches(normalised, names, limit, cutoff=0.4)
        last = normalised.rpartition(".")[2]
        matches += [name for name in names if last and name.rpartition(".")[2] == last]
        if not _SHELL_WORDS.isdisjoint(re.split(r"[._-]", normalised.lower())):
            matches = [name for name in names if names[name] == "container.exec"] + matches
        matches = matches or difflib.get_close_matches(normalised, names, limit, cutoff=0.0)
        return [names[name] for name in dict.fromkeys(matches)][:limit]

    def _resolve_alias(self, normalised: str) -> str | None:
        while normalised:
            if normalised in self._aliases:
                return self._aliases[normalised]
            normalised = normalised.rpartition(".")[0]
        return None


class AnyRecipient(Recipients):
    """Recipients without known tools: every recipient is taken as it is written."""

    def __init__(self) -> None:
        super().__init__(())

    def resolve_recipient(self, raw: str) -> str | None:
        return raw


def _add(names: dict[str, str | None], key: str, name: str) -> None:
    """Add a name under a key; a key of two tools is ambiguous and resolves to neither."""
    names[key] = None if key in names else name
