"""Which declared tool a model means: the names that models write, matched to the names that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

PERSON = frozenset({"assistant", "user", "all"})
"""Recipients that are no tools: what is sent to them is said, not called."""

ALIASES = {"code_interpreter": "python", "shell": "container.exec"}
"""Other names of gpt-oss's own tools."""

_PREFIXES = re.compile(r"^(?:(?:functions|mcp)\.)+")


def _plain(name: str) -> str:
    """The name without its prefix, with ``.`` for ``__``: what two spellings of a tool share."""
    return _PREFIXES.sub("", name).replace("__", ".")


class Recipients:
    """The tools that a conversation declares.

    ``declared`` are canonical names (``functions.files__read``, ``python``, ``browser.search``).
    An alias stands for a declared name, and so does everything below it: ``code_interpreter`` →
    ``python`` also catches ``mcp.code_interpreter`` and ``code_interpreter.exec``.
    """

    def __init__(
        self,
        declared: Iterable[str],
        aliases: Mapping[str, str] | None = None,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """``schemas``: the JSON Schema of each tool's arguments, by declared name."""
        self._schemas = schemas or {}
        self.declared = tuple(dict.fromkeys(declared))
        self._exact = frozenset(self.declared)
        self._plain: dict[str, str | None] = {}
        self._bare: dict[str, str | None] = {}
        for name in self.declared:
            plain = _plain(name)
            _add(self._plain, plain, name)
            _add(self._bare, plain.rpartition(".")[2], name)
        self._aliases = {
            _plain(alias): name for alias, name in (aliases or {}).items() if name in self._exact
        }

    def resolve(self, raw: str) -> str | None:
        """The declared name that ``raw`` means, or None.

        In this order: as declared; with or without ``functions.``; ``mcp.`` stripped; ``.`` and ``__``
        taken as equal; an alias, or a name below one; a bare name that only one tool has.
        """
        without = raw.removeprefix("mcp.")
        for name in (raw, f"functions.{raw}", raw.removeprefix("functions."), without):
            if name in self._exact:
                return name
        if f"functions.{without}" in self._exact:
            return f"functions.{without}"
        plain = _plain(raw)
        return self._plain.get(plain) or self._alias(plain) or self._bare.get(plain)

    def known(self, raw: str) -> str | None:
        """As `resolve`, for a name that is certainly a recipient's."""
        return self.resolve(raw)

    def schema(self, name: str) -> Mapping[str, Any]:
        """The JSON Schema of a declared tool's arguments; empty where none is known."""
        return self._schemas.get(name, {})

    def nearest(self, raw: str, n: int = 3) -> list[str]:
        """At most ``n`` declared names that look like ``raw``, the likeliest first; where none does,
        those that are the least unlike."""
        plain = _plain(raw)
        names = {_plain(name): name for name in self.declared}
        found = difflib.get_close_matches(plain, names, n, cutoff=0.4)
        last = plain.rpartition(".")[2]
        found += [name for name in names if last and name.rpartition(".")[2] == last]
        found = found or difflib.get_close_matches(plain, names, n, cutoff=0.0)
        return [names[name] for name in dict.fromkeys(found)][:n]

    def _alias(self, plain: str) -> str | None:
        while plain:
            if plain in self._aliases:
                return self._aliases[plain]
            plain = plain.rpartition(".")[0]
        return None


class AnyRecipient(Recipients):
    """No tool is known, so whatever is called is taken as it is written."""

    def __init__(self) -> None:
        super().__init__(())

    def known(self, raw: str) -> str | None:
        return raw


def _add(names: dict[str, str | None], key: str, name: str) -> None:
    """Two tools under one key make it ambiguous: it then means neither."""
    names[key] = None if key in names else name
