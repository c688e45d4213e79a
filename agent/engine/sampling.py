"""Choosing the next token from the scores of all of them: exact, and cheap for 201,088 tokens.

Greedy is an argmax. Everything else works on as few tokens as it can; the whole distribution,
untruncated, is sampled by rejection, which needs no sum over all tokens and is still exact.
"""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt

from agent.engine.base import EngineError, Sampling
from agent.engine.native import Logits

HEAD = 12.0
"""Nats below the best token down to which tokens are weighed one by one."""
CROWD = 8192
"""So many tokens in the head, and weighing all at once in single precision is cheaper."""
BLOCK = 256


class Sampler:
    """Picks tokens by one request's settings; the same seed picks the same tokens."""

    def __init__(self, sampling: Sampling, vocabulary: int) -> None:
        self._sampling = sampling
        self._random = random.Random(sampling.seed)
        self._truncated = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
        self._weights = np.zeros(-(-vocabulary // BLOCK) * BLOCK, np.float32)
        self._size = vocabulary

    def pick(self, logits: Logits) -> int:
        """The next token's id. Raises EngineError when the scores are not numbers."""
        best = int(logits.argmax())
        peak = float(logits[best])
        if not math.isfinite(peak):
            raise EngineError("The model's output is not a number: its file may be damaged.")
        if self._sampling.temperature <= 0 or self._sampling.top_k == 1:
            return best
        if self._truncated:
            ids, weights = self.candidates(logits)
            return int(ids[self._draw(weights)])
        return self._pick_of_all(logits, peak)

    def _draw(self, weights: npt.NDArray[np.floating]) -> int:
        """An index with probability proportional to its weight."""
        sums = np.cumsum(weights, dtype=np.float64)
        at = np.searchsorted(sums, self._random.random() * sums[-1], side="right")
        return min(int(at), len(sums) - 1)

    def _pick_of_all(self, logits: Logits, peak: float) -> int:
        """Rejection under an envelope: the head's own weights, and the tail's limit everywhere."""
        scale = 1 / self._sampling.temperature
        limit = peak - HEAD * self._sampling.temperature
        head = np.flatnonzero(logits > limit)
        if len(head) > CROWD:
            return self._pick_by_blocks(logits)
        sums = np.cumsum(np.exp((logits[head] - peak) * scale, dtype=np.float64))
        above = float(sums[-1])
        envelope = above + self._size * math.exp(-HEAD)
        while True:
            if (drawn := self._random.random() * envelope) < above:
                return int(head[np.searchsorted(sums, drawn, side="right")])
            token = int(self._random.random() * self._size)
            below = float(logits[token]) - limit
            if below <= 0 and self._random.random() < math.exp(below * scale):
                return token

    def _pick_by_blocks(self, logits: Logits) -> int:
        """Inverse transform in two steps: a block of tokens, then one in it."""
        blocks = self.weigh_all(logits).reshape(-1, BLOCK)
        block = self._draw(np.einsum("ij->i", blocks))
        return block * BLOCK + self._draw(blocks[block])

    def weigh_all(self, logits: Logits) -> npt.NDArray[np.float32]:
        """exp((logit − peak) / temperature) of every token, zeros after the last."""
        weights = self._weights[: self._size]
        np.subtract(logits, logits.max(), out=weights)
        np.multiply(weights, 1 / self._sampling.temperature, out=weights)
        np.exp(weights, out=weights)
        return self._weights

    def candidates(self, logits: Logits) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        """The tokens that the truncations leave, best first, and their weights (the best has 1)."""
        s = self._sampling
        peak = float(logits.max())
        total = 0.0
        if s.top_k:
            ids = np.flatnonzero(logits >= _at_least(logits, s.top_k))
        elif s.top_p < 1:
            weights = self.weigh_all(logits)
            total = float(np.einsum("ij->i", weights.reshape(-1, BLOCK)).sum(dtype=np.float64))
            ids = _holding(weights[: self._size], s.top_p * total)
        else:
            ids = np.flatnonzero(logits >= peak + s.temperature * math.log(s.min_p) - 1e-3)
        ids = ids[np.argsort(-logits[ids], kind="stable")][: s.top_k or None]
        chosen = np.exp((logits[ids].astype(np.float64) - peak) / s.temperature)
        if s.top_p < 1:
            sums = np.cumsum(chosen)
            count = int(np.searchsorted(sums, s.top_p * (total or sums[-1]))) + 1
            ids, chosen = ids[:count], chosen[:count]
        if s.min_p > 0:
            chosen = chosen[chosen >= s.min_p]
        return ids[: len(chosen)], chosen


def _at_least(logits: Logits, count: int) -> float:
    """A score that at least `count` tokens reach, and not many more when `count` is small."""
    columns = len(logits) // BLOCK
    if count >= len(logits):
        return -math.inf
    if count > columns:
        return float(np.partition(logits, -count)[-count])
    best = logits[: columns * BLOCK].reshape(BLOCK, columns).max(axis=0)
    return float(np.partition(best, -count)[-count])


def _holding(weights: npt.NDArray[np.float32], mass: float) -> npt.NDArray[np.intp]:
    """The heaviest tokens, as many as weigh `mass` together and some more."""
    for depth in (3.0, 6.0, 12.0):
        ids = np.flatnonzero(weights >= math.exp(-depth))
        if float(weights[ids].sum(dtype=np.float64)) > mass:
            return ids
    return np.arange(len(weights))
