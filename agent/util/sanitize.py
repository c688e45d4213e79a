"""Text of models, tools and files as a terminal may get it. A leaf."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TextIO

# Sequences that are whole: colours of a tool's output, titles, links.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# What is left that a terminal may act on: C0 but newline and tab, DEL, C1; what turns the direction of
# reading; and halves of pairs, which cannot be written.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """Text that can neither steer a terminal nor show in another order than it is read: whole
    sequences are left out, anything else of that kind is a replacement character."""
    if text.isprintable():
        return text
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def bare(text: str) -> str:
    """The same without a sign in place of what is taken out, so that it stays as wide as it was laid
    out."""
    return text if text.isprintable() else _CONTROLS.sub("", text)


def fit(out: TextIO) -> Callable[[str], str]:
    """What becomes of text before it is written there: a terminal must not be steered by it, into a
    pipe or a file it goes byte for byte."""
    return harmless if out.isatty() else str


def say(text: object, *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print what may hold text of others. ``file``: stdout, unless it is given."""
    file = file or sys.stdout
    print(fit(file)(str(text)), end=end, file=file, flush=True)
