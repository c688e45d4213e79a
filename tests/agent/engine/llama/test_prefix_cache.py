"""What is reused of a prefix gives the logits of computing everything anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from agent.engine.llama.batch import Piece
from agent.engine.llama.model import Logits, Model
from agent.engine.llama.prefix_cache import (
    CHECKPOINTS,
    DRAFT,
    SLACK,
    WORTH,
    Cache,
    Sequence,
    common,
)
from agent.engine.placement.placement import Placement
from tests.support import random_gguf

CLOSE = 0.05
"""Steps of other lengths round the half-precision cache otherwise; a wrong window is off by 5."""
STEP = 512
SOURCE = random.Random(0)
IDS = [SOURCE.randrange(512) for _ in range(3000)]
OTHER = [(i + 1) % 512 for i in IDS]
KEPT = -(-(4 * 32 + STEP) // 256) * 256
"""Positions that the sliding layers have room for: four windows and a step, rounded up to 256."""


def load(gguf: Path) -> Model:
    model = Model(gguf, Placement(4096, sequences=4, step=STEP), lambda done: True)
    model.set_threads(1, 1)
    return model


@pytest.fixture(scope="module")
def model(gguf: Path) -> Iterator[Model]:
    model = load(gguf)
    yield model
    model.close()


@pytest.fixture
def cache(model: Model) -> Cache:
    cache = Cache(model, 4)
    cache.forget()
    return cache


@pytest.fixture
def sequence(cache: Cache) -> Sequence:
    return cache.sequences[0]


@pytest.fixture(scope="module")
def anew(gguf: Path) -> Iterator[Sequence]:
    """A sequence of a second, equal model."""
    model = load(gguf)
    yield Sequence(model, 0)
    model.close()


def feed(sequence: Sequence, ids: list[int], until: int | None = None) -> Logits:
    """Append what `ids` has more than the sequence, up to `until`; the last logits."""
    until = until or len(ids)
    while (at := len(sequence.ids)) < until:
        step = ids[at : min(at + STEP, until)]
        assert sequence._model.decode([Piece(sequence.number, step, at)]) == "done"
        sequence.ids += step
    return sequence._model.logits().copy()


def fresh(sequence: Sequence, ids: list[int], *cuts: int) -> Logits:
    """Logits after `ids` from an empty memory, with steps ending at the cuts."""
    sequence.clear()
    sequence._model.clear()
    for cut in cuts:
        if cut:
            feed(sequence, ids, cut)
    return feed(sequence, ids)


def take(cache: Cache, ids: list[int], ahead: bool = False) -> tuple[Sequence, int]:
    """As a job takes a sequence, reads its prompt and leaves."""
    sequence, kept, _ = cache.take(ids, ahead)
    feed(sequence, ids, len(ids) - 1)
    sequence.checkpoint()
    feed(sequence, ids)
    cache.give_back(sequence)
    return sequence, kept


@pytest.mark.parametrize(
    "back", [1, 31, 32, 33, 100, 500, KEPT - 33, KEPT - 32, KEPT - 31, KEPT - 1, KEPT, 1400]
)
def test_going_back_is_exact_around_the_windows_edge(
    sequence: Sequence, anew: Sequence, back: int
) -> None:
    """Not a bit changes, but where the window's cells came to lie in another order: sums round."""
    cut = 1500 - back
    feed(sequence, IDS, cut)
    feed(sequence, IDS[:1500])
    prompt = IDS[:cut] + OTHER[:3]
    kept = sequence.cut(sequence.usable(cut))
    assert kept == (cut if back <= KEPT - 31 else 0)
    difference = np.abs(feed(sequence, prompt) - fresh(anew, prompt, kept)).max()
    assert difference == 0 if back < KEPT - 33 or not kept else difference < CLOSE


def test_the_test_above_would_notice(sequence: Sequence, anew: Sequence) -> None:
    feed(sequence, IDS[:1500])
    sequence._model.keep(0, 400)
    del sequence.ids[400:]
    prompt = IDS[:400] + OTHER[:3]
    assert np.abs(feed(sequence, prompt) - fresh(anew, prompt, 400)).max() > 1


@pytest.mark.parametrize("at", [600, 1000, 1024])
def test_a_checkpoint_goes_further_back_and_changes_no_bit(
    sequence: Sequence, anew: Sequence, at: int
) -> None:
    feed(sequence, IDS, at)
    sequence.checkpoint()
    feed(sequence, IDS)
    assert sequence.cut(sequence.usable(at + 10)) == at
    prompt = IDS[: at + 10] + OTHER[:50]
    reused = feed(sequence, prompt)
    assert np.array_equal(reused, fresh(anew, prompt, at))


@pytest.mark.parametrize("back", [0, 1, 31, 32, 33, 500, 1000])
def test_another_sequence_begins_alike(cache: Cache, anew: Sequence, back: int) -> None:
    first, second, *_ = cache.sequences
    feed(first, IDS, 600)
    first.checkpoint()
    feed(first, IDS, 1700 - back)
    feed(first, IDS[:1700])
    kept = second.begin_like(first, first.usable(1700 - back))
    assert kept == (1700 - back if back < 1000 else 600)
    branch = IDS[:kept] + OTHER[:700]
    assert np.abs(feed(second, branch) - fresh(anew, branch, 600, kept)).max() < CLOSE
    # and the one that it came from is as it was
    longer = IDS[:2000]
    assert np.abs(feed(first, longer) - fresh(anew, longer, 600, 1700 - back, 1700)).max() < CLOSE


def test_sequences_that_begin_alike_share_their_cells(cache: Cache, anew: Sequence) -> None:
    first, *others = cache.sequences
    feed(first, IDS[:2500])
    for i, other in enumerate(others):
        assert other.begin_like(first, 2500) == 2500
        feed(other, IDS[:2500] + OTHER[i : i + 400])  # 3,700 cells of 4,096; 11,200 tokens
    for i, other in enumerate(others):
        ids = IDS[:2500] + OTHER[i : i + 400]
        assert np.abs(feed(other, [*ids, 7]) - fresh(anew, [*ids, 7], 2500, 2900)).max() < CLOSE


def test_going_back_and_forth_stays_exact(cache: Cache, anew: Sequence) -> None:
    choose = random.Random(1)
    for _ in range(20):
        source = choose.choice(cache.sequences)
        cut, more = choose.randrange(1, 1200), choose.randrange(2, 400)
        same = source.ids[:cut]
        prompt = same + [choose.randrange(512) for _ in range(more)]
        sequence, kept, _ = cache.take(prompt)
        assert kept >= len(same) or kept in (0, *sequence.checkpoints)
        while sum(len(s.ids) for s in cache.sequences) + len(prompt) > 4096 and cache.evict():
            pass
        feed(sequence, prompt, len(prompt) - 1)
        sequence.checkpoint()
        reused = feed(sequence, prompt)
        cache.give_back(sequence)
        assert np.abs(reused - fresh(anew, prompt, len(prompt) - 1)).max() < CLOSE


def test_a_whole_prompt_again_computes_its_last_token(cache: Cache) -> None:
    take(cache, IDS[:700])
    assert take(cache, IDS[:700]) == (cache.sequences[0], 699)


def test_another_beginning_reuses_nothing_and_takes_another_sequence(cache: Cache) -> None:
    first, _ = take(cache, IDS[:700])
    second, kept = take(cache, OTHER[:700])
    assert kept == 0 and second is not first
    assert take(cache, IDS[:720]) == (first, 700)


def test_a_conversation_goes_on_in_its_place(cache: Cache) -> None:
    first, _ = take(cache, IDS[:700])
    feed(first, IDS[:700] + OTHER[:750])  # an answer, of which the next prompt keeps nothing
    assert take(cache, IDS[:720]) == (first, 699)


def test_a_conversation_that_only_begins_alike_takes_nothing_away(cache: Cache) -> None:
    first, _ = take(cache, IDS[:1000])
    second, kept = take(cache, IDS[:900] + OTHER[:100])
    assert second is not first and kept == 900
    assert take(cache, IDS[:1000] + OTHER[:20]) == (first, 1000)
    assert take(cache, IDS[:900] + OTHER[:120]) == (second, 1000)


def test_a_draft_goes_on_in_its_place_whatever_becomes_of_it(cache: Cache) -> None:
    first, _ = take(cache, IDS[:1000])
    for typed in (20, 60, DRAFT - 1, 5):
        sequence, kept = take(cache, IDS[:1000] + OTHER[:typed] + [3], ahead=True)
        assert sequence is first and kept >= 1000
    assert take(cache, IDS[:1000] + OTHER[: SLACK // 2])[0] is first


def test_where_prompts_part_is_told(cache: Cache) -> None:
    first, *_ = cache.sequences
    feed(first, IDS[:2900])
    assert cache.take(IDS[:1200] + OTHER[:100]).kept == 0  # too far back, and no checkpoint
    assert cache.take(IDS[:1200] + OTHER[:100]).fork == 1200


def test_who_was_not_there_for_longest_goes_first(cache: Cache) -> None:
    taken = [take(cache, OTHER[i:][:300])[0] for i in range(4)]
    assert len(set(taken)) == 4
    take(cache, OTHER[:310])  # the first again
    sequence, _ = take(cache, IDS[:300])
    assert sequence is taken[1]
    assert cache.evict() and taken[2].ids == []
    assert taken[0].ids == OTHER[:310]


def test_what_is_busy_is_not_evicted(cache: Cache) -> None:
    sequence, _, _ = cache.take(IDS[:300])
    feed(sequence, IDS[:300])
    assert not cache.evict()
    assert len(cache.free) == 3
    cache.give_back(sequence)
    assert cache.evict() and not cache.evict()


@pytest.mark.slow
def test_few_checkpoints_are_kept_and_spread(sequence: Sequence) -> None:
    for length in range(20, 2300, 50):
        feed(sequence, IDS, length)
        sequence.checkpoint()
    places = sequence.checkpoints
    assert len(places) == CHECKPOINTS
    assert WORTH <= places[0] <= WORTH + 50 and places[-1] == 2270
    assert max(b - a for a, b in pairwise(places)) <= 200


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [
        ([], [1], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 4], [1, 2, 3], 2),
        ([2], [1], 0),
        (IDS[:2500] + [1], IDS[:2500] + [2], 2500),
    ],
)
def test_common(a: list[int], b: list[int], length: int) -> None:
    assert common(a, b) == common(b, a) == length


def test_without_windows_every_place_can_be_gone_back_to(tmp_path: Path) -> None:
    path = random_gguf.write_plain(tmp_path / "plain.gguf")
    model, second = load(path), load(path)
    assert model.window == 0
    cache, anew = Cache(model, 4), Sequence(second, 0)
    first, _ = take(cache, IDS[:1500])
    assert first.checkpoints == []
    prompt = IDS[:700] + OTHER[:100]
    branch, kept = take(cache, prompt)
    assert branch is not first and kept == 700
    more = feed(branch, [*prompt, 7])
    assert np.abs(more - fresh(anew, [*prompt, 7], 799, 800)).max() < CLOSE
    longer = feed(first, IDS[:1600])
    assert np.abs(longer - fresh(anew, IDS[:1600], 1499, 1500)).max() < CLOSE
    model.close()
    second.close()
