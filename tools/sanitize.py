"""Makes names, descriptions and schemas from servers safe to show to a model and to a person."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

MAX_NAME_CHARS = 64
"""OpenAI's limit for the name of a function."""
MAX_DESCRIPTION_CHARS = 4000
"""A longer description costs every prompt more than it tells."""
MAX_INSTRUCTION_CHARS = 2000
"""A server's instructions are in every prompt too; longer ones lose their end."""
MAX_SCHEMA_DEPTH = 60
"""Parts of a schema that are nested deeper are left out."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Categories: control; format (zero-width, bidi, tags); surrogate; private use; separators of lines."""
_ALLOWED = "\n\t\u200c\u200d"
"""Also the joiners that words of Persian and Indic languages, and many emoji, are written with."""


def model_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A unique name for each (server, tool): ``server__tool``, in ``[A-Za-z0-9_]``. Equal ones both get
    a suffix of their own names, so that the order does not matter."""
    keys = list(dict.fromkeys(tools))
    plain = {key: f"{identifier(key[0])}__{identifier(key[1])}" for key in keys}
    # Function names are compared without case by some clients and confused by models.
    times = Counter(name.lower() for name in plain.values())
    return {
        key: name
        if times[name.lower()] == 1 and len(name) <= MAX_NAME_CHARS
        else _with_hash_suffix(name, key)
        for key, name in plain.items()
    }


def clean_text(text: str, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """Strip hidden characters and outer white space, and cut to ``limit``."""
    text = strip_hidden(text).strip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def clean_line(text: str) -> str:
    return " ".join(clean_text(text).split())


def is_single_line(name: str) -> bool:
    """Return whether a name has no control characters and line breaks, and is not blank."""
    return bool(name.strip()) and {"Cc", "Zl", "Zp"}.isdisjoint(map(unicodedata.category, name))


def strip_hidden(text: str) -> str:
    """Remove characters that hide or reorder what a person would see."""
    return "".join(c for c in text if c in _ALLOWED or unicodedata.category(c) not in _HIDDEN)


def clean_schema(schema: Any, depth: int = 0) -> Any:
    """A JSON Schema with clean descriptions; the server compares names and values, so they stay."""
    if depth > MAX_SCHEMA_DEPTH:
        return {}
    match schema:
        case dict():
            return {
                key: clean_text(value)
                if key in ("description", "title") and isinstance(value, str)
                else clean_schema(value, depth + 1)
                for key, value in schema.items()
            }
        case list():
            return [clean_schema(item, depth + 1) for item in schema]
    return schema


def identifier(name: str) -> str:
    """Turn a name into a non-empty one of letters, digits and ``_``."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "_", ascii_only).strip("_") or f"x{_short_hash(name)}"


def _with_hash_suffix(name: str, key: tuple[str, str]) -> str:
    suffix = f"_{_short_hash(chr(0).join(key))}"
    return name[: MAX_NAME_CHARS - len(suffix)] + suffix


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
