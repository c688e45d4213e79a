"""Text from models and tools as the screen may show it, and numbers as people read them."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from agent.util.sanitize import harmless


def shown(text: str) -> str:
    """Text as the app's widgets show it: harmless, and its tabs as blanks."""
    if text.isprintable():
        return text
    return harmless(text.replace("\r\n", "\n").replace("\r", "\n")).expandtabs(4)


def seconds(value: float) -> str:
    """0.4 s, 12 s, 3 min 05 s"""
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    return f"{int(value) // 60} min {int(value) % 60:02} s"


def count(value: int) -> str:
    """950, 1.2k, 33k"""
    if value < 1000:
        return str(value)
    return f"{value / 1000:.1f}k" if value < 9950 else f"{value / 1000:.0f}k"


def wrap(text: str, width: int, start: int = 0) -> list[tuple[int, int]]:
    """Where the rows of one line start and end, broken at blanks where there are some."""
    rows: list[tuple[int, int]] = []
    while (end := start + _fits(text, start, width)) < len(text):
        blank = text.rfind(" ", start + 1, end + 1)
        end = blank + 1 if blank > start else end
        rows.append((start, end))
        start = end
    if start < len(text) or not text:
        rows.append((start, len(text)))
    return rows


def _fits(text: str, start: int, width: int) -> int:
    """Characters from there on that fit into a row, never a part of what is one on the screen."""
    if len(text) - start <= width and cell_len(text[start:]) <= width:
        return len(text) - start
    size = width + 1
    while True:
        chunks = chop_cells(text[start : start + size], width)
        if len(chunks) > 1 or start + size >= len(text):
            return max(1, len(chunks[0])) if chunks else len(text) - start
        size *= 2  # accents and joined signs take more characters than columns
