"""Hedges: what an answer ends with where the model was unsure of one of its tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent.engine.protocol import Logprob

HEDGE = "I am not sure of this: check the answer, or ask in other words."
"""End of an answer if the model was unsure. The program adds it, not the model."""
CALL_HEDGE = "I am not sure of this call: check it, or ask in other words."
"""The message that follows calls of the client's then."""


class Hedge:
    """Watches the tokens of a turn's generations for one that is less likely than ``below``."""

    def __init__(self, below: float) -> None:
        """``below``: a probability, above 0."""
        self._below = math.log(below)
        self.is_unsure = False

    def watch(self, logprobs: Sequence[Logprob | None]) -> None:
        if not self.is_unsure:
            self.is_unsure = any(row and row.logprob < self._below for row in logprobs)
