"""Samples the next token from the logits: exact, and cheap for 201,088 tokens.

Greedy sampling is an argmax. Each truncation (top_k, top_p, min_p) is a floor under the logits,
found without sorting them all. Tokens above the floor are drawn by rejection, so nothing sums over
the whole vocabulary: the *head*, tokens within a few nats of the best one, are weighed one by one;
the *tail*, the many others, share the envelope exp(-depth), an upper limit of their weight, and a
tail token is weighed only if a draw hits the envelope::

    weight |#                     A draw is uniform over the areas of head and envelope. In the head
           |##                    it is a token. In the envelope a random token of the vocabulary is
           |###                   proposed, and accepted with the probability weight / envelope if it
           |####..............    is in the tail (below the head, above the floor); otherwise the
           |####::::::::::::::    draw is repeated.
           +------------------ tokens, best first     # head   : weights of the tail   . rejected

This samples the exact distribution (https://en.wikipedia.org/wiki/Rejection_sampling). llama.cpp's
samplers are not used, since they first copy all logits into an array of llama_token_data.
"""

import math
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from agent.engine.llama.model import Logits
from agent.engine.protocol import EngineError, Logprob, Request, Sampling

HEAD_DEPTHS_NATS = (12.0, 8.0, 5.0)
"""Depths of the head below the best token, in nats at temperature 1: deep for a peaked distribution,
whose tail needs a low envelope, shallow for a flat one."""
MAX_HEAD_TOKENS = 8192
"""Tokens of a head; where even the shallowest head has more, all tokens are weighed, in float32."""
SMALL_HEAD_TOKENS = 64
"""Tokens of a head that Python weighs faster than numpy."""
MIN_TEMPERATURE = 1e-6
"""Lower temperatures change nothing any more, but their inverse would overflow."""
BLOCK_TOKENS = 256
NUCLEUS_DEPTH_NATS = 6.0
"""Depth below the best token within which most distributions have the mass that top_p keeps."""
MAX_SORTED_SCORES = 1024
"""Number of logits that are sorted; more are partitioned in halves first."""
LEAST_PROBABILITY = math.ulp(0.0)
"""A token that is not cut off has at least this: its exact value may be too small for a float."""
REPEAT_WINDOW_TOKENS = 64
"""Tokens that repeat_penalty looks back, prompt included (llama.cpp's repeat_last_n)."""
_NOTHING_ALLOWED = "The answer's grammar allows nothing any more: simplify it."


class Penalties:
    """One generation's penalties and biases: OpenAI's presence_penalty, frequency_penalty, logit_bias
    (https://platform.openai.com/docs/api-reference/completions/create), and llama.cpp's repeat_penalty
    (llama_sampler_init_penalties)."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], vocabulary_size: int) -> None:
        """Biases of ids that are not in the vocabulary are ignored."""
        self._presence, self._frequency = sampling.presence_penalty, sampling.frequency_penalty
        self._repeat = sampling.repeat_penalty
        self._recent = deque(prompt[-REPEAT_WINDOW_TOKENS:], REPEAT_WINDOW_TOKENS)
        biases = sampling.logit_bias
        self._offsets = {token: bias for token, bias in biases if 0 <= token < vocabulary_size}
        """By token id: what is added to its logit."""
        self._generated: set[int] = set()

    @contextmanager
    def applied(self, logits: Logits) -> Iterator[None]:
        """Change the logits, (vocabulary,) float32, in place; they are restored afterwards."""
        tokens = np.fromiter(self._offsets, np.int64, len(self._offsets))
        recent = np.fromiter(self._recent, np.int64) if self._repeat != 1 else tokens[:0]
        before, earlier = logits[tokens], logits[recent]
        logits[recent] = np.where(earlier > 0, earlier / self._repeat, earlier * self._repeat)
        logits[tokens] += np.fromiter(self._offsets.values(), np.float32, len(tokens))
        try:
            yield
        finally:
            logits[recent] = earlier
            logits[tokens] = before

    def record(self, token: int) -> None:
        self._recent.append(token)
        if self._presence or self._frequency:
            penalty = self._frequency + (0 if token in self._generated else self._presence)
            self._offsets[token] = self._offsets.get(token, 0.0) - penalty
            self._generated.add(token)


class Sampler:
    """Samples one generation's tokens; the same seed samples the same ones."""

    def __init__(self, request: Request, vocabulary_size: int) -> None:
        temperature = max(request.sampling.temperature, MIN_TEMPERATURE)
        self._sampling = sampling = replace(request.sampling, temperature=temperature)
        self._random = random.Random(sampling.seed)
        self._weights = np.zeros(-(-vocabulary_size // BLOCK_TOKENS) * BLOCK_TOKENS, np.float32)
        self._near = np.zeros(vocabulary_size, np.bool_)
        """A buffer: a new array of this size has its pages zeroed, which takes longer than the rest."""
        self._penalties = _new_penalties(request, vocabulary_size)
        self._greedy = request.sampling.temperature <= 0 or sampling.top_k == 1
        self._unchanged = self._penalties is None and sampling == Sampling(seed=sampling.seed)
        self._constraint, self._alternatives = request.constraint, request.logprobs
        self._reports_probabilities = request.probabilities
        self.logprob: Logprob | None = None
        """Log probability of the last token, if the request asks for it."""

    def sample(self, logits: Logits) -> int:
        """Sample an id from the logits, (vocabulary_size,) float32, which stay the same. Raises
        EngineError if they are not finite, or the constraint allows no token."""
        with self._adjusted(logits):
            token = self._sample_constrained(logits)
        if self._alternatives is not None:
            self.logprob = self._measure_logprob(logits, token, self._alternatives)
            if self._reports_probabilities:
                self.logprob = self._with_probabilities(logits, self.logprob)
        if self._penalties is not None:
            self._penalties.record(token)
        return token

    def _adjusted(self, logits: Logits) -> AbstractContextManager[None]:
        return nullcontext() if self._penalties is None else self._penalties.applied(logits)

    def _sample_constrained(self, logits: Logits) -> int:
        """Sample freely, and once more among the allowed tokens if the constraint rejects the first.
        This is exact: an allowed token has p from the first draw, plus the probability of a rejection
        times p / p(allowed) from the second."""
        token = self._sample_index(logits)
        if (constraint := self._constraint) is None or constraint.accept(token):
            return token
        token = self._sample_among(logits, constraint.allowed())
        if not constraint.accept(token):
            raise EngineError(_NOTHING_ALLOWED)
        return token

    def _sample_among(self, logits: Logits, allowed: npt.NDArray[np.intp]) -> int:
        """Sample among the allowed ids, (n,) intp, that the truncations leave; if they leave none,
        truncate the distribution of the allowed ids alone."""
        if not len(allowed):
            raise EngineError(_NOTHING_ALLOWED)
        scores = logits.take(allowed)  # which costs much less than logits[allowed] for a few
        if not self._greedy:
            peak = float(logits.max())
            left = allowed[scores >= self.truncation_floor(logits, peak)]
            if len(left):
                return int(left[self._draw_above(logits.take(left), -math.inf)])
        return int(allowed[scores.argmax() if self._greedy else self._sample_index(scores)])

    def _sample_index(self, logits: Logits) -> int:
        best = int(logits.argmax())
        peak = float(logits[best])
        if not math.isfinite(peak):
            raise EngineError("The model's output is not a number: its file may be damaged.")
        if self._greedy:
            return best
        return self._draw_above(logits, self.truncation_floor(logits, peak), peak)

    def _draw_above(self, logits: Logits, floor: float, peak: float | None = None) -> int:
        """Draw the index of one of the logits that are not below the floor, by rejection."""
        peak = float(logits.max()) if peak is None else peak
        temperature, size = self._sampling.temperature, len(logits)
        for depth in HEAD_DEPTHS_NATS:
            limit = max(floor, peak - depth * temperature)
            near = np.greater_equal(logits, limit, out=self._near[:size])
            if np.count_nonzero(near) <= MAX_HEAD_TOKENS:
                break
        else:
            return self._draw_by_blocks(logits, peak, floor)
        head = np.flatnonzero(near)
        sums: Sequence[float] | npt.NDArray[np.float64]
        if len(head) <= SMALL_HEAD_TOKENS:
            scores = logits[head].tolist()
            sums = list(accumulate([math.exp((score - peak) / temperature) for score in scores]))
        else:
            sums = np.cumsum(np.exp((logits[head].astype(np.float64) - peak) / temperature))
        above = float(sums[-1])
        envelope = above if floor >= limit else above + size * math.exp(-depth)
        while True:
            if (drawn := self._random.random() * envelope) < above:
                return int(head[bisect_right(sums, drawn)])
            token = int(self._random.random() * size)
            score = float(logits[token])
            if floor <= score < limit and self._random.random() < math.exp(
                (score - limit) / temperature
            ):
                return token

    def _measure_logprob(self, logits: Logits, token: int, alternatives: int) -> Logprob:
        peak = float(logits.max())
        total = peak + math.log(self._mass(logits, peak, temperature=1.0))
        top = np.flatnonzero(logits >= _kth_best(logits, alternatives)) if alternatives else ()
        best = sorted(((int(i), float(logits[i]) - total) for i in top), key=lambda pair: -pair[1])
        return Logprob(token, float(logits[token]) - total, tuple(best[:alternatives]))

    def _with_probabilities(self, logits: Logits, logprob: Logprob) -> Logprob:
        rank = int(np.count_nonzero(logits > logits[logprob.token])) + 1
        if self._unchanged:
            chosen, *top = (math.exp(p) for p in (logprob.logprob, *(p for _, p in logprob.top)))
        else:
            ids = [logprob.token, *(token for token, _ in logprob.top)]
            with self._adjusted(logits):
                chosen, *top = self._sampled_probabilities(logits, ids)
        return replace(logprob, rank=rank, probability=chosen, top_probabilities=tuple(top))

    def _sampled_probabilities(self, logits: Logits, ids: Sequence[int]) -> list[float]:
        best = int(logits.argmax())
        if self._greedy:
            return [float(token == best) for token in ids]
        peak = float(logits[best])
        floor = self.truncation_floor(logits, peak)
        total = self._mass(logits if floor == -math.inf else logits[logits >= floor], peak)
        scores = [float(logits[token]) for token in ids]
        temperature = self._sampling.temperature
        return [
            max(math.exp((score - peak) / temperature) / total, LEAST_PROBABILITY)
            if score >= floor
            else 0.0
            for score in scores
        ]

    def truncation_floor(self, logits: Logits, peak: float) -> float:
        """Return the lowest logit that top_k, top_p and min_p leave; equals stay or go together."""
        s = self._sampling
        floor = peak + s.temperature * math.log(s.min_p) if s.min_p > 0 else -math.inf
        left = logits
        if s.top_k:
            floor = max(floor, kth := _kth_best(logits, s.top_k))
            left = logits[logits >= kth]
        if s.top_p < 1:
            floor = max(floor, self._nucleus_floor(left, peak))
        return floor

    def _nucleus_floor(self, scores: Logits, peak: float) -> float:
        """Return the lowest of the best logits whose weights sum up to top_p of all weights."""
        mass = self._sampling.top_p * self._mass(scores, peak)
        near = scores[scores >= peak - NUCLEUS_DEPTH_NATS * self._sampling.temperature]
        if self._mass(near, peak) < mass:
            near = scores
        above = 0.0
        while (half := len(near) // 2) > MAX_SORTED_SCORES:
            near = np.partition(near, half)
            if (weight := above + self._mass(near[half:], peak)) < mass:
                above, near = weight, near[:half]
            else:
                near = near[half:]
        near = np.sort(near)[::-1]
        sums = np.cumsum(self.weigh(near, peak)[: len(near)], dtype=np.float64)
        return float(near[min(int(np.searchsorted(sums, mass - above)), len(near) - 1)])

    def _mass(self, scores: Logits, peak: float, temperature: float | None = None) -> float:
        return float(_block_sums(self.weigh(scores, peak, temperature)).sum(dtype=np.float64))

    def weigh(
        self, scores: Logits, peak: float, temperature: float | None = None
    ) -> npt.NDArray[np.float32]:
        """Compute exp((logit - peak) / temperature) of each, padded with zeros to a multiple of
        BLOCK_TOKENS; a buffer that the next call overwrites."""
        weights = self._weights[: -(-len(scores) // BLOCK_TOKENS) * BLOCK_TOKENS]
        weights[len(scores) :] = 0
        values = weights[: len(scores)]
        np.subtract(scores, peak, out=values)
        np.multiply(values, 1 / (temperature or self._sampling.temperature), out=values)
        np.exp(values, out=values)
        return weights

    def _draw_by_blocks(self, logits: Logits, peak: float, floor: float) -> int:
        """Draw by inverse transform in two steps: a block of tokens, then a token of it."""
        weights = self.weigh(logits, peak)
        if floor > -math.inf:
            weights[: len(logits)][logits < floor] = 0
        start = self._draw_index(_block_sums(weights)) * BLOCK_TOKENS
        return start + self._draw_index(weights[start : start + BLOCK_TOKENS])

    def _draw_index(self, weights: npt.NDArray[np.float32]) -> int:
        sums = np.cumsum(weights, dtype=np.float64)
        return int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))


def _new_penalties(request: Request, vocabulary_size: int) -> Penalties | None:
    """The penalties as they are after the tokens that the generation has written before."""
    s = request.sampling
    if not (s.presence_penalty or s.frequency_penalty or s.repeat_penalty != 1 or s.logit_bias):
        return None
    read = len(request.prompt) - request.continued_tokens
    penalties = Penalties(s, request.prompt[:read], vocabulary_size)
    for token in request.prompt[read:]:
        penalties.record(token)
    return penalties


def _block_sums(weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Sum each block, (n / BLOCK_TOKENS,); einsum adds in many lanes: fast, with little rounding."""
    sums: npt.NDArray[np.float32] = np.einsum("ij->i", weights.reshape(-1, BLOCK_TOKENS))
    return sums


def _kth_best(logits: Logits, k: int) -> float:
    """The k-th best logit; for a small k only those above the k-th best column are partitioned."""
    columns = len(logits) // BLOCK_TOKENS
    if k >= len(logits):
        return -math.inf
    if k <= columns:
        best = logits[: columns * BLOCK_TOKENS].reshape(BLOCK_TOKENS, columns).max(axis=0)
        logits = logits[logits >= np.partition(best, -k)[-k]]
    return float(np.partition(logits, -k)[-k])
