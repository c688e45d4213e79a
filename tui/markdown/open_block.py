"""Renders a Markdown block that grows: most of its rows are kept, and only its end is rendered again.

A long table, list or fence would cost its whole length at every token. So its first part is frozen,
as a ``RenderedPrefix``, and what follows is rendered behind a short context that makes it look the
same::

    text                 prefix                   rendered at every call
    | n   | name |  ┐ context (two lines)         | n   | name |  context, its rows are dropped
    |-----|------|  ┘                             |-----|------|
    | 100 | some |  ┐                             | xxx | xxxx |  cell_widths: keeps the columns
    | 101 | some |  │ frozen: text[:end], rows
    | 102 | some |  ┘
    | 103 | some |    text[end:]                  | 103 | some |
    | 104 | so                                    | 104 | so

The context of a fence is its opening line, of a list its last frozen item. Nothing is assumed about the
renderer; both steps compare rows instead:

- ``_freeze_more`` moves ``end`` to a line or item only if the rest, rendered behind the context,
  gives the very rows that it has in the full rendering. Otherwise it tries again once the rest is
  half as long again.
- ``render_growth`` gives None if the context's rows changed with the new text (a wider cell moves every
  column, an item number with one more digit every item): then all of the block is rendered once more.
"""

import re
from dataclasses import dataclass, field, replace

from tui.markdown.render import RenderedRow, TextStyles, render_with_cell_widths

MIN_FREEZE_CHARS = 400
"""Characters of a block that are rendered again before more of it is frozen; the last half never is."""
_FENCE_OPEN = re.compile(r" {0,3}(?:`{3,}[^`\n]*|~{3,}.*)\n")
_TABLE_HEAD = re.compile(r".*\|.*\n[ |:-]*-[ |:-]*\n")
_LIST_ITEM = re.compile(r"( {0,3})(?:([-*+])|\d{1,9}([.)])) ")
_LINE_START = re.compile(r"^.*[^\s|]", re.M)
_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class RenderedPrefix:
    """The frozen part of a growing block; empty by default."""

    end: int = 0
    """Characters of the block that are frozen."""
    rows: list[RenderedRow] = field(default_factory=list)
    context: str = ""
    """Markdown behind which the rest looks as it does behind all of the frozen text."""
    context_rows: list[RenderedRow] = field(default_factory=list)
    cell_widths: tuple[int, ...] = ()
    """Width of each column of a table, in terminal cells."""
    retry_above: int = 0
    """Length of the block above which freezing more is tried again."""


def render_growth(
    text: str, prefix: RenderedPrefix, width: int, styles: TextStyles
) -> tuple[list[RenderedRow] | None, RenderedPrefix]:
    """Render the open block ``text``, of which ``prefix`` is frozen, ``width`` cells wide; its rows and
    the next prefix. Rows None: the frozen part changes; call again with that empty prefix."""
    if not text:
        return [], prefix
    rows, cell_widths = render_with_cell_widths(
        prefix.context + text[prefix.end :], width, styles, prefix.cell_widths
    )
    above = len(prefix.context_rows)
    if rows[:above] != prefix.context_rows:
        return None, RenderedPrefix()
    rows = prefix.rows + rows[above:]
    if len(text) > max(prefix.retry_above, prefix.end + MIN_FREEZE_CHARS):
        longer = _freeze_more(text, prefix, rows, cell_widths, width, styles)
        retry_above = len(text) + (len(text) - prefix.end) // 2
        prefix = longer or replace(prefix, retry_above=retry_above)
    return rows, prefix


def _freeze_more(
    text: str,
    prefix: RenderedPrefix,
    rows: list[RenderedRow],
    cell_widths: tuple[int, ...],
    width: int,
    styles: TextStyles,
) -> RenderedPrefix | None:
    """Freeze up to a later line or item, if the rest looks the same behind the context alone."""
    context, start, cell_widths = _block_kind(text, cell_widths)
    *earlier, end = [prefix.end] + [
        match.start()
        for match in start.finditer(text, prefix.end + 1)
        if match.start() <= len(text) - MIN_FREEZE_CHARS // 2
    ]
    if not earlier:
        return None
    # In a list the item before is the context: it shows how far longer numbers move the items.
    context = context or text[earlier[-1] : end]
    context_rows, _ = render_with_cell_widths(context, width, styles, cell_widths)
    tail, _ = render_with_cell_widths(context + text[end:], width, styles, cell_widths)
    frozen_rows = len(rows) - (len(tail) - len(context_rows))
    if frozen_rows <= len(prefix.rows) or tail != context_rows + rows[frozen_rows:]:
        return None
    return RenderedPrefix(end, rows[:frozen_rows], context, context_rows, cell_widths)


def _block_kind(
    text: str, cell_widths: tuple[int, ...]
) -> tuple[str, re.Pattern[str], tuple[int, ...]]:
    """The context (empty for a list), the pattern of a line's or item's start, a table's columns."""
    if fence := _FENCE_OPEN.match(text):
        return fence[0], _LINE_START, ()
    if table := _TABLE_HEAD.match(text):
        return table[0], _LINE_START, cell_widths
    if item := _LIST_ITEM.match(text):
        indent, bullet, after = item.groups()
        mark = re.escape(bullet) if bullet else r"\d{1,9}" + re.escape(after)
        return "", re.compile(f"^{indent}{mark} ", re.M), ()
    return "", _NEVER, ()
