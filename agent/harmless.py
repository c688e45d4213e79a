"""Text of models, tools and files as a terminal may get it. A leaf."""

from __future__ import annotations

import re

# Sequences that are whole: colours of a tool's output, titles, links.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# What is left that a terminal may act on: C0 but newline and tab, DEL, C1; what turns the direction of
# reading; and halves of pairs, which cannot be written.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str) -> str:
    """Text that can neither steer a terminal nor show in another order than it is read: whole
    sequences are left out, anything else of that kind is a replacement character."""
    if text.isprintable():
        return text
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
