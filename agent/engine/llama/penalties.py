"""What a request adds to the scores or takes from them; only tokens that it concerns are touched."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from agent.engine.llama.model import Logits
from agent.engine.protocol import Sampling

RECENT = 64
"""Tokens that repeat_penalty looks back, the prompt's among them."""


class Penalties:
    """One generation's penalties and biases, as its tokens are said."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], vocabulary: int) -> None:
        """Biases of tokens that are not in the vocabulary are left out."""
        self._once = sampling.presence_penalty
        self._each = sampling.frequency_penalty
        self._repeat = sampling.repeat_penalty
        self._recent = deque(prompt[-RECENT:], RECENT)
        biases = dict(pair for pair in sampling.logit_bias if 0 <= pair[0] < vocabulary)
        self._places = {token: place for place, token in enumerate(biases)}
        """Where in the arrays a token stands."""
        self._tokens = np.array([*biases], np.int64)
        self._offsets = np.array([*biases.values()], np.float32)
        self._said = np.zeros(len(biases), np.bool_)

    @staticmethod
    def wanted(sampling: Sampling) -> bool:
        """Whether there is anything to do."""
        s = sampling
        return bool(
            s.presence_penalty or s.frequency_penalty or s.repeat_penalty != 1 or s.logit_bias
        )

    @contextmanager
    def applied(self, logits: Logits) -> Iterator[None]:
        """The scores with all of it, in place; as they were afterwards."""
        tokens = self._tokens[: len(self._places)]
        recent = np.fromiter(self._recent, np.int64) if self._repeat != 1 else tokens[:0]
        before, earlier = logits[tokens], logits[recent]
        logits[recent] = np.where(earlier > 0, earlier / self._repeat, earlier * self._repeat)
        logits[tokens] += self._offsets[: len(tokens)]
        try:
            yield
        finally:
            logits[recent] = earlier
            logits[tokens] = before

    def say(self, token: int) -> None:
        """The token was said."""
        self._recent.append(token)
        if not (self._once or self._each):
            return
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._tokens):
            self._grow()
        self._tokens[place] = token
        self._offsets[place] -= self._each if self._said[place] else self._each + self._once
        self._said[place] = True

    def _grow(self) -> None:
        more = max(RECENT, len(self._tokens))
        self._tokens = np.append(self._tokens, np.zeros(more, np.int64))
        self._offsets = np.append(self._offsets, np.zeros(more, np.float32))
        self._said = np.append(self._said, np.zeros(more, np.bool_))
