"""Removes from foreign text what would steer a terminal: escape sequences, and Unicode's bidirectional
controls ("Trojan Source", CVE-2021-42574). A leaf."""

import errno
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import TextIO

# Complete ANSI sequences (ECMA-48): CSI, as in colours; OSC, as in titles and links.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# Other characters that a terminal may act on: C0 but newline and tab, DEL, C1; bidirectional
# controls; and lone surrogates, which cannot be encoded.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def sanitize(text: str) -> str:
    """Leave out escape sequences; U+FFFD replaces other controls, also of the text's direction."""
    if text.isprintable():
        return text
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_json(text: str) -> str:
    """Return JSON, with the same value, that `sanitize` would leave as it is."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def strip_controls(text: str) -> str:
    """Delete control characters without a substitute, so that the width stays as it was laid out."""
    return text if text.isprintable() else _CONTROLS.sub("", text)


def sanitizer_for(out: TextIO) -> Callable[[str], str]:
    """`sanitize` where ``out`` is a terminal; into a pipe or a file text goes unchanged."""
    return sanitize if out.isatty() else str


def echo(text: object, *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print foreign text, sanitized for ``file`` (stdout); nowhere if stderr's terminal is gone."""
    file = file or sys.stdout
    try:
        print(sanitizer_for(file)(str(text)), end=end, file=file, flush=True)
    except OSError as error:
        if file is not sys.stderr or error.errno != errno.EIO:
            raise


def echo_row(row: str, indent: int) -> None:
    """Print a row of a table; on a terminal its last column, from ``indent`` on, is wrapped."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if len(row) > width > indent + 10:
        lines = textwrap.wrap(row[indent:], width - indent, break_on_hyphens=False)
        row = row[:indent] + f"\n{' ' * indent}".join(lines)
    echo(row)
