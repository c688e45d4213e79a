"""A text of tokens with a cursor, which is found and painted in the same time at any length."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import ClassVar, Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from tui.keymap import bind, bind_fixed
from tui.state.token_colours import TokenRun
from tui.util.text_search import find_folded
from tui.widgets.text_stream import MarkedSpan, TextStream

Step = Literal[
    "left", "right", "up", "down", "page_up", "page_down", "home", "end", "first", "last"
]

CURSOR_KEYS = ("left", "right", "up", "down", "home", "end")
Position = tuple[int, int]
"""A line and a column in it, both from 0, in characters."""


class TokenBrowser(TextStream):
    """Shows tokens. With the focus it has a cursor on one, which stays, or follows the last one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bind_fixed({key: f"move_cursor('{key}')" for key in CURSOR_KEYS}),
        # With priority: letters are for the prompt.
        Binding("p", "screen.colour_tokens", show=False, priority=True),
        bind("scroll_up", "move_cursor('page_up')"),
        bind("scroll_down", "move_cursor('page_down')"),
        bind("scroll_top", "move_cursor('first')"),
        bind("scroll_bottom", "move_cursor('last')"),
    ]

    class Moved(Message):
        """Posted when the cursor is on another token than before, or on none any more."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens: list[tuple[Position, Position]] = []
        """The start and end of each, in order. One that is only a part of a character has no text: the
        character belongs to the token that completes it."""
        self.cursor: int | None = None
        """The number of the token that the cursor is on, from 0; None: there is no cursor."""
        self.follows_last = False
        self._goal: int | None = None  # the cell that ↑ and ↓ keep to
        self._marks: dict[int, int] = {}  # by what ``mark`` returned: how many tokens there were

    @property
    def token_count(self) -> int:
        return len(self._tokens)

    def write_tokens(self, runs: Iterable[TokenRun]) -> None:
        changed = max(0, len(self.lines) - 1)
        for text, style, is_token in runs:
            start = self._end
            self._append(text, style)
            if is_token:
                self._tokens.append((start, self._end))
        self._update_from(changed)
        if self.cursor is not None and self.follows_last:
            self._set_cursor(len(self._tokens) - 1)
        elif self.cursor is None and self.has_focus:
            self.move_cursor_to(len(self._tokens) - 1)

    def mark(self) -> int:
        """End the line that is open; ``truncate`` to it removes the tokens behind it, too."""
        mark = super().mark()
        self._marks[mark] = len(self._tokens)
        return mark

    def truncate(self, mark: int = 0) -> None:
        """Remove what was written after ``mark`` was returned; the cursor keeps its number."""
        del self._tokens[self._marks.get(mark, 0) if mark else 0 :]
        super().truncate(mark)

    @property
    def _end(self) -> Position:
        return (len(self.lines) - 1, len(self.lines[-1].text)) if self.lines else (0, 0)

    # --- the cursor ---

    def move_cursor_to(self, number: int | None) -> None:
        """Put the cursor on a token, or the last one, and scroll to it; None: there is no cursor."""
        self._goal, last = None, len(self._tokens) - 1
        if number is None or last < 0:
            self.follows_last = False
            self._set_cursor(None)
            return
        self.follows_last = number >= last
        self._set_cursor(max(0, min(number, last)))
        self._scroll_to_cursor()

    def _set_cursor(self, number: int | None) -> None:
        if number == self.cursor:
            return
        self._refresh_cursor()
        self.cursor = number
        self._refresh_cursor()
        self.post_message(self.Moved())

    def _refresh_cursor(self) -> None:
        if self.cursor is not None and self.cursor < len(self._tokens) and self._rows:
            first, last = self._cursor_rows()
            self.refresh_lines(first, last - first + 1)

    def _cursor_rows(self) -> tuple[int, int]:
        assert self.cursor is not None
        start, end = self._tokens[self.cursor]
        return self._row_at(start), self._row_at(end)

    def _scroll_to_cursor(self) -> None:
        if self.follows_last:
            self.anchor()
            self.scroll_end(animate=False, immediate=True)
            return
        if self.cursor is None or self.cursor >= len(self._tokens):  # by now, after a refresh
            return
        self.release_anchor()
        first, last = self._cursor_rows()
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        if first < top:
            self.scroll_to(y=first, animate=False, immediate=True)
        elif last >= top + height:
            self.scroll_to(y=min(first, last - height + 1), animate=False, immediate=True)

    def on_focus(self) -> None:
        if self.cursor is None:
            bottom = self.scroll_offset.y + self.scrollable_content_region.height
            row = max(0, min(bottom, len(self._rows)) - 1)
            self.move_cursor_to(self._token_in_row(row, None))
        self._refresh_cursor()

    def on_blur(self) -> None:
        self._refresh_cursor()

    def on_resize(self) -> None:
        super().on_resize()
        if self.cursor is not None and self.cursor < len(self._tokens):
            self.call_after_refresh(self._scroll_to_cursor)

    # --- keys and mouse ---

    def action_move_cursor(self, step: Step) -> None:
        count = len(self._tokens)
        if self.cursor is None or self.cursor >= count:
            self.move_cursor_to(count - 1)
            return
        row = self._row_at(self._tokens[self.cursor][0])
        height = max(1, self.scrollable_content_region.height - 1)
        match step:
            case "left" | "right":
                self.move_cursor_to(max(0, self.cursor + (1 if step == "right" else -1)))
            case "up" | "down":
                self._move_rows(row, 1 if step == "down" else -1)
            case "page_up" | "page_down":
                self._move_rows(row, height if step == "page_down" else -height)
            case "home" | "end":
                self.move_cursor_to(self._token_in_row(row, 0 if step == "home" else None))
            case "first" | "last":
                self.move_cursor_to(0 if step == "first" else count - 1)

    def _move_rows(self, row: int, by: int) -> None:
        """Move to the token in the same cell of another row; past a token that takes several."""
        assert self.cursor is not None
        if not self._rows:
            return
        if (goal := self._goal) is None:
            (line, column), _ = self._tokens[self.cursor]
            goal = cell_len(self.lines[line].text[self._rows[row][1] : column])
        target = max(0, min(row + by, len(self._rows) - 1))
        step, last = (1, len(self._rows) - 1) if by > 0 else (-1, 0)
        number = self._token_in_row(target, goal)
        while number == self.cursor and target != last:
            target += step
            number = self._token_in_row(target, goal)
        self.move_cursor_to(number)
        self._goal = goal

    def _token_in_row(self, row: int, cell: int | None) -> int:
        """The token in a cell of a row; the last one for None, or where the row ends before it."""
        if not self._rows:
            return max(0, len(self._tokens) - 1)
        line, start, end = self._rows[row]
        text = self.lines[line].text
        column, cells = start, 0
        while column < end and (cell is None or cells + cell_len(text[column]) <= cell):
            cells += cell_len(text[column])
            column += 1
        if column == end and end < len(text):
            column -= 1  # the next row begins there
        return self._token_at((line, column))

    def _token_at(self, position: Position) -> int:
        """The token with the character at a position (of several the first), or the last before it."""
        number = max(0, bisect_right(self._tokens, position, key=itemgetter(0)) - 1)
        while number and self._tokens[number - 1][0] == self._tokens[number][0]:
            number -= 1
        return number

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Put the cursor on the token that is pressed: by the click the panel has moved the rows."""
        offset = event.get_content_offset(self)
        if offset is not None and (row := offset.y + self.scroll_offset.y) < len(self._rows):
            self.move_cursor_to(self._token_in_row(row, offset.x))

    def find_tokens(self, query: str) -> list[int]:
        """The tokens with which the occurrences of ``query``, which is case-folded, begin."""
        return [
            self._token_at((number, start))
            for number, line in enumerate(self.lines)
            for start, _ in find_folded(line.text, query)
        ]

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if (cell := self._cell_behind(row)) is None or not width:
            return strip
        # The token is a line break: the cell behind the line stands for it.
        before, _, after = strip.divide([min(cell, width - 1), min(cell, width - 1) + 1, width])
        mark = Strip([Segment(" ", self.visual_style.rich_style + self._cursor_style)])
        return Strip.join([before, mark, after])

    def _cell_behind(self, row: int) -> int | None:
        """The cell behind a row's text, where the cursor's token is the line break there."""
        if self.cursor is None or self.cursor >= len(self._tokens) or row >= len(self._rows):
            return None
        line, start, end = self._rows[row]
        text = self.lines[line].text
        (first, column), (last, _) = self._tokens[self.cursor]
        starts_here = (first, column) == (line, len(text)) and end == len(text)
        return cell_len(text[start:end]) if starts_here and last > first else None

    def _marked_spans(self, number: int, start: int, end: int) -> Sequence[MarkedSpan]:
        if self.cursor is None or self.cursor >= len(self._tokens):
            return ()
        (first, column), (last, stop) = self._tokens[self.cursor]
        if not first <= number <= last:
            return ()
        text = self.lines[number].text
        low = column if number == first else 0
        high = stop if number == last else len(text)
        if low == high == column and first == last:
            high += 1  # a part of a character: all of it
        while 0 < low < len(text) and not cell_len(text[low:high]):
            low -= 1  # it combines with the character before
        return ((low, high, self._cursor_style),)

    @property
    def _cursor_style(self) -> Style:
        name = "cursor" if self.has_focus else "cursor-blurred"
        return self._base_screen.style_of(f"stream--{name}")
