"""Text as a prompt may hold it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

LONGEST_RUN = 512
"""Characters; tokenising a run takes quadratic time, and a million characters end the process."""

PART = 8192
"""Characters, which take a millisecond or two."""
# No piece of a tokenizer's goes on from a letter or digit over one of these.
_BREAK = re.compile(r"(?<=[^\W_])(?=[\s,.;:!?+/=<>(){}\[\]\"#*&|\-、。，；：！？])")

# What a tokenizer takes as one piece at most: o200k's pieces end at white space and digits.
_RUN = re.compile(rf"[^\s\d]{{{LONGEST_RUN + 1},}}|\s{{{LONGEST_RUN + 1},}}")


def whole(text: str) -> str:
    """Without lone surrogates, which no tokenizer takes (a paste may hold them)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How far both begin the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class Tokenised(str):
    """A message's text whose ids are known already."""

    ids: list[int]


def parts(text: str) -> Iterator[str]:
    """The text, cut where that changes no token, after each few thousand characters, and where a
    run without a break is too long to tokenise at once. A text has one part at least."""
    start = 0
    while len(text) - start > 2 * PART:
        found = _BREAK.search(text, start + PART, start + 2 * PART)
        end = found.start() if found else start + 2 * PART
        yield from _runs(text[start:end])
        start = end
    yield from _runs(text[start:])


def _runs(text: str) -> Iterator[str]:
    start = 0
    for run in _RUN.finditer(text):
        for cut in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]


def unbroken(text: str) -> str:
    """With spaces in runs that are too long, and long white space cut: for text without parts."""

    def broken(run: re.Match[str]) -> str:
        return run[0][:LONGEST_RUN] if run[0].isspace() else " ".join(parts(run[0]))

    return _RUN.sub(broken, text)


def line(text: str) -> str:
    """One line without anything invisible: control, zero-width, bidi and tag characters."""
    shown = "".join(
        c if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "" for c in text
    )
    return unbroken(" ".join(shown.split()))
