"""A block that grows: what was rendered of it stays, and only its end is rendered again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from tui.markdown.render import Look, Row, laid_out

LONG = 400
"""Characters; of what is longer, a part may be rendered for good."""
_FENCE = re.compile(r" {0,3}(?:`{3,}[^`\n]*|~{3,}.*)\n")
_TABLE = re.compile(r".*\|.*\n[ |:-]*-[ |:-]*\n")
_ITEM = re.compile(r"( {0,3})(?:([-*+])|\d{1,9}([.)])) ")
_LINE = re.compile(r"^.*[^\s|]", re.M)
_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Begun:
    """Of a block, what is rendered for good."""

    end: int = 0
    """So many characters."""
    rows: list[Row] = field(default_factory=list)
    head: str = ""
    """What follows is rendered behind this, which makes the same of it as all before it does."""
    top: list[Row] = field(default_factory=list)
    """The head's own rows."""
    columns: tuple[int, ...] = ()
    """How wide the cells of a table are."""
    tried: int = 0
    """As long as it is no longer, no more of it is rendered for good."""


def extended(text: str, begun: Begun, width: int, look: Look) -> tuple[list[Row] | None, Begun]:
    """The rows of the block. None: with what is new, what was begun looks different."""
    if not text:
        return [], begun
    rows, columns = laid_out(begun.head + text[begun.end :], width, look, begun.columns)
    above = len(begun.top)
    if rows[:above] != begun.top:
        return None, Begun()
    rows = begun.rows + rows[above:]
    if len(text) > max(begun.tried, begun.end + LONG):
        further = _further(text, begun, rows, columns, width, look)
        begun = further or replace(begun, tried=len(text) + (len(text) - begun.end) // 2)
    return rows, begun


def _further(
    text: str, begun: Begun, rows: list[Row], columns: tuple[int, ...], width: int, look: Look
) -> Begun | None:
    """To a place behind which all looks the same without what is before it, if there is one."""
    head, start, columns = _kind(text, columns)
    *before, at = [begun.end] + [
        found.start()
        for found in start.finditer(text, begun.end + 1)
        if found.start() <= len(text) - LONG // 2
    ]
    if not before:
        return None
    # Longer numbers move all of a list: seen at the item before.
    head = head or text[before[-1] : at]
    top, _ = laid_out(head, width, look, columns)
    below, _ = laid_out(head + text[at:], width, look, columns)
    end = len(rows) - len(below) + len(top)
    if end <= len(begun.rows) or below != top + rows[end:]:
        return None
    return Begun(at, rows[:end], head, top, columns)


def _kind(text: str, columns: tuple[int, ...]) -> tuple[str, re.Pattern[str], tuple[int, ...]]:
    """Its head, how its lines or items start, and its columns, if it is a table."""
    if fence := _FENCE.match(text):
        return fence[0], _LINE, ()
    if table := _TABLE.match(text):
        return table[0], _LINE, columns
    if item := _ITEM.match(text):
        indent, bullet, after = item.groups()
        mark = re.escape(bullet) if bullet else r"\d{1,9}" + re.escape(after)
        return "", re.compile(f"^{indent}{mark} ", re.M), ()
    return "", _NOTHING, ()
