"""Renders streamed Markdown as rows: closed blocks once, the open block for each piece.

The text is in three parts, and every character of it is on the screen at any time, at worst as
plain text::

    pieces               _closed                  _blocks.open
    rendered for good    closed, not rendered     may still change
    └── _closed_rows ─┘  └───────────── _unrendered ─────────────┘
                         └─── _open_rows ───┘└─── plain text ────┘
                           _covered_chars

``rows`` is always the three at the bottom. Invariants:

- ``pieces + _closed + _blocks.open`` is the text. When a block closes, its text moves from
  ``_blocks.open`` to ``_closed``; ``_unrendered`` and ``_covered_chars``, which counts from its
  start, stay as they are.
- ``_open_rows`` are those of the first ``_covered_chars`` of ``_unrendered``. They stay on the
  screen until the next result replaces them, also when the block that they show has closed
  meanwhile.
- ``_prefix`` is the frozen part of the block that is open now; it is emptied when that block closes.
- Only the job that ``next_job`` returned last counts; ``apply`` drops the result of any other.
- For another width or theme all text goes back to ``_closed``. The old rows stay, covering what they
  covered, until the job with ``replaces_all`` is applied.

Of a block that grows, most rows are kept too, and only its end is rendered again. A long table,
list or fence would cost its whole length at every token. So its first part is frozen, as a
``RenderedPrefix``, and what follows is rendered behind a short context that makes it look the
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

from agent.util.markdown_blocks import MarkdownBlocks
from tui.markdown.render import (
    RenderedRow,
    TextStyles,
    parse,
    render_markdown,
    render_with_cell_widths,
    wrap_plain,
)

INLINE_CHARS = 2000
"""Characters that are rendered within milliseconds, so without a thread."""
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
        prefix = longer or replace(prefix, retry_above=len(text) + (len(text) - prefix.end) // 2)
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


JobResult = tuple[list[RenderedRow], list[RenderedRow] | None, RenderedPrefix]
"""Rows of the closed text, rows of the open block (None: render it again), and its frozen prefix."""
BLANK_ROW = RenderedRow([])


@dataclass(frozen=True, slots=True)
class RenderJob:
    """Text to be rendered next. ``run`` changes nothing else, so it may run in any thread."""

    closed: str
    """Blocks that are rendered for good; may be empty."""
    open: str
    """The open block, or its complete lines."""
    prefix: RenderedPrefix
    width: int
    """Terminal cells."""
    styles: TextStyles
    replaces_all: bool
    """Whether the result replaces all rows, not only those of the open block."""

    @property
    def is_small(self) -> bool:
        return len(self.closed) + len(self.open) - self.prefix.end <= INLINE_CHARS

    def run(self) -> JobResult:
        rows = render_markdown(self.closed, self.width, self.styles) if self.closed else []
        return rows, *render_growth(self.open, self.prefix, self.width, self.styles)


class StreamingMarkdown:
    """Markdown that grows by ``feed`` and ends by ``finish``, as ``rows``. The caller renders, wherever
    it likes, what ``next_job`` returns, and passes the result to ``apply``."""

    def __init__(self) -> None:
        self.rows: list[RenderedRow] = []
        """All text as rows, without blank rows around it; replaced, never changed in place."""
        self.pieces: list[str] = []
        """Texts of closed blocks, as they were rendered: one or several blocks each."""
        self.layout: tuple[int, TextStyles] | None = None
        """Width in terminal cells, and styles; there are no rows before it is set."""
        self._blocks = MarkdownBlocks(parse)
        self._closed = ""  # closed blocks that are not rendered yet
        self._covered_chars = 0  # characters of ``_unrendered`` that ``_open_rows`` show
        self._closed_rows: list[RenderedRow] = []
        self._open_rows: list[RenderedRow] = []
        self._prefix = RenderedPrefix()
        self._replaces_all = False
        self._job: RenderJob | None = None

    def feed(self, text: str) -> None:
        """Add text; its rows are plain text until it is rendered."""
        if text:
            if closed := self._blocks.feed(text):
                self._closed += "".join(closed)
                self._prefix = RenderedPrefix()
            self._update_rows()

    def finish(self, rest: str) -> None:
        """Add the last text; every block is closed then."""
        self._closed, self._blocks.open = self._unrendered + rest, ""
        self._update_rows()

    def set_layout(self, width: int, styles: TextStyles) -> None:
        """Render everything for a width in cells and a theme's styles; the old rows stay meanwhile."""
        self.layout = width, styles
        self.restart("".join(self.pieces) + self._closed)

    def restart(self, closed: str) -> None:
        """Take back what is rendered: ``closed`` is all closed text, and is to be rendered again."""
        self._covered_chars += len(closed) - len(self._closed)
        self._closed, self.pieces, self._replaces_all, self._job = closed, [], True, None
        self._prefix = RenderedPrefix()
        self._update_rows()

    @property
    def _unrendered(self) -> str:
        return self._closed + self._blocks.open

    def next_job(self) -> RenderJob | None:
        """Return what to render next; None where all that can be rendered is."""
        open_text, prefix = self._blocks.open, RenderedPrefix() if self._closed else self._prefix
        # Only complete lines: half a table row may be wider than the complete one, which would change
        # the columns back and forth.
        if prefix.cell_widths or len(open_text) - prefix.end > INLINE_CHARS:
            open_text = open_text[: open_text.rfind("\n") + 1]
        if self.layout is None or not (self._closed or len(open_text) > self._covered_chars):
            return None
        self._job = RenderJob(self._closed, open_text, prefix, *self.layout, self._replaces_all)
        return self._job

    def apply(self, job: RenderJob, result: JobResult) -> None:
        if job is not self._job:
            return
        closed_rows, open_rows, prefix = result
        if self._blocks.open.startswith(job.open):  # it may have closed meanwhile
            self._prefix = prefix
        if job.replaces_all:
            self._closed_rows, self._replaces_all = [], False
        if job.closed:
            self.pieces.append(job.closed)
            self._closed = self._closed[len(job.closed) :]
            before = [*self._closed_rows, BLANK_ROW] if self._closed_rows else []
            self._closed_rows = before + closed_rows
        if open_rows is not None:
            self._open_rows, self._covered_chars = open_rows, len(job.open)
        self._update_rows()

    def _update_rows(self) -> None:
        if self.layout is None:
            return
        is_apart = self._closed_rows and self._open_rows
        open_rows = [BLANK_ROW, *self._open_rows] if is_apart else self._open_rows
        self.rows = self._closed_rows + open_rows
        plain_text = self._unrendered[self._covered_chars :]
        if plain_text.strip("\n"):
            if self.rows and (not open_rows or plain_text.startswith("\n")):
                self.rows.append(BLANK_ROW)
            self.rows += wrap_plain(plain_text.strip("\n"), self.layout[0])
