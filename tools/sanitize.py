"""Names and descriptions as the model sees them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

MAX_LENGTH = 64
"""OpenAI's limit for a function's name."""
MAX_DESCRIPTION = 4000
"""Characters; what is longer costs every prompt more than it tells."""
MAX_DEPTH = 60
"""Of a schema; what lies deeper is left out."""


def model_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A unique name for each (server, tool): ``server__tool``, in ``[A-Za-z0-9_]``.

    Where two would read the same, both get a suffix made from their own names, so that neither
    depends on the order in which servers come up.
    """
    keys = list(dict.fromkeys(tools))
    plain = {key: f"{word(key[0])}__{word(key[1])}" for key in keys}
    # Function names are compared without case by some clients and confused by models.
    times = Counter(name.lower() for name in plain.values())
    return {
        key: name if times[name.lower()] == 1 and len(name) <= MAX_LENGTH else _marked(name, key)
        for key, name in plain.items()
    }


def clean(text: str) -> str:
    """A description without characters that hide or reorder what a person would see."""
    kept = visible(text).strip()
    return kept if len(kept) <= MAX_DESCRIPTION else f"{kept[: MAX_DESCRIPTION - 1]}…"


def visible(text: str) -> str:
    """All of it but those characters."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)


def clean_schema(schema: Any, depth: int = 0) -> Any:
    """The same with its descriptions clean; names and values are what the server compares with."""
    if depth > MAX_DEPTH:
        return {}
    match schema:
        case dict():
            return {
                key: clean(value)
                if key in ("description", "title") and isinstance(value, str)
                else clean_schema(value, depth + 1)
                for key, value in schema.items()
                if key != "$schema"  # says nothing to a model
            }
        case list():
            return [clean_schema(one, depth + 1) for one in schema]
        case _:
            return schema


# Control; format (zero-width, bidi, tags); surrogate; private use; line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def word(name: str) -> str:
    """A name of letters, digits and ``_`` for it, never empty."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    found = re.sub(r"[^A-Za-z0-9_]+", "_", ascii_only).strip("_")
    return found or f"x{_hash(name)}"


def _marked(name: str, key: tuple[str, str]) -> str:
    mark = f"_{_hash(chr(0).join(key))}"
    return name[: MAX_LENGTH - len(mark)] + mark


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
