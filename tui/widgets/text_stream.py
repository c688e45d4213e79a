"""A widget for plain text that streams in, never markup. Textual's ``RichLog`` and ``Log`` keep
finished lines; here the last line can grow, is wrapped again, and is copied as it was written."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from tui.base_screen import BaseScreen
from tui.guarded import Guarded
from tui.util.format import INSET, StyledRun, wrap_line
from tui.util.text_search import find_folded

_INSET_BAR = "  │ "
MarkedSpan = tuple[int, int, Style]
"""Start and end in a line, and a style that is laid over that of the text."""


@dataclass(slots=True)
class StyledLine:
    """One line of text, which may be wrapped into several rows."""

    text: str = ""
    styles: list[tuple[int, str]] = field(default_factory=list)
    """The first character and the name of each style; it holds up to the next one."""
    inset: bool = False
    """Whether its rows are quoted with a bar."""

    def add(self, text: str, style: str) -> None:
        """Append text in a style, which may end in ``INSET``."""
        self.inset = self.inset or style.endswith(INSET)
        style = style.removesuffix(INSET)
        if text and (not self.styles or self.styles[-1][1] != style):
            self.styles.append((len(self.text), style))
        self.text += text

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        first = max(0, bisect_right(self.styles, start, key=lambda style: style[0]) - 1)
        last = bisect_left(self.styles, end, first + 1, key=lambda style: style[0])
        ends = [style_start for style_start, _ in self.styles[first + 1 : last]]
        for (_, style), run_end in zip(self.styles[first:last], [*ends, end], strict=False):
            yield start, run_end, style
            start = run_end


class TextStream(Guarded, ScrollView, can_focus=True):
    """Shows streaming text; a write costs the length of what is added, not of what is there."""

    DEFAULT_CSS = """
    TextStream {
        height: 1fr; overflow-x: hidden; overflow-y: auto;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable;
        &.-grows { height: auto; scrollbar-size-vertical: 0; scrollbar-gutter: auto; }
    }
    """

    class Rewrapped(Message):
        """Posted when another width has changed the rows."""

    def __init__(
        self, *, grows: bool = False, follows: bool = True, classes: str | None = None
    ) -> None:
        """``grows``: as high as its text (``max-height`` holds). ``follows``: stays at the end."""
        super().__init__(classes=classes)
        self.set_class(grows, "-grows")
        self._grows, self._follows = grows, follows
        self.lines: list[StyledLine] = []
        self._rows: list[tuple[int, int, int]] = []
        """For each row: the index of its line, and its start and end in the line."""
        self._wrap_width = 0

    def on_mount(self) -> None:
        if self._follows:
            self.anchor()

    # --- writing ---

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def row_count(self) -> int:
        """The rows that the text takes as it is wrapped now; 0 before the first layout."""
        return len(self._rows)

    def write(self, text: str, style: str = "") -> None:
        """Append text to the last line. ``style``: see ``tui.util.format.StyledRun``."""
        self.write_runs([(text, style)])

    def write_runs(self, runs: Iterable[StyledRun]) -> None:
        changed = max(0, len(self.lines) - 1)
        for text, style in runs:
            self._append(text, style)
        self._update_from(changed)

    def _append(self, text: str, style: str) -> None:
        """Append a text to the last line, without wrapping it yet."""
        first, *more = text.split("\n")
        if not self.lines:
            self.lines.append(StyledLine())
        self.lines[-1].add(first, style)
        for line in more:
            self.lines.append(StyledLine())
            self.lines[-1].add(line, style)

    def write_line(self, text: str, style: str = "") -> None:
        self.write_lines([(text, style)])

    def write_lines(self, runs: Iterable[StyledRun]) -> None:
        self.mark()
        self.write_runs([*runs, ("\n", "")])

    def mark(self) -> int:
        """End the line that is open; return the position behind it, to ``truncate`` back to."""
        if self.lines and self.lines[-1].text:
            self.lines.append(StyledLine())
        return max(0, len(self.lines) - 1)

    def truncate(self, mark: int = 0) -> None:
        """Remove what was written after ``mark`` was returned; everything by default."""
        del self.lines[mark:]
        self.lines += [StyledLine()] if mark else []
        self._update_from(mark)

    # --- wrapping ---

    def _update_from(self, changed: int) -> None:
        """Bring rows, height and scroll position up to date from line ``changed`` on."""
        width = self.scrollable_content_region.width if self.is_attached else 0
        if width <= 0:
            while self._rows and self._rows[-1][0] >= len(self.lines):
                self._rows.pop()  # of what is no longer written
            if self._wrap_width:  # measured, but not laid out yet: what was measured is outdated
                self._wrap_width = 0
                self.refresh(layout=True)
            return
        before = len(self._rows)
        start = self._wrap_from(changed, width)
        self.virtual_size = Size(width, len(self._rows))
        if self._grows and len(self._rows) != before:
            self.refresh(layout=True)
        self.refresh_lines(start, max(before, len(self._rows)) - start + 1)

    def _wrap_from(self, changed: int, width: int) -> int:
        """Wrap again from line ``changed`` on; return the first row that may differ."""
        if width != self._wrap_width:
            self._wrap_width, changed = width, 0
            self._rows.clear()
        while self._rows and self._rows[-1][0] > changed:
            self._rows.pop()
        at = 0
        if self._rows and self._rows[-1][0] == changed:
            # Greedy wrapping: text added to a line only touches the last of its rows.
            if changed < len(self.lines) and self._rows[-1][2] <= len(self.lines[changed].text):
                at = self._rows[-1][1]
                self._rows.pop()
            else:
                while self._rows and self._rows[-1][0] == changed:
                    self._rows.pop()
        start = len(self._rows)
        for number in range(changed, len(self.lines)):
            line = self.lines[number]
            if number == len(self.lines) - 1 and number and not line.text:
                break  # nothing is on the last line yet
            fits = max(1, width - len(_INSET_BAR)) if line.inset else width
            self._rows += [(number, a, b) for a, b in wrap_line(line.text, fits, at)]
            at = 0
        return start

    def on_resize(self) -> None:
        if self.scrollable_content_region.width != self._wrap_width:
            self._update_from(0)
            self.post_message(self.Rewrapped())

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width > 0 and width != self._wrap_width:
            self._wrap_from(0, width)
            self.virtual_size = Size(width, len(self._rows))
            self.post_message(self.Rewrapped())
        return len(self._rows)

    # --- painting ---

    def render_lines(self, crop: Region) -> list[Strip]:
        if self.scrollable_content_region.width != self._wrap_width:
            # Written between the measuring and the layout: no Resize comes where the size stays.
            self.call_later(self.on_resize)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at = y + self.scroll_offset.y
        if at >= len(self._rows):
            return Strip.blank(width, self.visual_style.rich_style)
        number, start, end = self._rows[at]
        line, plain = self.lines[number], self.visual_style.rich_style
        marks = [*self._selected_span(number, end), *self._marked_spans(number, start, end)]
        edges = [edge for low, high, _ in marks for edge in (low, high)]
        segments, screen = [], self._base_screen
        for first, last, name in line.runs(start, end):
            kinds = (screen.style_of(f"stream--{kind}") for kind in name.split())
            style = Style.combine([plain, *kinds]) if name else plain
            cuts = {first, last, *(min(max(edge, first), last) for edge in edges)}
            for a, b in pairwise(sorted(cuts)):
                extra = [mark for low, high, mark in marks if low <= a < high]
                segments.append(Segment(line.text[a:b], Style.combine([style, *extra])))
        strip = Strip(segments).apply_offsets(start, number)
        if line.inset:
            strip = Strip.join([self._bar_strip(start, number), strip])
        return strip.adjust_cell_length(width, plain)

    def _bar_strip(self, start: int, number: int) -> Strip:
        """Make the bar of an inset row; a selection that begins in it begins at the row's start."""
        offset = Style.from_meta({"offset": (start, number)})
        faint = self.visual_style.rich_style + self._base_screen.style_of("stream--faint") + offset
        return Strip([Segment(character, faint) for character in _INSET_BAR])

    @property
    def _base_screen(self) -> BaseScreen:
        assert isinstance(self.screen, BaseScreen)
        return self.screen

    def _selected_span(self, number: int, end: int) -> Sequence[MarkedSpan]:
        if (selection := self.text_selection) and (span := selection.get_span(number)):
            style = self.screen.get_component_rich_style("screen--selection")
            return [(span[0], end if span[1] == -1 else span[1], style)]
        return ()

    def _marked_spans(self, number: int, start: int, end: int) -> Sequence[MarkedSpan]:
        """Spans that a subclass marks in a row of line ``number``, from ``start`` to ``end``."""
        return ()

    def find_text(self, query: str) -> Iterator[tuple[Selection, int]]:
        """Yield the place and the row of each occurrence of ``query``, which is case-folded."""
        for number, line in enumerate(self.lines if self._rows else ()):
            for start, end in find_folded(line.text, query):
                hit = Selection(Offset(start, number), Offset(end, number))
                yield hit, self._row_at((number, start))

    def _row_at(self, position: tuple[int, int]) -> int:
        line, column = position
        row = bisect_right(self._rows, (line, column, len(self.lines[line].text))) - 1
        return max(0, min(row, len(self._rows) - 1))

    # --- selecting: in lines as they were written, not as they are wrapped ---

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.text), "\n"
