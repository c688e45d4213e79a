"""Cuts Markdown that arrives in pieces between its top-level blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.token import Token

CLEAR_LINE_CHARS = 8
"""Characters after which a line shows what it is: more of a list (``10. ``), or a new block."""


class MarkdownBlocks:
    """Gives each top-level block out once nothing that follows can change it. ``parse`` is
    markdown-it's, in the dialect that the caller renders."""

    def __init__(self, parse: Callable[[str], Sequence[Token]]) -> None:
        self.open = ""
        """The text that may still change."""
        self._parse = parse
        self._parsed_chars = 0

    def feed(self, text: str) -> list[str]:
        """Add text; return the blocks that it closed, each with the blank lines behind it."""
        self.open += text
        # Only a line after a blank one can begin a new block for sure; before, nothing is parsed.
        blank = self.open.rfind("\n\n")
        after = self.open[blank + 2 :]
        if blank < self._parsed_chars or ("\n" not in after and len(after) < CLEAR_LINE_CHARS):
            return []
        # The longer the open block is, the less often it is parsed.
        self._parsed_chars = blank + 1 + len(self.open) // 10
        return self._cut()

    def finish(self) -> list[str]:
        blocks = self._cut() if "\n\n" in self.open else []
        rest, self.open, self._parsed_chars = self.open, "", 0
        return [*blocks, rest] if rest.strip() else blocks

    def _cut(self) -> list[str]:
        starts = sorted({t.map[0] for t in self._parse(self.open) if t.map and t.level == 0})
        if len(starts) < 2:
            return []
        lines = self.open.split("\n")
        closed = ["\n".join(lines[a:b]) + "\n" for a, b in pairwise([0, *starts[1:]])]
        self.open = "\n".join(lines[starts[-1] :])
        self._parsed_chars = 0
        return closed
