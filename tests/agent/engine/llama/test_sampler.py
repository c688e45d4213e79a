"""The sampler's distributions are the exact ones."""

import math
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from agent.engine.llama.model import Logits
from agent.engine.llama.sampler import Sampler
from agent.engine.protocol import MAX_TEMPERATURE, EngineError, Request, Sampling


def random_logits(size: int, spread: float, seed: int = 0) -> Logits:
    return np.random.default_rng(seed).normal(0, spread, size).astype(np.float32)


def sampler_of(s: Sampling, size: int) -> Sampler:
    return Sampler(Request([1], sampling=s), size)


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
    logits: Logits, s: Sampling, expected: npt.NDArray[np.float64], draws: int = 8_000
) -> None:
    """Sample often, and compare by chi-squared the tokens that are expected often enough."""
    sampler = sampler_of(s, len(logits))
    assert_follows([sampler.sample(logits) for _ in range(draws)], expected)


def assert_follows(drawn: list[int], expected: npt.NDArray[np.float64]) -> None:
    draws, counts = len(drawn), Counter(drawn)
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


def name(s: Sampling) -> str:
    changed = ((f.name, getattr(s, f.name)) for f in fields(s) if getattr(s, f.name) != f.default)
    return ", ".join(f"{name} {value}" for name, value in changed) or "default"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("s", SETTINGS, ids=name)
@pytest.mark.parametrize("spread", [0.5, 3.0, 8.0])
def test_sample_follows_the_exact_distribution(s: Sampling, spread: float) -> None:
    logits = random_logits(1000, spread)
    seeded = replace(s, seed=1)
    assert_drawn_from(logits, seeded, exact(logits, s))


@pytest.mark.long
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_sample_from_201088_tokens_is_exact(spread: float) -> None:
    logits = random_logits(201_088, spread)
    logits[7] = 14.0
    assert_drawn_from(logits, Sampling(seed=1), exact(logits, Sampling()), draws=4000)


@pytest.mark.parametrize("s", [s for s in SETTINGS if s.top_k or s.top_p < 1 or s.min_p], ids=name)
def test_truncation_floor_keeps_the_exact_tokens(s: Sampling) -> None:
    for seed in range(20):
        logits = random_logits(20_000, 3.0, seed)
        floor = sampler_of(s, len(logits)).truncation_floor(logits, float(logits.max()))
        assert np.array_equal(np.flatnonzero(logits >= floor), np.flatnonzero(exact(logits, s)))


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 8.0])
def test_weigh_in_float32_is_exact_to_a_millionth(spread: float) -> None:
    logits = random_logits(201_088, spread)
    sampler = sampler_of(Sampling(), len(logits))
    weights = sampler.weigh(logits, float(logits.max()))
    blocks = np.einsum("ij->i", weights.reshape(-1, 256)).astype(np.float64)
    within = (
        weights.reshape(-1, 256) / weights.reshape(-1, 256).sum(axis=1, dtype=np.float64)[:, None]
    )
    drawn = (within * (blocks / blocks.sum())[:, None]).reshape(-1)[: len(logits)]
    assert np.abs(drawn - exact(logits, Sampling())).sum() / 2 < 1e-6


def test_sample_temperature_0_is_greedy() -> None:
    logits = random_logits(1000, 3.0)
    assert sampler_of(Sampling(temperature=0), 1000).sample(logits) == logits.argmax()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("spread", [0.5, 8.0])
@pytest.mark.parametrize(
    "more", [{}, {"top_p": 0.9}, {"min_p": 1e-300}, {"top_k": 4, "top_p": 0.5}]
)
def test_sample_extreme_temperatures(more: dict[str, Any], spread: float) -> None:
    logits = random_logits(20_000, spread)
    for temperature in (5e-324, 1e-320, 1e-40, 1e-7):
        sampler = sampler_of(Sampling(temperature, **more), len(logits))
        assert {sampler.sample(logits) for _ in range(20)} == {logits.argmax()}
    hot = Sampling(MAX_TEMPERATURE, seed=1, **more)
    assert_drawn_from(logits, hot, exact(logits, hot), draws=1000)


@pytest.mark.parametrize("no", [math.nan, math.inf, -1.0, "hot", True, 1e7])
def test_sampling_invalid_temperature_raises(no: Any) -> None:
    with pytest.raises(ValueError, match="temperature must be a number from 0 to 1,000,000, not "):
        Sampling(no)


@pytest.mark.parametrize("no", [{"top_k": 2.5}, {"top_p": 3}, {"repeat_penalty": 0}, {"seed": "a"}])
def test_sampling_invalid_setting_raises(no: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(no))} must be a"):
        Sampling(**no)


def test_sample_equal_logits_are_equally_likely() -> None:
    logits = np.zeros(300, np.float32)
    assert_drawn_from(logits, Sampling(seed=1), np.full(300, 1 / 300))
    assert_drawn_from(logits, Sampling(top_k=3, seed=1), np.full(300, 1 / 300))


def test_sample_infinitely_unlikely_tokens_never() -> None:
    logits = np.full(1000, -np.inf, np.float32)
    logits[[5, 6]] = 1.0
    sampler = sampler_of(Sampling(seed=1), 1000)
    assert {sampler.sample(logits) for _ in range(100)} == {5, 6}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sample_not_finite_logits_raises(value: float) -> None:
    logits = random_logits(1000, 3.0)
    logits[3] = value
    with pytest.raises(EngineError, match="not a number"):
        sampler_of(Sampling(), 1000).sample(logits)


def test_sample_same_seed_repeats() -> None:
    logits = random_logits(1000, 1.0)

    def drawn(seed: int | None) -> list[int]:
        return sample_each(Request([1], sampling=Sampling(seed=seed)), [logits] * 20)

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(None) != drawn(None)


# --- penalties and biases ---


def sample_each(request: Request, rounds: list[Logits]) -> list[int]:
    """Sample from each of the logits in turn; they stay as they are."""
    sampler = Sampler(request, len(rounds[0]))
    picked = []
    for logits in rounds:
        before = logits.copy()
        picked.append(sampler.sample(logits))
        assert np.array_equal(logits, before)
    return picked


def greedy_request(**penalties: Any) -> Request:
    return Request([1], sampling=Sampling(temperature=0, **penalties))


def test_presence_applies_once_and_frequency_each_time() -> None:
    logits = np.array([5.0, 4.5, 3.9, 0.0], np.float32)
    assert sample_each(greedy_request(), [logits] * 3) == [0, 0, 0]
    assert sample_each(greedy_request(presence_penalty=1), [logits] * 5) == [0, 1, 0, 0, 0]
    assert sample_each(greedy_request(frequency_penalty=0.4), [logits] * 6) == [0, 0, 1, 0, 1, 2]
    both = greedy_request(presence_penalty=0.3, frequency_penalty=0.3)
    assert sample_each(both, [logits] * 4) == [0, 1, 0, 0]
    assert sample_each(greedy_request(presence_penalty=-2), [logits[[1, 0, 2, 3]], logits]) == [
        1,
        1,
    ]


def test_penalties_of_many_tokens_are_exact() -> None:
    """Compared with the definition over all tokens, for more tokens than the arrays have at
    first."""
    s = Sampling(0, presence_penalty=0.7, frequency_penalty=0.2, repeat_penalty=1.1)
    prompt = [3, 4, 5]
    rounds = [random_logits(2000, 0.3, seed) for seed in range(400)]
    ids = list(prompt)
    for logits, picked in zip(
        rounds, sample_each(Request(prompt, sampling=s), rounds), strict=True
    ):
        wanted = logits.astype(np.float64)
        for token in set(ids[-64:]):
            wanted[token] *= 1 / 1.1 if wanted[token] > 0 else 1.1
        for token, times in Counter(ids[len(prompt) :]).items():
            wanted[token] -= 0.7 + 0.2 * times
        assert picked == wanted.argmax()
        ids.append(picked)


def test_repeat_penalty_covers_the_prompts_last_64_tokens() -> None:
    logits = np.array([1.1, 1.05, -1.0, -1.05], np.float32)
    repeat = Sampling(temperature=0, repeat_penalty=1.2)
    assert sample_each(Request([0], sampling=repeat), [logits]) == [1]
    assert sample_each(Request([0, *[2] * 64], sampling=repeat), [logits]) == [0]
    negative = np.array([-1.0, -1.05, -3.0, -3.0], np.float32)
    assert sample_each(Request([0], sampling=repeat), [negative]) == [1]


def test_logit_bias_moves_the_distribution() -> None:
    logits = random_logits(1000, 3.0)
    best = int(logits.argmax())
    assert sample_each(greedy_request(logit_bias=((7, 100.0), (5000, 100.0))), [logits]) == [7]
    assert sample_each(greedy_request(logit_bias=((best, -100.0),)), [logits]) != [best]
    s = Sampling(temperature=0.8, top_p=0.9, logit_bias=((7, 4.0), (best, -2.0)), seed=2)
    moved = logits.copy()
    moved[[7, best]] += [4.0, -2.0]
    sampler = sampler_of(s, len(logits))
    assert_follows([sampler.sample(logits) for _ in range(5000)], exact(moved, s))


# --- log probabilities ---


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_logprobs_are_of_the_models_own_distribution(temperature: float) -> None:
    logits = random_logits(201_088, 3.0)
    s = Sampling(temperature, top_k=5, logit_bias=((9, 30.0),), seed=1)
    sampler = Sampler(Request([1], sampling=s, logprobs=4), len(logits))
    own = np.log(exact(logits, Sampling()))
    best = np.argsort(-logits)[:4]
    token = sampler.sample(logits)
    assert sampler.logprob is not None and sampler.logprob.token == token
    assert sampler.logprob.logprob == pytest.approx(own[token], abs=1e-5)
    assert [token for token, _ in sampler.logprob.top] == list(best)
    assert [value for _, value in sampler.logprob.top] == pytest.approx(list(own[best]), abs=1e-5)


def test_logprobs_without_alternatives_or_not_requested() -> None:
    logits = random_logits(1000, 3.0)
    sampler = Sampler(Request([1], logprobs=0), 1000)
    token = sampler.sample(logits)
    assert sampler.logprob is not None and sampler.logprob.token == token
    assert sampler.logprob.top == ()
    sampler = Sampler(Request([1]), 1000)
    sampler.sample(logits)
    assert sampler.logprob is None


# --- constraints ---


class FixedConstraint:
    """Always allows the same tokens."""

    def __init__(self, allowed: npt.NDArray[np.bool_]) -> None:
        self._allowed, self.accepted, self.allowed_calls = allowed, list[int](), 0

    pending = None

    def accept(self, token: int) -> bool:
        if self._allowed[token]:
            self.accepted.append(token)
        return bool(self._allowed[token])

    def allowed(self) -> npt.NDArray[np.intp]:
        self.allowed_calls += 1
        return np.flatnonzero(self._allowed)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("s", SETTINGS, ids=name)
@pytest.mark.parametrize("share", [0.9, 0.1])
def test_constraint_gives_the_conditional_distribution(s: Sampling, share: float) -> None:
    logits = random_logits(1000, 3.0)
    allowed = np.random.default_rng(1).random(1000) < share
    expected = exact(logits, s) * allowed
    if not expected.any():  # the truncation left nothing that is allowed: it is of the allowed
        expected = np.zeros(1000)
        expected[allowed] = exact(logits[allowed], s)
    constraint = FixedConstraint(allowed)
    sampler = Sampler(Request([1], sampling=replace(s, seed=3), constraint=constraint), 1000)
    drawn = [sampler.sample(logits) for _ in range(3000)]
    assert drawn == constraint.accepted
    assert_follows(drawn, expected / expected.sum())


def test_constraint_greedy_takes_the_best_allowed() -> None:
    logits = random_logits(1000, 3.0)
    allowed = np.zeros(1000, np.bool_)
    allowed[100:200] = True
    constraint = FixedConstraint(allowed)
    picked = sample_each(replace(greedy_request(), constraint=constraint), [logits])
    assert picked == [100 + int(logits[100:200].argmax())] == constraint.accepted


def test_constraint_accepted_token_needs_no_allowed_ids() -> None:
    constraint = FixedConstraint(np.ones(1000, np.bool_))
    sample_each(replace(greedy_request(), constraint=constraint), [random_logits(1000, 3.0)] * 5)
    assert len(constraint.accepted) == 5 and not constraint.allowed_calls


def test_constraint_allows_nothing_raises() -> None:
    request = replace(greedy_request(), constraint=FixedConstraint(np.zeros(1000, np.bool_)))
    with pytest.raises(EngineError, match="allows nothing"):
        sample_each(request, [random_logits(1000, 3.0)])
