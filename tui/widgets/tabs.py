"""The tab bar above the transcript, hidden until another program sends a request. Textual's ``Tabs``
scrolls; this one shortens titles and counts tabs (``‹3``), so that the active tab always shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from tui.guarded import Guarded

TabState = Literal["running", "done", "failed"]
STATE_MARKS: dict[TabState, tuple[str, str]] = {
    "running": ("●", "$accent"), "done": ("✓", ""), "failed": ("✗", "$text-error"),
}  # fmt: skip
MAX_TITLE_COLUMNS, MIN_TITLE_COLUMNS = 40, 8
"""Columns of a title; where even the shortest titles do not fit, some tabs are left out."""
OVERFLOW_COLUMNS = 5
"""Columns, on each side, for the number of tabs that are left out."""


@dataclass(frozen=True, slots=True)
class TabLabel:
    """One tab as it is painted."""

    number: int
    """0 for the person's own conversation."""
    state: TabState | None
    title: str
    is_active: bool

    def label_parts(self, title_columns: int) -> tuple[str, str, str]:
        """Return the text before the state's mark, the mark, and the text behind it."""
        if self.state is None:
            return f" {self.title} ", "", ""
        close = "× " if self.is_active else ""
        title = self.title
        if cell_len(title) > title_columns:
            title = f"{set_cell_size(title, title_columns - 1).rstrip()}…"
        return f" {self.number} ", STATE_MARKS[self.state][0], f" {title} {close}"

    def width(self, title_columns: int) -> int:
        return sum(map(cell_len, self.label_parts(title_columns)))


def fit_tabs(tabs: Sequence[TabLabel], columns: int) -> tuple[int, range]:
    """The columns of a title, and the range of tabs that fit, the active one among them."""
    for title_columns in range(MAX_TITLE_COLUMNS, MIN_TITLE_COLUMNS - 1, -1):
        if sum(tab.width(title_columns) for tab in tabs) <= columns:
            return title_columns, range(1, len(tabs))
    widths = [tab.width(MIN_TITLE_COLUMNS) for tab in tabs]
    active = next(tab.number for tab in tabs if tab.is_active)
    room, first, stop = columns - widths[0] - 2 * OVERFLOW_COLUMNS, 1, active + 1
    while first < active and sum(widths[first:stop]) > room:
        first += 1
    while stop < len(tabs) and sum(widths[first : stop + 1]) <= room:
        stop += 1
    return MIN_TITLE_COLUMNS, range(first, stop)


class TabBar(Guarded, Static):
    """Paints the tabs in one line, and posts which of them is clicked."""

    ALLOW_SELECT = False
    DEFAULT_CSS = "TabBar { height: 1; padding: 0 1; color: $text-muted; }"

    @dataclass
    class Pressed(Message):
        """Posted when a tab is clicked."""

        number: int
        """0 for the person's own conversation."""
        closes: bool

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.display = False
        self._tabs: list[TabLabel] = []
        self._click_areas: list[tuple[int, int, bool]] = []
        """For each clickable part: the column after it, its tab, and whether a click closes the tab."""

    def show_tabs(self, served: Sequence[tuple[TabState, str]], active: int) -> None:
        """Show tabs with state and title. ``active``: number of the visible one, from 1; 0: our own."""
        self._tabs = [TabLabel(0, None, "Chat", active == 0)]
        self._tabs += [
            TabLabel(n, state, title, n == active) for n, (state, title) in enumerate(served, 1)
        ]
        self.display = bool(served)
        self._update()

    def on_resize(self) -> None:
        self._update()

    def _update(self) -> None:
        if self.display and self.content_size.width:
            self.update(Content.assemble(*self._segments(self.content_size.width)), layout=False)

    def _segments(self, columns: int) -> Iterator[tuple[str, str]]:
        """Yield the styled parts of the line, and note where each is clicked."""
        title_columns, fitting = fit_tabs(self._tabs, columns)
        self._click_areas, column = [], 0
        last = len(self._tabs) - 1

        def add_area(text: str, number: int, closes: bool = False) -> None:
            nonlocal column
            column += cell_len(text)
            self._click_areas.append((column, number, closes))

        for number in (0, *fitting):
            tab = self._tabs[number]
            if number == fitting.start and number > 1:
                add_area(more := f"‹{number - 1} ".rjust(OVERFLOW_COLUMNS), number - 1)
                yield more, ""
            before, mark, behind = tab.label_parts(title_columns)
            has_cross = tab.is_active and number > 0
            add_area(before + mark + behind[: -2 if has_cross else None], number)
            if has_cross:
                add_area(behind[-2:], number, closes=True)
            style = "bold reverse" if tab.is_active else ""
            colour = STATE_MARKS[tab.state][1] if tab.state and not tab.is_active else ""
            yield from ((before, style), (mark, f"{style} {colour}"), (behind, style))
        if fitting.stop <= last:
            add_area(more := f" {last + 1 - fitting.stop}›".ljust(OVERFLOW_COLUMNS), fitting.stop)
            yield more, ""

    def on_click(self, event: events.Click) -> None:
        """Show the tab that is clicked, or close it: on its cross, or with the middle button."""
        offset = event.get_content_offset(self)
        for end, number, closes in self._click_areas if offset else ():
            if offset and offset.x < end:
                closes = number > 0 and (closes or event.button == 2)
                self.post_message(self.Pressed(number, closes))
                return
