"""Where the tokens of a text are: lines and columns, found in time that does not grow with the text."""

from __future__ import annotations

from bisect import bisect_right

Position = tuple[int, int]
"""A line and a column in it, both from 0, in characters."""


class TokenIndex:
    """The start and end of each token of a text, in order. A token that is only a part of a character
    has no text: the character belongs to the token that completes it."""

    def __init__(self) -> None:
        self._starts: list[Position] = []
        self._ends: list[Position] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: Position, end: Position) -> None:
        self._starts.append(start)
        self._ends.append(end)

    def truncate(self, count: int) -> None:
        del self._starts[count:]
        del self._ends[count:]

    def span(self, number: int) -> tuple[Position, Position]:
        return self._starts[number], self._ends[number]

    def at(self, position: Position) -> int:
        """The token that has the character at a position, or the last one before it; of several
        that make up the character the first. 0 where none is before it."""
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return 0
        start = self._starts[number]
        while number and self._starts[number - 1] == start:
            number -= 1
        return number
