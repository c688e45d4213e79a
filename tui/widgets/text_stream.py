"""Plain text that grows: wrapped as it comes, followed at its end, never parsed as markup."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from tui.base_screen import Paper
from tui.util.format import wrap

INSET = " inset"
"""Behind a style, or alone: its lines are quoted in what stands around them, all rows of theirs."""
_BAR = "  │ "


@dataclass(slots=True)
class Line:
    text: str = ""
    styles: list[tuple[int, str]] = field(default_factory=list)
    """From which character on which style holds."""
    inset: bool = False

    def add(self, text: str, style: str) -> None:
        self.inset = self.inset or style.endswith(INSET)
        style = style.removesuffix(INSET)
        if text and (not self.styles or self.styles[-1][1] != style):
            self.styles.append((len(self.text), style))
        self.text += text

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """Where, between two characters, which style starts and ends."""
        at = max(0, bisect_right(self.styles, start, key=lambda style: style[0]) - 1)
        following = [place for place, _ in self.styles[at + 1 :] if place < end]
        for (_, style), upto in zip(self.styles[at:], [*following, end], strict=False):
            yield start, upto, style
            start = upto


class Stream(ScrollView, can_focus=True):
    """Costs what was added, not what is there: rows once wrapped stay as they are."""

    DEFAULT_CSS = """
    Stream {
        height: 1fr; overflow-x: hidden; overflow-y: auto;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable;
        &.-grows { height: auto; scrollbar-size-vertical: 0; scrollbar-gutter: auto; }
    }
    """

    def __init__(
        self, *, grows: bool = False, follows: bool = True, classes: str | None = None
    ) -> None:
        """``grows``: as high as its text (max-height still holds), else as high as its place.
        ``follows``: stays at the end, unless the person scrolls away from it."""
        super().__init__(classes=classes)
        self.set_class(grows, "-grows")
        self._grows, self._follows = grows, follows
        self._lines: list[Line] = []
        self._rows: list[tuple[int, int, int]] = []
        """Of each row on the screen: its line, and where in it the row starts and ends."""
        self._wrapped = 0

    def on_mount(self) -> None:
        if self._follows:
            self.anchor()

    # --- writing ---

    @property
    def text(self) -> str:
        return "\n".join(line.text for line in self._lines)

    def write(self, text: str, style: str = "") -> None:
        """Text that goes on where the last ended. ``style``: one of STYLES, or none; or INSET."""
        self.write_runs([(text, style)])

    def write_runs(self, runs: Iterable[tuple[str, str]]) -> None:
        """Texts, each with its style, one behind the other."""
        changed = max(0, len(self._lines) - 1)
        for text, style in runs:
            first, *more = text.split("\n")
            if not self._lines:
                self._lines.append(Line())
            self._lines[-1].add(first, style)
            for line in more:
                self._lines.append(Line())
                self._lines[-1].add(line, style)
        self._show(changed)

    def line(self, text: str, style: str = "") -> None:
        """Text on lines of its own."""
        self.lines([(text, style)])

    def lines(self, runs: Iterable[tuple[str, str]]) -> None:
        """The same, of several styles."""
        self.mark()
        self.write_runs([*runs, ("\n", "")])

    def mark(self) -> int:
        """A place between lines, to ``cut`` back to."""
        if self._lines and self._lines[-1].text:
            self._lines.append(Line())
        return max(0, len(self._lines) - 1)

    def cut(self, mark: int = 0) -> None:
        """Take back what was written after the mark."""
        del self._lines[mark:]
        self._lines += [Line()] if mark else []
        self._show(mark)

    # --- wrapping ---

    def _show(self, changed: int) -> None:
        """Bring rows, height and scroll position up to date from line ``changed`` on."""
        width = self.scrollable_content_region.width if self.is_attached else 0
        if width <= 0:
            return
        before = len(self._rows)
        start = self._wrap(changed, width)
        self.virtual_size = Size(width, len(self._rows))
        if self._grows and len(self._rows) != before:
            self.refresh(layout=True)
        self.refresh_lines(start, max(before, len(self._rows)) - start + 1)

    def _wrap(self, changed: int, width: int) -> int:
        """Wrap again from line ``changed`` on; the first row that may differ."""
        if width != self._wrapped:
            self._wrapped, changed = width, 0
            self._rows.clear()
        while self._rows and self._rows[-1][0] > changed:
            self._rows.pop()
        at = 0
        if self._rows and self._rows[-1][0] == changed:
            # Greedy wrapping: text added to a line only touches the last of its rows.
            if changed < len(self._lines) and self._rows[-1][2] <= len(self._lines[changed].text):
                at = self._rows[-1][1]
                self._rows.pop()
            else:
                while self._rows and self._rows[-1][0] == changed:
                    self._rows.pop()
        start = len(self._rows)
        for number in range(changed, len(self._lines)):
            line = self._lines[number]
            if number == len(self._lines) - 1 and number and not line.text:
                break  # the line that is about to be written
            fits = max(1, width - len(_BAR)) if line.inset else width
            self._rows += [(number, a, b) for a, b in wrap(line.text, fits, at)]
            at = 0
        return start

    def on_resize(self) -> None:
        self._show(0)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width > 0 and width != self._wrapped:
            self._wrap(0, width)
            self.virtual_size = Size(width, len(self._rows))
        return len(self._rows)

    # --- painting ---

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at = y + self.scroll_offset.y
        if at >= len(self._rows):
            return Strip.blank(width, self.visual_style.rich_style)
        number, start, end = self._rows[at]
        line, plain = self._lines[number], self.visual_style.rich_style
        low, high = self._selected(number, end)
        segments, paper = [], self._paper
        for first, last, style in line.runs(start, end):
            shade = plain + paper.look(f"stream--{style}") if style else plain
            places = {first, last, min(max(low, first), last), min(max(high, first), last)}
            for a, b in pairwise(sorted(places)):
                segments.append(Segment(line.text[a:b], self._chosen(shade, low <= a < high)))
        strip = Strip(segments).apply_offsets(start, number)
        if line.inset:
            strip = Strip.join([self._bar(start, number), strip])
        return strip.adjust_cell_length(width, plain)

    def _bar(self, start: int, number: int) -> Strip:
        """In front of a row, not of its text: who selects from it selects from the row's start."""
        place = Style.from_meta({"offset": (start, number)})
        faint = self.visual_style.rich_style + self._paper.look("stream--faint") + place
        return Strip([Segment(one, faint) for one in _BAR])

    @property
    def _paper(self) -> Paper:
        assert isinstance(self.screen, Paper)
        return self.screen

    def _selected(self, number: int, end: int) -> tuple[int, int]:
        """From where to where a line is selected."""
        if (selection := self.text_selection) and (span := selection.get_span(number)):
            return span[0], end if span[1] == -1 else span[1]
        return 0, 0

    def _chosen(self, style: Style, selected: bool) -> Style:
        if not selected:
            return style
        return style + self.screen.get_component_rich_style("screen--selection")

    def places(self, wanted: str) -> Iterator[tuple[int, int, int]]:
        """Where a text (without capitals) stands: line, column, and the row on the screen."""
        for row, (number, start, end) in enumerate(self._rows):
            text = self._lines[number].text.casefold()
            at = text.find(wanted, start)
            while -1 < at < end:
                yield number, at, row
                at = text.find(wanted, at + 1)

    # --- selecting: in lines as they were written, not as they are wrapped ---

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
