"""Formats text of models and tools for the screen, numbers for people, and wraps lines into rows."""

import os
from pathlib import Path

from rich.cells import cell_len, chop_cells

from agent.util.sanitize import sanitize

StyledRun = tuple[str, str]
"""A text and its style: one of ``tui.base_screen.TEXT_STYLES`` or none, with ``INSET`` or without."""
MAX_FOLDER_CELLS = 30
INSET = " inset"
"""Suffix of a style, or a style alone: the lines of such text are quoted with a bar on their left."""


def display_text(text: str) -> str:
    """Return ``text`` as widgets show it: sanitized, line breaks as ``\\n``, tabs as blanks."""
    return text if text.isprintable() else clean_text(text).expandtabs(4)


def clean_text(text: str) -> str:
    """Return ``text`` for the clipboard or the prompt: sanitized, line breaks as ``\\n``; tabs stay."""
    return sanitize(text.replace("\r\n", "\n").replace("\r", "\n"))


def format_seconds(value: float) -> str:
    """Format a duration: ``0.4 s``, ``12 s``, ``3 min 05 s``."""
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    return f"{int(value) // 60} min {int(value) % 60:02} s"


def format_count(value: int) -> str:
    """Format a number of tokens: ``950``, ``1.2k``, ``33k``."""
    if value < 1000:
        return str(value)
    return f"{value / 1000:.1f}k" if value < 9950 else f"{value / 1000:.0f}k"


def format_tokens(count: int) -> str:
    return f"{format_count(count)} token{'' if count == 1 else 's'}"


def format_folder(path: Path) -> str:
    """Format a folder: ``~/src/fox``; of one too long for a line of others only its end: ``…/fox``."""
    folder, home = (Path(os.path.realpath(each.expanduser())) for each in (path, Path("~")))
    in_home = folder.is_relative_to(home)
    text = display_text(str("~" / folder.relative_to(home) if in_home else folder))
    return text if cell_len(text) <= MAX_FOLDER_CELLS else f"…/{text.rpartition('/')[2]}"


def wrap_line(text: str, width: int, start: int = 0) -> list[tuple[int, int]]:
    """Wrap one line greedily into rows of ``width`` cells, at blanks where there are some; start and
    end of each. Text that is appended changes only the last row."""
    rows: list[tuple[int, int]] = []
    while (end := start + _fitting_length(text, start, width)) < len(text):
        blank = text.rfind(" ", start + 1, end + 1)
        end = blank + 1 if blank > start else end
        rows.append((start, end))
        start = end
    if start < len(text) or not text:
        rows.append((start, len(text)))
    return rows


def _fitting_length(text: str, start: int, width: int) -> int:
    """Count the characters from ``start`` on that fit into a row; grapheme clusters are not split."""
    if len(text) - start <= width and cell_len(text[start:]) <= width:
        return len(text) - start
    size = width + 1
    while True:
        chunks = chop_cells(text[start : start + size], width)
        if len(chunks) > 1 or start + size >= len(text):
            return max(1, len(chunks[0])) if chunks else len(text) - start
        size *= 2  # combining and joined characters: more of them than cells
