"""Choosing the next token from the scores of all of them: exact, and cheap for 201,088 tokens.

Greedy is an argmax. Every truncation is a floor under the scores, found without sorting them all.
What is above it is drawn by rejection: tokens near the best have weights of their own, the many
others share an upper limit and are weighed only when one is hit, so nobody sums over all tokens.
"""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt

from agent.engine.base import EngineError, Sampling
from agent.engine.native import Logits

HEADS = (12.0, 8.0, 5.0)
"""Nats below the best token down to which tokens are weighed one by one: a longer head where the
distribution is peaked and the tail's envelope must be low, a shorter one where it is flat."""
CROWD = 8192
"""With so many tokens in the shortest head, all are weighed at once, in single precision."""
BLOCK = 256
NEAR = 6.0
"""Nats below the best token within which most distributions have what top_p asks for."""
FEW = 1024
"""So few scores are sorted; more are halved first."""


class Sampler:
    """Picks tokens by one request's settings; the same seed picks the same tokens."""

    def __init__(self, sampling: Sampling, vocabulary: int) -> None:
        self._sampling = sampling
        self._random = random.Random(sampling.seed)
        self._weights = np.zeros(-(-vocabulary // BLOCK) * BLOCK, np.float32)
        self._size = vocabulary

    def pick(self, logits: Logits) -> int:
        """The next token's id. Raises EngineError when the scores are not numbers."""
        best = int(logits.argmax())
        peak = float(logits[best])
        if not math.isfinite(peak):
            raise EngineError("The model's output is not a number: its file may be damaged.")
        temperature = self._sampling.temperature
        if temperature <= 0 or self._sampling.top_k == 1:
            return best
        floor = self.floor(logits, peak)
        for depth in HEADS:
            limit = max(floor, peak - depth * temperature)
            near = logits >= limit
            if np.count_nonzero(near) <= CROWD:
                break
        else:
            return self._pick_by_blocks(logits, peak, floor)
        head = np.flatnonzero(near)
        sums = np.cumsum(np.exp((logits[head].astype(np.float64) - peak) / temperature))
        above = float(sums[-1])
        envelope = above if floor >= limit else above + self._size * math.exp(-depth)
        while True:
            if (drawn := self._random.random() * envelope) < above:
                return int(head[np.searchsorted(sums, drawn, side="right")])
            token = int(self._random.random() * self._size)
            score = float(logits[token])
            if floor <= score < limit and self._random.random() < math.exp(
                (score - limit) / temperature
            ):
                return token

    def floor(self, logits: Logits, peak: float) -> float:
        """The least score that top_k, top_p and min_p leave; equal scores stay or go together."""
        s = self._sampling
        floor = peak + s.temperature * math.log(s.min_p) if s.min_p > 0 else -math.inf
        left = logits
        if s.top_k:
            floor = max(floor, kth := _kth(logits, s.top_k))
            left = logits[logits >= kth]
        if s.top_p < 1:
            floor = max(floor, self._nucleus(left, peak))
        return floor

    def _nucleus(self, scores: Logits, peak: float) -> float:
        """The least of the best scores that weigh top_p of all together."""
        mass = self._sampling.top_p * self._mass(scores, peak)
        near = scores[scores >= peak - NEAR * self._sampling.temperature]
        if self._mass(near, peak) < mass:
            near = scores
        above = 0.0
        while (half := len(near) // 2) > FEW:
            near = np.partition(near, half)
            if (weight := above + self._mass(near[half:], peak)) < mass:
                above, near = weight, near[:half]
            else:
                near = near[half:]
        near = np.sort(near)[::-1]
        sums = np.cumsum(self.weigh(near, peak)[: len(near)], dtype=np.float64)
        return float(near[min(int(np.searchsorted(sums, mass - above)), len(near) - 1)])

    def _mass(self, scores: Logits, peak: float) -> float:
        return float(_sums(self.weigh(scores, peak)).sum(dtype=np.float64))

    def weigh(self, scores: Logits, peak: float) -> npt.NDArray[np.float32]:
        """exp((score − peak) / temperature) of each, and zeros up to a whole block."""
        weights = self._weights[: -(-len(scores) // BLOCK) * BLOCK]
        weights[len(scores) :] = 0
        mine = weights[: len(scores)]
        np.subtract(scores, peak, out=mine)
        np.multiply(mine, 1 / self._sampling.temperature, out=mine)
        np.exp(mine, out=mine)
        return weights

    def _pick_by_blocks(self, logits: Logits, peak: float, floor: float) -> int:
        """Inverse transform in two steps: a block of tokens, then one in it."""
        weights = self.weigh(logits, peak)
        if floor > -math.inf:
            weights[: self._size][logits < floor] = 0
        block = self._draw(_sums(weights))
        return block * BLOCK + self._draw(weights[block * BLOCK : (block + 1) * BLOCK])

    def _draw(self, weights: npt.NDArray[np.float32]) -> int:
        """An index with probability proportional to its weight."""
        sums = np.cumsum(weights, dtype=np.float64)
        return int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))


def _sums(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Of each block; einsum adds in many lanes, which is fast and keeps the rounding small."""
    sums: npt.NDArray[np.float32] = np.einsum("ij->i", weights.reshape(-1, BLOCK))
    return sums


def _kth(logits: Logits, k: int) -> float:
    """The k-th best score; that of the k-th best column of many tokens is not above it."""
    columns = len(logits) // BLOCK
    if k >= len(logits):
        return -math.inf
    if k <= columns:
        best = logits[: columns * BLOCK].reshape(BLOCK, columns).max(axis=0)
        logits = logits[logits >= np.partition(best, -k)[-k]]
    return float(np.partition(logits, -k)[-k])
