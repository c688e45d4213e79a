"""The line above the conversation, once another program asks this one something: a tab for each
conversation, the person's own first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

State = Literal["running", "done", "failed"]
MARKS: dict[State, tuple[str, str]] = {
    "running": ("●", "$accent"), "done": ("✓", ""), "failed": ("✗", "$text-error"),
}  # fmt: skip
"""A sign and its colour."""
LONGEST, SHORTEST = 40, 8
"""Columns of a title; where even the shortest are too many, some tabs are left out."""
MORE = 5
"""Columns for how many those are, on each side."""


@dataclass(frozen=True, slots=True)
class Tab:
    number: int
    """0: the person's own."""
    state: State | None
    title: str
    looked: bool

    def words(self, longest: int) -> tuple[str, str, str]:
        """What stands before its mark, the mark, and what stands behind."""
        if self.state is None:
            return f" {self.title} ", "", ""
        close = "× " if self.looked else ""
        return f" {self.number} ", MARKS[self.state][0], f" {cut(self.title, longest)} {close}"

    def width(self, longest: int) -> int:
        return sum(map(cell_len, self.words(longest)))


def cut(title: str, columns: int) -> str:
    """As much of it as fits."""
    if cell_len(title) <= columns:
        return title
    return f"{set_cell_size(title, columns - 1).rstrip()}…"


def fitting(tabs: Sequence[Tab], columns: int) -> tuple[int, range]:
    """How long titles may be, and which of the tabs there is room for; the first and the one that is
    looked at are never left out."""
    for longest in range(LONGEST, SHORTEST - 1, -1):
        if sum(tab.width(longest) for tab in tabs) <= columns:
            return longest, range(1, len(tabs))
    widths = [tab.width(SHORTEST) for tab in tabs]
    looked = next(tab.number for tab in tabs if tab.looked)
    room, first, stop = columns - widths[0] - 2 * MORE, 1, looked + 1
    while first < looked and sum(widths[first:stop]) > room:
        first += 1
    while stop < len(tabs) and sum(widths[first : stop + 1]) <= room:
        stop += 1
    return SHORTEST, range(first, stop)


class Tabs(Static):
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Tabs { height: 1; padding: 0 1; color: $text-muted; }
    """

    @dataclass
    class Pressed(Message):
        """With the mouse."""

        number: int
        """0: the person's own conversation."""
        closes: bool

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.display = False
        self._tabs: list[Tab] = []
        self._places: list[tuple[int, int, bool]] = []
        """Up to which column which tab stands, and whether it is closed there."""

    def tell(self, others: Sequence[tuple[State, str]], looked: int) -> None:
        """``others``: how it is with the conversations of other programs, and their titles.
        ``looked``: the number of the one that is looked at, from 1; 0: the person's own."""
        self._tabs = [Tab(0, None, "Chat", looked == 0)]
        self._tabs += [
            Tab(n, state, title, n == looked) for n, (state, title) in enumerate(others, 1)
        ]
        self.display = bool(others)
        self._show()

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        if self.display and self.content_size.width:
            self.update(Content.assemble(*self._line(self.content_size.width)), layout=False)

    def _line(self, columns: int) -> Iterator[tuple[str, str]]:
        longest, shown = fitting(self._tabs, columns)
        self._places, at = [], 0
        last = len(self._tabs) - 1

        def place(text: str, number: int, closes: bool = False) -> None:
            nonlocal at
            at += cell_len(text)
            self._places.append((at, number, closes))

        for number in (0, *shown):
            tab = self._tabs[number]
            if number == shown.start and number > 1:
                place(more := f"‹{number - 1} ".rjust(MORE), number - 1)
                yield more, ""
            before, mark, behind = tab.words(longest)
            close = tab.looked and number > 0
            place(before + mark + behind[: -2 if close else None], number)
            if close:
                place(behind[-2:], number, closes=True)
            style = "bold reverse" if tab.looked else ""
            colour = MARKS[tab.state][1] if tab.state and not tab.looked else ""
            yield from ((before, style), (mark, f"{style} {colour}"), (behind, style))
        if shown.stop <= last:
            place(more := f" {last + 1 - shown.stop}›".ljust(MORE), shown.stop)
            yield more, ""

    def on_click(self, event: events.Click) -> None:
        """The left button looks at it, or closes it on its cross; the middle one closes it."""
        at = event.get_content_offset(self)
        for end, number, closes in self._places if at else ():
            if at and at.x < end:
                self.post_message(
                    self.Pressed(number, number > 0 and (closes or event.button == 2))
                )
                return
