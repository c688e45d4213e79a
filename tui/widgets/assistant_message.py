"""A message of the model: Markdown, rendered while it streams. Overrides how Textual 8.2 (pinned
``>=8.2.8,<8.3``) caches what is painted (``render_lines``, ``virtual_size``)."""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Self

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Offset, Region, Size
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from tui.base_screen import MARKDOWN_STYLES, BaseScreen
from tui.guarded import Guarded
from tui.markdown.render import RenderedRow, join_rows
from tui.markdown.streaming import StreamingMarkdown
from tui.state.item_view import ItemView
from tui.util.text_search import find_folded

MAX_RERENDER_SHARE = 0.1
"""Largest share of the time that is spent on rendering a long open block again and again."""


class AssistantMessage(Guarded, Widget):
    """One message of the model, a single widget of closed blocks. Several are rendered once more at
    the end, in one piece: a late reference or some nested lists come out differently then."""

    DEFAULT_CSS = "AssistantMessage { height: auto; &.-commentary { color: $text-muted; } }"

    virtual_size = Reactive(Size(0, 0), repaint=False)
    """Set by a layout; Textual's own reactive would ask for another one, and each costs a paint."""

    def __init__(self, item: ItemView, before: Self | None = None) -> None:
        """``before``: a widget of the same item, which is removed; what it rendered is taken over."""
        super().__init__(classes=f"-{item.kind}")
        self.item = item
        self._markdown: StreamingMarkdown = before._markdown if before else StreamingMarkdown()
        self._chunks_read: int = before._chunks_read if before else 0
        self._finished = False
        self._is_rendering = False
        self._next_rerender_at = 0.0
        """Monotonic time from which on the open block is rendered again."""
        self._strip_cache: dict[int, tuple[RenderedRow, Strip]] = {}
        """By line: the row and what was painted of it."""
        self._strip_cache_key: tuple[object, ...] = ()  # all else that the painted strips depend on

    @property
    def is_rendered(self) -> bool:
        return self._finished and not self._is_rendering and self._markdown.next_job() is None

    @property
    def row_count(self) -> int:
        """The rows that it takes as it is rendered now; 0 before the first layout."""
        return len(self._markdown.rows)

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        item = self.item
        if self._finished or not self.is_attached:
            return
        new, before = item.text.read_from(self._chunks_read), self._markdown.rows
        if item.is_complete:
            self._finished = True
            # A stored message never streamed.
            self._markdown.finish(new or ("" if self._chunks_read else item.displayed_markdown))
        else:
            self._markdown.feed(new)
        self._chunks_read = len(item.text)
        self._render_next()
        rows = self._markdown.rows
        if len(rows) != len(before):
            self.refresh(layout=True)
        elif changed := [y for y, row in enumerate(rows) if row is not before[y]]:
            self.refresh(Region(0, changed[0], self.size.width, len(rows) - changed[0]))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width > 0 and (self._markdown.layout is None or self._markdown.layout[0] != width):
            self._set_layout(width)
        return len(self._markdown.rows)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strip_cache.clear()
        if self._markdown.layout:  # the theme may have changed
            self.call_next(self._set_layout, self._markdown.layout[0])

    def _set_layout(self, width: int) -> None:
        assert isinstance(self.screen, BaseScreen)
        styles = {kind: self.screen.style_of(f"message--{kind}") for kind in MARKDOWN_STYLES}
        if (width, styles) != self._markdown.layout:
            self._markdown.set_layout(width, styles)
            self._render_next()
            self.refresh()

    def _render_next(self) -> None:
        if self._is_rendering:
            return
        job = self._markdown.next_job()
        if job is not None and job.is_small:
            self._markdown.apply(job, job.run())
            job = None
        is_due = job is not None and (job.closed or time.monotonic() >= self._next_rerender_at)
        if self._needs_rerender or is_due:
            self._is_rendering = True
            self.run_worker(self._render_in_thread())

    async def _render_in_thread(self) -> None:
        """Render until nothing is closed and unrendered, then in one piece if it is complete."""
        while self._is_rendering:
            began = time.monotonic()
            if (job := self._markdown.next_job()) is not None:
                self._markdown.apply(job, await asyncio.to_thread(job.run))
                self._is_rendering = bool(job.closed) or self._finished
            elif self._needs_rerender:
                self._markdown.restart(self.item.displayed_markdown)
            else:
                self._is_rendering = False
        now = time.monotonic()
        self._next_rerender_at = now + (now - began) / MAX_RERENDER_SHARE
        self.refresh(layout=True)

    @property
    def _needs_rerender(self) -> bool:
        pieces = self._markdown.pieces
        return self._finished and bool(pieces) and pieces != [self.item.displayed_markdown]

    @property
    def text_selection(self) -> Selection | None:
        """The selection in this widget; None once it is removed, when it may still be painted."""
        return super().text_selection if self.is_attached else None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Paint lines, those of unchanged rows from a cache of its own: Textual drops its cache
        whenever the height changes, which it does with every line that streams."""
        key = (crop.column_span, self.visual_style, self.text_selection, self.hover_style)
        if key != self._strip_cache_key:
            self._strip_cache_key = key
            self._strip_cache.clear()
        rows, top = self._markdown.rows, self.gutter.top
        strips = []
        for y in crop.line_range:
            row, strip = self._strip_cache.get(y, (None, None))
            if strip is None or not 0 <= y - top < len(rows) or rows[y - top] is not row:
                break
            strips.append(strip)
        first = crop.y + len(strips)
        if first < crop.bottom:
            strips += super().render_lines(Region(crop.x, first, crop.width, crop.bottom - first))
        self._strip_cache = {
            y: (rows[y - top], strip)
            for y, strip in zip(crop.line_range, strips, strict=True)
            if 0 <= y - top < len(rows)
        }
        return strips

    def render_line(self, y: int) -> Strip:
        width, rows = self.size.width, self._markdown.rows
        style = self.visual_style.rich_style
        if y >= len(rows):
            return Strip.blank(width, style)
        strip = Strip(rows[y].segments)
        if (selection := self.text_selection) and (span := selection.get_span(y)):
            text = strip.text
            start, end = span[0], len(text) if span[1] == -1 else span[1]
            # Not divide(): it gives fewer parts where one is empty.
            first, behind = cell_len(text[:start]), cell_len(text[:end])
            selected = strip.crop(first, behind)
            post_style = self.screen.get_component_rich_style("screen--selection")
            selected = Strip(Segment.apply_style(selected, None, post_style))
            strip = Strip.join([strip.crop(0, first), selected, strip.crop(behind)])
        strip = strip.apply_style(style).adjust_cell_length(width, style)
        return strip.apply_offsets(0, y)

    def find_text(self, query: str) -> Iterator[tuple[Selection, int]]:
        text, spans = join_rows(self._markdown.rows)

        def offset(at: int) -> Offset:
            y = bisect_right(spans, at, key=lambda span: span[0]) - 1
            begins, start, end = spans[y]
            return Offset(min(start + at - begins, end), y)

        for first, end in find_folded(text, query):
            last = offset(end - 1)
            yield Selection(offset(first), Offset(last.x + 1, last.y)), offset(first).y

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text; rows that were wrapped are one line again."""
        text = ""
        for y, row in enumerate(self._markdown.rows):
            if (span := selection.get_span(y)) is None:
                continue
            start, end = row.written_span(continues=bool(text) and not text.endswith("\n"))
            goes_on = span[1] == -1
            text += row.text[max(start, span[0]) : end if goes_on else min(end, span[1])]
            text += row.separator if goes_on else ""
        return text.rstrip("\n"), "\n"
