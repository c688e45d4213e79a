"""What the store tells of what it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.events import Item, Response


@dataclass(frozen=True, slots=True)
class Summary:
    """A conversation as a list shows it; times in seconds since 1970."""

    id: str
    title: str
    model: str
    created: float
    updated: float
    parent: str | None
    """What it branched from, if that is still there."""
    shared: int
    """So many entries it did not write itself."""
    turns: int


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """A turn as it was asked and answered; ``start`` is its first entry (None: not known)."""

    prompt: str
    response: Response
    start: int | None
    steered: tuple[tuple[int, str], ...] = ()
    """What the user said in its middle: after how many items, and the text."""

    def said(self) -> Iterator[Item | str]:
        """The response's items, and between them what the user said meanwhile."""
        steered = list(self.steered)
        for at, item in enumerate(self.response.output):
            while steered and steered[0][0] <= at:
                yield steered.pop(0)[1]
            yield item
        yield from (text for _, text in steered)


def titled(text: str) -> str:
    """A title of it: its first line."""
    return (text.strip().splitlines() or [""])[0].strip()[:80]
