"""What a prompt brings along that is not the person's own words: files, piped text."""

from __future__ import annotations

import re

ATTACHMENT = re.compile(
    r'\n\n<(?P<tag>file_*) path="(?P<path>[^"\n]*)" lines="(?P<lines>\d+)">\n'
    r".*?\n</(?P=tag)>(?=\n\n<|\Z)",
    re.DOTALL,
)
"""An attached text at the end of a prompt."""


def format_attachment(path: str, text: str) -> str:
    """Return the block that is appended to a prompt for a text that came from ``path``."""
    tag = "file"
    while f"</{tag}>" in text:
        tag += "_"
    name = path.replace('"', "'")
    text = text.rstrip("\n")
    return f'\n\n<{tag} path="{name}" lines="{text.count(chr(10)) + 1}">\n{text}\n</{tag}>'
