"""Choosing the next token from the scores of all of them: exact, and cheap for 201,088 tokens.

Greedy is an argmax. Every truncation is a floor under the scores, found without sorting them all.
What is above it is drawn by rejection: tokens near the best have weights of their own, the many
others share an upper limit and are weighed only when one is hit, so nobody sums over all tokens.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from agent.engine.llama.model import Logits
from agent.engine.llama.penalties import Penalties
from agent.engine.protocol import EngineError, Logprob, Request

HEADS = (12.0, 8.0, 5.0)
"""Nats below the best token down to which tokens are weighed one by one: a longer head where the
distribution is peaked and the tail's envelope must be low, a shorter one where it is flat."""
CROWD = 8192
"""With so many tokens in the shortest head, all are weighed at once, in single precision."""
COLDEST = 1e-6
"""Below this temperature nothing changes any more, but that its inverse is no number for the scores."""
BLOCK = 256
NEAR = 6.0
"""Nats below the best token within which most distributions have what top_p asks for."""
FEW = 1024
"""So few scores are sorted; more are halved first."""
_NOTHING = "The answer's grammar allows nothing any more: simplify it."


class Sampler:
    """Picks one generation's tokens; the same seed picks the same ones."""

    def __init__(self, request: Request, vocabulary: int) -> None:
        warmest = max(request.sampling.temperature, COLDEST)
        self._sampling = sampling = replace(request.sampling, temperature=warmest)
        self._random = random.Random(sampling.seed)
        self._weights = np.zeros(-(-vocabulary // BLOCK) * BLOCK, np.float32)
        self._penalties = (
            Penalties(sampling, request.prompt, vocabulary) if Penalties.wanted(sampling) else None
        )
        self._greedy = request.sampling.temperature <= 0 or sampling.top_k == 1
        self._constraint = request.constraint
        self._alternatives = request.logprobs
        self.logprob: Logprob | None = None
        """Of the token that was picked last, where the request asks for it."""

    def pick(self, logits: Logits) -> int:
        """The next token's id; the scores are as before afterwards. Raises EngineError when they
        are not numbers, or when nothing may be said."""
        if self._penalties is None:
            token = self._permitted(logits)
        else:
            with self._penalties.applied(logits):
                token = self._permitted(logits)
            self._penalties.say(token)
        if self._alternatives is not None:
            self.logprob = self._measure(logits, token, self._alternatives)
        return token

    def _permitted(self, logits: Logits) -> int:
        """What the constraint rejects is drawn again, among what it allows: that is exact, and
        mostly costs a check only."""
        token = self._choose(logits)
        if (constraint := self._constraint) is None or constraint.accept(token):
            return token
        token = self._choose_within(logits, constraint.allowed())
        if not constraint.accept(token):
            raise EngineError(_NOTHING)
        return token

    def _choose_within(self, logits: Logits, allowed: npt.NDArray[np.intp]) -> int:
        """One of the allowed that the truncations leave; where they leave none, they are of the
        allowed alone."""
        if not len(allowed):
            raise EngineError(_NOTHING)
        scores = logits.take(allowed)  # which costs much less than logits[allowed] for a few
        if not self._greedy:
            peak = float(logits.max())
            left = allowed[scores >= self.floor(logits, peak)]
            if len(left):
                return int(left[self._draw_from(logits.take(left), -math.inf)])
        return int(allowed[scores.argmax() if self._greedy else self._choose(scores)])

    def _choose(self, logits: Logits) -> int:
        """The index of one of these scores."""
        best = int(logits.argmax())
        peak = float(logits[best])
        if not math.isfinite(peak):
            raise EngineError("The model's output is not a number: its file may be damaged.")
        if self._greedy:
            return best
        return self._draw_from(logits, self.floor(logits, peak), peak)

    def _draw_from(self, logits: Logits, floor: float, peak: float | None = None) -> int:
        """The index of one of the scores that are not under the floor."""
        peak = float(logits.max()) if peak is None else peak
        temperature, size = self._sampling.temperature, len(logits)
        for depth in HEADS:
            limit = max(floor, peak - depth * temperature)
            near = logits >= limit
            if np.count_nonzero(near) <= CROWD:
                break
        else:
            return self._draw_by_blocks(logits, peak, floor)
        head = np.flatnonzero(near)
        sums = np.cumsum(np.exp((logits[head].astype(np.float64) - peak) / temperature))
        above = float(sums[-1])
        envelope = above if floor >= limit else above + size * math.exp(-depth)
        while True:
            if (drawn := self._random.random() * envelope) < above:
                return int(head[np.searchsorted(sums, drawn, side="right")])
            token = int(self._random.random() * size)
            score = float(logits[token])
            if floor <= score < limit and self._random.random() < math.exp(
                (score - limit) / temperature
            ):
                return token

    def _measure(self, logits: Logits, token: int, alternatives: int) -> Logprob:
        """By the model's own distribution."""
        peak = float(logits.max())
        total = peak + math.log(self._mass(logits, peak, temperature=1.0))
        top = np.flatnonzero(logits >= _kth(logits, alternatives)) if alternatives else ()
        best = sorted(((int(i), float(logits[i]) - total) for i in top), key=lambda one: -one[1])
        return Logprob(token, float(logits[token]) - total, tuple(best[:alternatives]))

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

    def _mass(self, scores: Logits, peak: float, temperature: float | None = None) -> float:
        return float(_sums(self.weigh(scores, peak, temperature)).sum(dtype=np.float64))

    def weigh(
        self, scores: Logits, peak: float, temperature: float | None = None
    ) -> npt.NDArray[np.float32]:
        """exp((score − peak) / temperature) of each, and zeros up to a whole block."""
        weights = self._weights[: -(-len(scores) // BLOCK) * BLOCK]
        weights[len(scores) :] = 0
        mine = weights[: len(scores)]
        np.subtract(scores, peak, out=mine)
        np.multiply(mine, 1 / (temperature or self._sampling.temperature), out=mine)
        np.exp(mine, out=mine)
        return weights

    def _draw_by_blocks(self, logits: Logits, peak: float, floor: float) -> int:
        """Inverse transform in two steps: a block of tokens, then one in it."""
        weights = self.weigh(logits, peak)
        if floor > -math.inf:
            weights[: len(logits)][logits < floor] = 0
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
