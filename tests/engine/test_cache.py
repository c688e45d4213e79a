"""What is reused of a prefix gives the logits of computing everything anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from agent.engine.cache import CHECKPOINTS, WORTH, Prefix, common
from agent.engine.native import Logits, Model
from agent.engine.placement import Placement

CLOSE = 0.05
"""Steps of other lengths round the half-precision cache otherwise; a wrong window is off by 5."""
STEP = 512
SOURCE = random.Random(0)
IDS = [SOURCE.randrange(512) for _ in range(3000)]
OTHER = [(i + 1) % 512 for i in IDS]
KEPT = STEP + 256
"""Positions that the sliding layers have room for: the window and a step, rounded up to 256."""


@pytest.fixture(scope="module")
def model(gguf: Path) -> Iterator[Model]:
    model = Model(gguf, Placement(4096), lambda done: True)
    model.set_threads(1, 1)
    yield model
    model.close()


@pytest.fixture
def prefix(model: Model) -> Prefix:
    prefix = Prefix(model)
    prefix.forget()
    return prefix


def feed(model: Model, prefix: Prefix, ids: list[int], until: int | None = None) -> Logits:
    """Append what `ids` has more than `prefix`, up to `until`; the last logits."""
    until = until or len(ids)
    while (at := len(prefix.ids)) < until:
        step = ids[at : min(at + STEP, until)]
        assert model.decode(step, at)
        prefix.ids += step
    return model.logits().copy()


def fresh(model: Model, prefix: Prefix, ids: list[int], cut: int = 0) -> Logits:
    """Logits after `ids` from an empty memory, with a step ending at `cut`."""
    prefix.forget()
    if cut:
        feed(model, prefix, ids, cut)
    return feed(model, prefix, ids)


@pytest.mark.parametrize(
    "back", [1, 31, 32, 33, 100, 500, KEPT - 33, KEPT - 32, KEPT - 31, KEPT - 1, KEPT, 1400]
)
def test_going_back_is_exact_around_the_windows_edge(
    model: Model, prefix: Prefix, back: int
) -> None:
    feed(model, prefix, IDS[:1500])
    prompt = IDS[: 1500 - back] + OTHER[:3]
    kept = prefix.reuse(prompt)
    assert kept == (len(prompt) - 3 if back <= KEPT - 31 else 0)
    reused = feed(model, prefix, prompt)
    assert np.abs(reused - fresh(model, prefix, prompt, kept)).max() < CLOSE


def test_the_test_above_would_notice(model: Model, prefix: Prefix) -> None:
    feed(model, prefix, IDS[:1500])
    model.keep(700)
    del prefix.ids[700:]
    prompt = IDS[:700] + OTHER[:3]
    assert np.abs(feed(model, prefix, prompt) - fresh(model, prefix, prompt, 700)).max() > 1


def test_a_checkpoint_goes_further_back_and_changes_no_bit(model: Model, prefix: Prefix) -> None:
    feed(model, prefix, IDS, 600)
    prefix.checkpoint()
    feed(model, prefix, IDS)
    prompt = IDS[:610] + OTHER[:50]
    assert prefix.reuse(prompt) == 600
    reused = feed(model, prefix, prompt)
    assert np.array_equal(reused, fresh(model, prefix, prompt, 600))


def test_going_back_and_forth_stays_exact(model: Model, prefix: Prefix, gguf: Path) -> None:
    second = Model(gguf, Placement(4096), lambda done: True)
    second.set_threads(1, 1)
    choose = random.Random(1)
    for _ in range(20):
        cut, more = choose.randrange(1, 2000), choose.randrange(2, 900)
        prompt = prefix.ids[:cut] + [choose.randrange(512) for _ in range(more)]
        prefix.reuse(prompt)
        feed(model, prefix, prompt, len(prompt) - 1)
        prefix.checkpoint()
        reused = feed(model, prefix, prompt)
        anew = fresh(second, Prefix(second), prompt, len(prompt) - 1)
        assert np.abs(reused - anew).max() < CLOSE
    second.close()


def test_a_whole_prompt_again_computes_its_last_token(model: Model, prefix: Prefix) -> None:
    feed(model, prefix, IDS[:700])
    assert prefix.reuse(IDS[:700]) == 699


def test_another_beginning_reuses_nothing(model: Model, prefix: Prefix) -> None:
    feed(model, prefix, IDS[:700])
    assert prefix.reuse(OTHER[:700]) == 0
    assert prefix.ids == []


def test_few_checkpoints_are_kept_and_spread(model: Model, prefix: Prefix) -> None:
    for length in range(200, 2300, 50):
        feed(model, prefix, IDS, length)
        prefix.checkpoint()
    places = prefix.checkpoints
    assert len(places) == CHECKPOINTS
    assert places[0] <= WORTH + 50 and places[-1] == 2250
    assert max(b - a for a, b in pairwise(places)) <= 200


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 4], [1, 2, 3], 2), ([2], [1], 0)],
)
def test_common(a: list[int], b: list[int], length: int) -> None:
    assert common(a, b) == common(b, a) == length
