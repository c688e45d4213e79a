"""Parses Markdown in the dialect of the app, and compares what two texts come out as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_markdown = MarkdownIt("gfm-like", {"html": False})


def parse(text: str) -> list[Token]:
    """Parse GitHub's Markdown; HTML is text, and every line break is one, as models mean it."""
    tokens = _markdown.parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return tokens


def parses_alike(pieces: Sequence[str], text: str) -> bool:
    """Return whether the pieces, each rendered on its own, come out as ``text`` does in one piece."""
    apart = (token for piece in pieces for token in parse(piece))
    return list(_comparable(apart)) == list(_comparable(parse(text)))


def _comparable(tokens: Iterable[Token]) -> Iterator[tuple[Any, ...]]:
    for token in tokens:
        children = list(_comparable(token.children or []))
        yield (
            token.type,
            token.level,
            token.content,
            token.info,
            token.hidden,
            token.attrs,
            children,
        )
