"""Names and descriptions as the model sees them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

MAX_LENGTH = 64
"""OpenAI's limit for a function's name."""


def model_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A unique name for each (server, tool): ``server__tool``, in ``[A-Za-z0-9_]``.

    Where two would read the same, both get a suffix made from their own names, so that neither
    depends on the order in which servers come up.
    """
    keys = list(dict.fromkeys(tools))
    plain = {key: f"{_word(key[0])}__{_word(key[1])}" for key in keys}
    # Function names are compared without case by some clients and confused by models.
    times = Counter(name.lower() for name in plain.values())
    return {
        key: name if times[name.lower()] == 1 and len(name) <= MAX_LENGTH else _marked(name, key)
        for key, name in plain.items()
    }


def clean(text: str) -> str:
    """A description without characters that hide or reorder what a person would see."""
    kept = (c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)
    return "".join(kept).strip()


# Control; format (zero-width, bidi, tags); surrogate; private use; line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def _word(name: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    word = re.sub(r"[^A-Za-z0-9_]+", "_", ascii_only).strip("_")
    return word or f"x{_hash(name)}"


def _marked(name: str, key: tuple[str, str]) -> str:
    mark = f"_{_hash(chr(0).join(key))}"
    return name[: MAX_LENGTH - len(mark)] + mark


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
