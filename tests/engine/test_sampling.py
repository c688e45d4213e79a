"""The sampler's distributions are the exact ones."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from agent.engine.base import EngineError, Sampling
from agent.engine.native import Logits
from agent.engine.sampling import Sampler


def scores(size: int, spread: float, seed: int = 0) -> Logits:
    return np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)


def exact(logits: Logits, s: Sampling) -> npt.NDArray[np.float64]:
    """The distribution by the definition, step by step over all tokens."""
    p: npt.NDArray[np.float64] = np.exp((logits.astype(float) - logits.max()) / s.temperature)
    p /= p.sum()
    best_first = np.argsort(-logits, kind="stable")
    if s.top_k:
        p[best_first[s.top_k :]] = 0
        p /= p.sum()
    if s.top_p < 1:
        before = np.cumsum(p[best_first]) - p[best_first]
        p[best_first[before >= s.top_p]] = 0
    if s.min_p:
        p[p < s.min_p * p.max()] = 0
    p /= p.sum()
    return p


def assert_drawn_from(
    logits: Logits, s: Sampling, expected: npt.NDArray[np.float64], draws: int = 20_000
) -> None:
    """Draw often, and compare by chi-squared the tokens that are expected often enough."""
    sampler = Sampler(s, len(logits))
    counts = Counter(sampler.pick(logits) for _ in range(draws))
    assert all(expected[token] > 0 for token in counts)
    often = np.flatnonzero(expected * draws >= 10)
    rest = max(0.0, 1 - float(expected[often].sum()))
    seen = np.array([counts[int(token)] for token in often] + [0], dtype=np.float64)
    seen[-1] = draws - seen.sum()
    wanted = np.append(expected[often] * draws, rest * draws)
    if wanted[-1] < 10:
        seen, wanted = seen[:-1], wanted[:-1]
    chi = float(((seen - wanted) ** 2 / wanted).sum())
    freedom = len(wanted) - 1
    assert chi < freedom + 5 * math.sqrt(2 * freedom) + 10


SETTINGS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(temperature=2.0),
    Sampling(top_k=5),
    Sampling(top_k=900),
    Sampling(top_p=0.9),
    Sampling(top_p=0.1),
    Sampling(min_p=0.05),
    Sampling(temperature=0.7, top_k=40, top_p=0.8, min_p=0.1),
    Sampling(top_p=0.95, min_p=0.01),
]


@pytest.mark.parametrize("s", SETTINGS, ids=str)
@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0])
def test_draws_follow_the_exact_distribution(s: Sampling, spread: float) -> None:
    logits = scores(1000, spread)
    seeded = Sampling(s.temperature, s.top_k, s.top_p, s.min_p, seed=1)
    assert_drawn_from(logits, seeded, exact(logits, s))


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_a_whole_vocabulary(spread: float) -> None:
    logits = scores(201_088, spread)
    logits[7] = 14.0
    assert_drawn_from(logits, Sampling(seed=1), exact(logits, Sampling()), draws=4000)


@pytest.mark.parametrize("s", [s for s in SETTINGS if s.top_k or s.top_p < 1 or s.min_p], ids=str)
def test_truncation_keeps_exactly_the_right_tokens(s: Sampling) -> None:
    for seed in range(20):
        logits = scores(20_000, 3.0, seed)
        floor = Sampler(s, len(logits)).floor(logits, float(logits.max()))
        assert np.array_equal(np.flatnonzero(logits >= floor), np.flatnonzero(exact(logits, s)))


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 8.0])
def test_weighing_all_at_once_is_exact_to_a_millionth(spread: float) -> None:
    logits = scores(201_088, spread)
    sampler = Sampler(Sampling(), len(logits))
    weights = sampler.weigh(logits, float(logits.max()))
    blocks = np.einsum("ij->i", weights.reshape(-1, 256)).astype(np.float64)
    within = (
        weights.reshape(-1, 256) / weights.reshape(-1, 256).sum(axis=1, dtype=np.float64)[:, None]
    )
    drawn = (within * (blocks / blocks.sum())[:, None]).reshape(-1)[: len(logits)]
    assert np.abs(drawn - exact(logits, Sampling())).sum() / 2 < 1e-6


def test_zero_temperature_is_greedy() -> None:
    logits = scores(1000, 3.0)
    assert Sampler(Sampling(temperature=0), 1000).pick(logits) == logits.argmax()


def test_equal_scores_are_equally_likely() -> None:
    logits = np.zeros(300, np.float32)
    assert_drawn_from(logits, Sampling(seed=1), np.full(300, 1 / 300))
    assert_drawn_from(logits, Sampling(top_k=3, seed=1), np.full(300, 1 / 300))


def test_tokens_that_cannot_be_are_never_drawn() -> None:
    logits = np.full(1000, -np.inf, np.float32)
    logits[[5, 6]] = 1.0
    sampler = Sampler(Sampling(seed=1), 1000)
    assert {sampler.pick(logits) for _ in range(100)} == {5, 6}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers(value: float) -> None:
    logits = scores(1000, 3.0)
    logits[3] = value
    with pytest.raises(EngineError, match="not a number"):
        Sampler(Sampling(), 1000).pick(logits)
