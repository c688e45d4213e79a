"""Markdown that arrives in pieces: which of it nothing that follows can change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_markdown = MarkdownIt("gfm-like", {"html": False})
LINE_IS_CLEAR = 8
"""After so many characters a line shows what it is: more of a list, a new block."""


def parse(text: str) -> list[Token]:
    """Markdown as this app reads it: GitHub's, tags shown as the text that they are."""
    return _markdown.parse(text)


class Blocks:
    """Cuts growing Markdown between its top-level blocks, as soon as one is closed."""

    def __init__(self) -> None:
        self.open = ""
        """The text that may still change."""
        self._looked = 0

    def feed(self, text: str) -> str:
        """Add text; the blocks that it closed."""
        self.open += text
        # Only a line after a blank one can begin a new block for sure; before, nothing is parsed.
        blank = self.open.rfind("\n\n")
        after = self.open[blank + 2 :]
        if blank < self._looked or ("\n" not in after and len(after) < LINE_IS_CLEAR):
            return ""
        # The longer it is, the less often.
        self._looked = blank + 1 + len(self.open) // 10
        starts = sorted({t.map[0] for t in parse(self.open) if t.map and t.level == 0})
        if len(starts) < 2:
            return ""
        lines = self.open.split("\n")
        closed = "\n".join(lines[: starts[-1]]) + "\n"
        self.open = "\n".join(lines[starts[-1] :])
        self._looked = 0
        return closed


def same(pieces: Sequence[str], whole: str) -> bool:
    """Whether the pieces, each rendered for itself, come out as the whole does."""
    apart = (token for piece in pieces for token in parse(piece))
    return list(_marks(apart)) == list(_marks(parse(whole)))


def _marks(tokens: Iterable[Token]) -> Iterator[tuple[Any, ...]]:
    for token in tokens:
        children = list(_marks(token.children or []))
        yield (
            token.type,
            token.level,
            token.content,
            token.info,
            token.hidden,
            token.attrs,
            children,
        )
