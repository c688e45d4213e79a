"""A reused prefix gives the logits of computing everything anew."""

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from agent.engine.llama.model import BatchSpan, LlamaModel, Logits
from agent.engine.llama.prefix_cache import (
    DRAFT_REWIND_LIMIT_TOKENS,
    MAX_CHECKPOINTS,
    MIN_REUSE_TOKENS,
    REWIND_LIMIT_TOKENS,
    KvSequence,
    PrefixCache,
)
from agent.engine.placement.placement import Placement
from agent.util.prefix import common_prefix_length
from tests.support import random_gguf

CLOSE = 0.05
"""Steps of other lengths round the half-precision cache otherwise; a wrong window is off by 5."""
STEP = 512
SOURCE = random.Random(0)
IDS = [SOURCE.randrange(512) for _ in range(3000)]
OTHER = [(i + 1) % 512 for i in IDS]
SLIDING_CELLS = -(-(4 * 32 + STEP) // 256) * 256
"""Positions that the sliding layers have room for: four windows and a step, rounded up to 256."""


def load(gguf: Path) -> LlamaModel:
    model = LlamaModel(gguf, Placement(4096, sequences=4, ubatch=STEP), lambda done: True)
    model.set_threads(1, 1)
    return model


@pytest.fixture(scope="module")
def model(gguf: Path) -> Iterator[LlamaModel]:
    model = load(gguf)
    yield model
    model.close()


@pytest.fixture
def cache(model: LlamaModel) -> PrefixCache:
    cache = PrefixCache(model, 4)
    cache.reset()
    return cache


@pytest.fixture
def sequence(cache: PrefixCache) -> KvSequence:
    return cache.sequences[0]


@pytest.fixture(scope="module")
def reference(gguf: Path) -> Iterator[KvSequence]:
    """A sequence of a second, equal model, which computes everything anew."""
    model = load(gguf)
    yield KvSequence(model, 0)
    model.close()


def feed(sequence: KvSequence, ids: list[int], until: int | None = None) -> Logits:
    """Append the ids that the sequence does not have yet, up to `until`; return the last logits."""
    until = until or len(ids)
    while (at := len(sequence.ids)) < until:
        step = ids[at : min(at + STEP, until)]
        assert sequence.model.decode([BatchSpan(sequence.seq_id, step, at)]) == "done"
        sequence.ids += step
    return sequence.model.logits().copy()


def reference_logits(sequence: KvSequence, ids: list[int], *cuts: int) -> Logits:
    """Compute the logits after `ids` from an empty cache, with steps that end at the cuts."""
    sequence.clear()
    sequence.model.clear()
    for cut in cuts:
        if cut:
            feed(sequence, ids, cut)
    return feed(sequence, ids)


def run_prompt(cache: PrefixCache, ids: list[int], draft: bool = False) -> tuple[KvSequence, int]:
    """Acquire a sequence, prefill the prompt and release it, as a job does; return the cached
    tokens."""
    sequence, cached, _ = cache.acquire(ids, draft)
    feed(sequence, ids, len(ids) - 1)
    sequence.save_checkpoint()
    feed(sequence, ids)
    cache.release(sequence)
    return sequence, cached


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "back",
    [
        1,
        31,
        32,
        33,
        100,
        500,
        SLIDING_CELLS - 33,
        SLIDING_CELLS - 32,
        SLIDING_CELLS - 31,
        SLIDING_CELLS - 1,
        SLIDING_CELLS,
        1400,
    ],
)
def test_truncate_around_the_windows_edge_is_exact(
    sequence: KvSequence, reference: KvSequence, back: int
) -> None:
    """No bit changes, unless the window's cells are in another order, which rounds sums
    otherwise."""
    cut = 1500 - back
    feed(sequence, IDS, cut)
    feed(sequence, IDS[:1500])
    prompt = IDS[:cut] + OTHER[:3]
    cached = sequence.truncate(sequence.reusable(cut))
    assert cached == (cut if back <= SLIDING_CELLS - 31 else 0)
    difference = np.abs(feed(sequence, prompt) - reference_logits(reference, prompt, cached)).max()
    assert difference == 0 if back < SLIDING_CELLS - 33 or not cached else difference < CLOSE


def test_truncate_beyond_the_window_would_be_noticed(
    sequence: KvSequence, reference: KvSequence
) -> None:
    feed(sequence, IDS[:1500])
    sequence.model.truncate(0, 400)
    del sequence.ids[400:]
    prompt = IDS[:400] + OTHER[:3]
    assert np.abs(feed(sequence, prompt) - reference_logits(reference, prompt, 400)).max() > 1


@pytest.mark.long
@pytest.mark.parametrize("at", [600, 1000, 1024])
def test_truncate_to_a_checkpoint_changes_no_bit(
    sequence: KvSequence, reference: KvSequence, at: int
) -> None:
    feed(sequence, IDS, at)
    sequence.save_checkpoint()
    feed(sequence, IDS)
    assert sequence.truncate(sequence.reusable(at + 10)) == at
    prompt = IDS[: at + 10] + OTHER[:50]
    reused = feed(sequence, prompt)
    assert np.array_equal(reused, reference_logits(reference, prompt, at))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("back", [0, 1, 31, 32, 33, 500, 1000])
def test_copy_prefix_is_exact_and_leaves_the_source_alone(
    cache: PrefixCache, reference: KvSequence, back: int
) -> None:
    first, second, *_ = cache.sequences
    feed(first, IDS, 600)
    first.save_checkpoint()
    feed(first, IDS, 1700 - back)
    feed(first, IDS[:1700])
    cached = second.copy_prefix(first, first.reusable(1700 - back))
    assert cached == (1700 - back if back < 1000 else 600)
    branch = IDS[:cached] + OTHER[:700]
    assert (
        np.abs(feed(second, branch) - reference_logits(reference, branch, 600, cached)).max()
        < CLOSE
    )
    # and the source is unchanged
    longer = IDS[:2000]
    assert (
        np.abs(
            feed(first, longer) - reference_logits(reference, longer, 600, 1700 - back, 1700)
        ).max()
        < CLOSE
    )


@pytest.mark.long
def test_copy_prefix_shares_cells(cache: PrefixCache, reference: KvSequence) -> None:
    first, *others = cache.sequences
    feed(first, IDS[:2500])
    for i, other in enumerate(others):
        assert other.copy_prefix(first, 2500) == 2500
        feed(other, IDS[:2500] + OTHER[i : i + 400])  # 3,700 cells of 4,096; 11,200 tokens
    for i, other in enumerate(others):
        ids = IDS[:2500] + OTHER[i : i + 400]
        assert (
            np.abs(
                feed(other, [*ids, 7]) - reference_logits(reference, [*ids, 7], 2500, 2900)
            ).max()
            < CLOSE
        )


@pytest.mark.long
def test_acquire_random_prompts_stays_exact(cache: PrefixCache, reference: KvSequence) -> None:
    choose = random.Random(1)
    for _ in range(20):
        source = choose.choice(cache.sequences)
        cut, more = choose.randrange(1, 1200), choose.randrange(2, 400)
        same = source.ids[:cut]
        prompt = same + [choose.randrange(512) for _ in range(more)]
        sequence, cached, _ = cache.acquire(prompt)
        assert cached >= len(same) or cached in (0, *sequence.checkpoints)
        while sum(len(s.ids) for s in cache.sequences) + len(prompt) > 4096 and cache.evict():
            pass
        feed(sequence, prompt, len(prompt) - 1)
        sequence.save_checkpoint()
        reused = feed(sequence, prompt)
        cache.release(sequence)
        assert np.abs(reused - reference_logits(reference, prompt, len(prompt) - 1)).max() < CLOSE


def test_acquire_same_prompt_computes_its_last_token(cache: PrefixCache) -> None:
    run_prompt(cache, IDS[:700])
    assert run_prompt(cache, IDS[:700]) == (cache.sequences[0], 699)


def test_acquire_other_prompt_takes_another_sequence(cache: PrefixCache) -> None:
    first, _ = run_prompt(cache, IDS[:700])
    second, cached = run_prompt(cache, OTHER[:700])
    assert cached == 0 and second is not first
    assert run_prompt(cache, IDS[:720]) == (first, 700)


def test_acquire_next_turn_continues_in_place(cache: PrefixCache) -> None:
    first, _ = run_prompt(cache, IDS[:700])
    feed(first, IDS[:700] + OTHER[:750])  # an answer, of which the next prompt keeps nothing
    assert run_prompt(cache, IDS[:720]) == (first, 699)


def test_acquire_shared_prefix_keeps_both_conversations(cache: PrefixCache) -> None:
    first, _ = run_prompt(cache, IDS[:1000])
    second, cached = run_prompt(cache, IDS[:900] + OTHER[:100])
    assert second is not first and cached == 900
    assert run_prompt(cache, IDS[:1000] + OTHER[:20]) == (first, 1000)
    assert run_prompt(cache, IDS[:900] + OTHER[:120]) == (second, 1000)


def test_acquire_drafts_continue_in_place(cache: PrefixCache) -> None:
    first, _ = run_prompt(cache, IDS[:1000])
    for typed in (20, 60, DRAFT_REWIND_LIMIT_TOKENS - 1, 5):
        sequence, cached = run_prompt(cache, IDS[:1000] + OTHER[:typed] + [3], draft=True)
        assert sequence is first and cached >= 1000
    assert run_prompt(cache, IDS[:1000] + OTHER[: REWIND_LIMIT_TOKENS // 2])[0] is first


def test_acquire_returns_the_shared_prefix(cache: PrefixCache) -> None:
    first, *_ = cache.sequences
    feed(first, IDS[:2900])
    assert (
        cache.acquire(IDS[:1200] + OTHER[:100]).cached_tokens == 0
    )  # too far back, and no checkpoint
    assert cache.acquire(IDS[:1200] + OTHER[:100]).shared_prefix == 1200


def test_acquire_and_evict_take_the_least_recently_used(cache: PrefixCache) -> None:
    taken = [run_prompt(cache, OTHER[i:][:300])[0] for i in range(4)]
    assert len(set(taken)) == 4
    run_prompt(cache, OTHER[:310])  # the first again
    sequence, _ = run_prompt(cache, IDS[:300])
    assert sequence is taken[1]
    assert cache.evict() and taken[2].ids == []
    assert taken[0].ids == OTHER[:310]


def test_evict_spares_busy_sequences(cache: PrefixCache) -> None:
    sequence, _, _ = cache.acquire(IDS[:300])
    feed(sequence, IDS[:300])
    assert not cache.evict()
    assert len(cache.free_sequences) == 3
    cache.release(sequence)
    assert cache.evict() and not cache.evict()


@pytest.mark.long
def test_checkpoints_are_limited_and_spread_evenly(sequence: KvSequence) -> None:
    for length in range(20, 2300, 50):
        feed(sequence, IDS, length)
        sequence.save_checkpoint()
    lengths = sorted(sequence.checkpoints)
    assert len(lengths) == MAX_CHECKPOINTS
    assert MIN_REUSE_TOKENS <= lengths[0] <= MIN_REUSE_TOKENS + 50 and lengths[-1] == 2270
    assert max(b - a for a, b in pairwise(lengths)) <= 200


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
def test_common_prefix_length(a: list[int], b: list[int], length: int) -> None:
    assert common_prefix_length(a, b) == common_prefix_length(b, a) == length


def test_model_without_windows_needs_no_checkpoints(tmp_path: Path) -> None:
    path = random_gguf.write_llama_model(tmp_path / "plain.gguf")
    model, second = load(path), load(path)
    assert model.sliding_window == 0
    cache, reference = PrefixCache(model, 4), KvSequence(second, 0)
    first, _ = run_prompt(cache, IDS[:1500])
    assert first.checkpoints == {}
    prompt = IDS[:700] + OTHER[:100]
    branch, cached = run_prompt(cache, prompt)
    assert branch is not first and cached == 700
    more = feed(branch, [*prompt, 7])
    assert np.abs(more - reference_logits(reference, [*prompt, 7], 799, 800)).max() < CLOSE
    longer = feed(first, IDS[:1600])
    assert np.abs(longer - reference_logits(reference, IDS[:1600], 1499, 1500)).max() < CLOSE
    model.close()
    second.close()
