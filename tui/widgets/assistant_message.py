"""What the model says to the person: Markdown, rendered while it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from rich.cells import cell_len
from rich.segment import Segment
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from tui.base_screen import PARTS, Paper
from tui.markdown.blocks import same
from tui.markdown.render import Row
from tui.markdown.streaming import Growing
from tui.state.item_view import Part

SHARE = 0.1
"""Of the time, so much at most goes into rendering again a long block that grows."""


class Message(Widget):
    """One message: a single widget, however long it is. Where references defined later or some nested
    list come out differently in one piece, all is rendered once more at the end."""

    DEFAULT_CSS = """
    Message {
        height: auto;
        &.-commentary { color: $text-muted; }
    }
    """

    virtual_size = Reactive(Size(0, 0), repaint=False)
    """Set by a layout. By itself it asks for another one, and each costs a paint."""

    def __init__(self, part: Part) -> None:
        super().__init__(classes=f"-{part.kind}")
        self.part = part
        self._text = Growing()
        self._seen = 0
        self._finished = self._checked = False
        self._aside = False
        """Something is being rendered in a thread."""
        self._again = 0.0
        """When it is worth it to render again what grows."""
        self._painted: dict[int, tuple[Row, Strip]] = {}
        self._looks: tuple[object, ...] = ()
        """How what is painted looks."""

    @property
    def settled(self) -> bool:
        """All of it is rendered."""
        return self._finished and not self._aside and self._text.next() is None

    def on_mount(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        part = self.part
        if self._finished or not self.is_attached:
            return
        new, before = part.text.after(self._seen), self._text.rows
        if part.settled:
            self._finished = True
            # What comes from the store never streamed.
            self._text.finish(new or ("" if self._seen else self._whole))
        else:
            self._text.feed(new)
        self._seen = len(part.text)
        self._render_some()
        rows = self._text.rows
        if len(rows) != len(before):
            self.refresh(layout=True)
        elif changed := [y for y, row in enumerate(rows) if row is not before[y]]:
            self.refresh(Region(0, changed[0], self.size.width, len(rows) - changed[0]))

    # --- rendering ---

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width > 0 and (self._text.laid is None or self._text.laid[0] != width):
            self._lay(width)
        return len(self._text.rows)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._painted.clear()
        if self._text.laid:  # the theme may have changed
            self.call_next(self._lay, self._text.laid[0])

    def _lay(self, width: int) -> None:
        assert isinstance(self.screen, Paper)
        look = {part: self.screen.look(f"message--{part}") for part in PARTS}
        if (width, look) != self._text.laid:
            self._text.lay(width, look)
            self._render_some()
            self.refresh()

    def _render_some(self) -> None:
        """Little at once, much in a thread."""
        if self._aside:
            return
        job = self._text.next()
        if job is not None and job.small:
            self._text.take(job, job.run())
            job = None
        now = time.monotonic()
        if self._unchecked or (job is not None and (job.closed or now >= self._again)):
            self._aside = True
            self.run_worker(self._render_aside())

    async def _render_aside(self) -> None:
        while self._aside:
            began = time.monotonic()
            if (job := self._text.next()) is not None:
                self._text.take(job, await asyncio.to_thread(job.run))
                self._aside = bool(job.closed)
            elif self._unchecked:
                self._checked = True
                if not await asyncio.to_thread(same, list(self._text.pieces), self._whole):
                    self._text.replace(self._whole)
            else:
                self._aside = False
        now = time.monotonic()
        self._again = now + (now - began) / SHARE
        self.refresh(layout=True)

    @property
    def _unchecked(self) -> bool:
        """The pieces may say something else than the whole does."""
        return self._finished and not self._checked and self._text.pieces != [self._whole]

    @property
    def _whole(self) -> str:
        return self.part.rendered or self.part.whole or str(self.part.text)

    # --- painting ---

    @property
    def text_selection(self) -> Selection | None:
        """None once it was removed: until the next layout it may still be painted."""
        return super().text_selection if self.is_attached else None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Whenever its height changes, Textual forgets all of it. Rows that are as they were are not
        made again, which is most of what a paint costs while text streams."""
        looks = (crop.column_span, self.visual_style, self.text_selection, self.hover_style)
        if looks != self._looks:
            self._looks = looks
            self._painted.clear()
        rows, top = self._text.rows, self.gutter.top
        strips = []
        for y in crop.line_range:
            row, strip = self._painted.get(y, (None, None))
            if strip is None or not 0 <= y - top < len(rows) or rows[y - top] is not row:
                break
            strips.append(strip)
        made = crop.y + len(strips)
        if made < crop.bottom:
            strips += super().render_lines(Region(crop.x, made, crop.width, crop.bottom - made))
        self._painted = {
            y: (rows[y - top], strip)
            for y, strip in zip(crop.line_range, strips, strict=True)
            if 0 <= y - top < len(rows)
        }
        return strips

    def render_line(self, y: int) -> Strip:
        width, rows = self.size.width, self._text.rows
        style = self.visual_style.rich_style
        if y >= len(rows):
            return Strip.blank(width, style)
        strip = Strip(rows[y].segments)
        if (selection := self.text_selection) and (span := selection.get_span(y)):
            text = strip.text
            start, end = span[0], len(text) if span[1] == -1 else span[1]
            cuts = [cell_len(text[:start]), cell_len(text[:end]), strip.cell_length]
            before, chosen, after = strip.divide(cuts)
            marked = self.screen.get_component_rich_style("screen--selection")
            strip = Strip.join([before, Strip(Segment.apply_style(chosen, None, marked)), after])
        strip = strip.apply_style(style).adjust_cell_length(width, style)
        return strip.apply_offsets(0, y)

    def places(self, wanted: str) -> Iterator[tuple[int, int, int]]:
        """Where a text (without capitals) stands: row, column, and the row again."""
        for y, row in enumerate(self._text.rows):
            text = row.text.casefold()
            at = text.find(wanted)
            while at >= 0:
                yield y, at, y
                at = text.find(wanted, at + 1)

    # --- selecting: what was wrapped is one line again ---

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        text = ""
        for y, row in enumerate(self._text.rows):
            if (span := selection.get_span(y)) is None:
                continue
            part = row.text[span[0] : None if span[1] == -1 else span[1]]
            text += (part.strip() if text and not text.endswith("\n") else part.rstrip()) + row.end
        return text.rstrip("\n"), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
