"""All tokens that a turn's model has read and written, in order, as its events tell them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class WrittenTokens:
    """The tokens of one generation."""

    start: int
    """The number of the first one among all tokens."""
    count: int = 0
    probabilities: dict[int, float] = field(default_factory=dict)
    """By index in the generation: in the model's own distribution, as far as they are known."""


class TokenLog:
    """Collects the tokens of one turn, or of the prompt alone."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self.ids = list(ids)
        self.generations: list[WrittenTokens] = []

    def begin_generation(self, ids: Sequence[int]) -> None:
        """Add what the next generation reads that was not read before."""
        self.ids += ids
        self.generations.append(WrittenTokens(len(self.ids)))

    def add_written(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.generations[-1].count += len(ids)

    def generation_of(self, number: int) -> int | None:
        """The index of the generation that wrote a token; None: it is of the prompt."""
        index = bisect_right(self.generations, number, key=lambda written: written.start) - 1
        if index < 0:
            return None
        written = self.generations[index]
        return index if number < written.start + written.count else None
