"""The pieces of one generation as its parser finds them, in the order that the protocol wants."""

from __future__ import annotations

from agent.formats.markup.text_buffer import Source
from agent.formats.protocol import Closed, Delta, Opened, Piece, Repair


class Segments:
    """One segment after the other; repairs within one are told after it."""

    def __init__(self, source: Source) -> None:
        self.out: list[Piece] = []
        self.opened: Opened | None = None
        self._source = source
        self._late: list[Repair] = []
        self._spanned = 0
        self._began = 0

    def open(self, opened: Opened, began: int) -> None:
        """``began``: the token in which its content begins."""
        self.opened, self._began = opened, began
        self.out.append(opened)

    def delta(self, text: str) -> None:
        if text:
            self.out.append(Delta(text))

    def close(self, complete: bool, *, until: int, end: int | None = None) -> None:
        """``until``: the token in which its content ends; ``end``: of its span, else what was read."""
        end = max(self._source.last + 1 if end is None else end, self._spanned)
        tokens = min(max(until - self._began, 0), end - self._spanned)
        self.out.append(Closed(complete, self._spanned, end, tokens))
        self.out += self._late
        self._spanned, self._late, self.opened = end, [], None

    def repair(self, rule: str, at: int, text: str = "") -> None:
        into: list[Repair] | list[Piece] = self.out if self.opened is None else self._late
        into.append(Repair(rule, at, text))
