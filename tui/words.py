"""Text from models and tools as the screen may show it, and numbers as people read them."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from agent.harmless import harmless


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
    while True:
        rest = text[start : start + width + 1]
        if len(text) - start <= width and cell_len(rest) <= width:
            return [*rows, (start, len(text))]
        fits = max(1, len(chop_cells(rest, width)[0]))
        blank = text.rfind(" ", start + 1, start + fits + 1)
        end = blank + 1 if blank > start else start + fits
        rows.append((start, end))
        if end >= len(text):
            return rows
        start = end
