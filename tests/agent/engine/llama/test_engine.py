"""What a caller of the engine sees, on a random model."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.engine.llama import model as native
from agent.engine.llama.batch import Piece
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import Model
from agent.engine.llama.prefix_cache import Cache, Place
from agent.engine.llama.scheduler import Job, Scheduler
from agent.engine.llama.thread_tuning import Threads
from agent.engine.placement.placement import Placement
from agent.engine.protocol import (
    ContextOverflow,
    EngineError,
    Prefill,
    Request,
    Sampling,
    Tokens,
)
from tests.support.engines import read

GREEDY = Sampling(temperature=0)


def prompt(length: int, seed: int = 0) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(512) for _ in range(length)]


def greedy(ids: list[int], tokens: int | None = 20, stop: frozenset[int] = frozenset()) -> Request:
    return Request(ids, max_tokens=tokens, stop=stop, sampling=GREEDY)


def bare(gguf: Path, ids: list[int], tokens: int) -> list[int]:
    """What a plain loop over llama.cpp writes."""
    model = Model(gguf, Placement(4096), lambda done: True)
    model.set_threads(1, 1)
    model.decode([Piece(0, ids, 0)])
    written = [int(model.logits().argmax())]
    while len(written) < tokens:
        model.decode([Piece(0, written[-1:], len(ids) + len(written) - 1)])
        written.append(int(model.logits().argmax()))
    model.close()
    return written


def likely(gguf: Path, ids: list[int], said: list[int]) -> None:
    """Everything said is what an empty model finds best, but for the rounding of its scores: the
    random model's best are close to each other."""
    model = Model(gguf, Placement(4096), lambda done: True)
    model.set_threads(1, 1)
    for start in range(0, len(ids), model.step):
        model.decode([Piece(0, ids[start : start + model.step], start)])
    for at, token in enumerate(said):
        if at:
            model.decode([Piece(0, [said[at - 1]], len(ids) + at - 1)])
        assert model.logits()[token] >= model.logits().max() - 0.1
    model.close()


async def test_greedy_tokens_are_those_of_a_bare_loop(engine: LlamaEngine, gguf: Path) -> None:
    got = await read(engine.generate(greedy(prompt(50), 100)))
    assert got.ids == bare(gguf, prompt(50), 100)
    assert got.finished.reason == "length"


def test_without_its_words_it_scores_as_with_them(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scores() -> tuple[int, list[float]]:
        model = Model(gguf, Placement(4096), lambda done: True)
        model.set_threads(1, 1)
        model.decode([Piece(0, prompt(20), 0)])
        found = model.vocabulary, model.logits().tolist()
        model.close()
        return found

    without = scores()
    monkeypatch.setattr(native, "_without_tokens", lambda path: None)
    assert without == scores()


async def test_prefill_is_reported_in_steps(engine: LlamaEngine) -> None:
    got = await read(engine.generate(greedy(prompt(1300), 1)))
    assert [p.done for p in got.prefills] == [0, 512, 1024, 1299, 1300]
    assert {(p.total, p.cached) for p in got.prefills} == {(1300, 0)}


async def test_a_stop_id_ends_it_and_is_included(engine: LlamaEngine) -> None:
    free = await read(engine.generate(greedy(prompt(50), 30)))
    stop = free.ids[10]
    until = free.ids[: free.ids.index(stop) + 1]
    got = await read(engine.generate(greedy(prompt(50), 30, frozenset({stop}))))
    assert (got.ids, got.finished.reason) == (until, "stop")


async def test_no_tokens_asked_for_only_prefills(engine: LlamaEngine) -> None:
    got = await read(engine.generate(greedy(prompt(50), 0)))
    assert (got.ids, got.finished.reason) == ([], "length")
    again = await read(engine.generate(greedy(prompt(50), 5)))
    assert again.finished.cached_tokens == 49


async def test_the_context_fills_exactly(gguf: Path) -> None:
    engine = LlamaEngine(gguf, placement=Placement(300), threads=Threads(1, 1))
    await engine.load()
    assert engine.context_length == 300
    got = await read(engine.generate(greedy(prompt(280), None)))
    assert (len(got.ids), got.finished.reason) == (20, "context")
    last = await read(engine.generate(greedy(prompt(299), None)))
    assert (len(last.ids), last.finished.reason) == (1, "context")
    with pytest.raises(ContextOverflow, match="300 tokens and the context holds 300"):
        engine.generate(greedy(prompt(300)))
    await engine.close()


async def test_more_context_than_the_model_has_is_not_given(gguf: Path) -> None:
    engine = LlamaEngine(gguf, placement=Placement(10_000), threads=Threads(1, 1))
    await engine.load()
    assert engine.context_length == 4096
    await engine.close()


@pytest.mark.parametrize(
    ("ids", "reason"), [([], "empty"), ([1, 512], "vocabulary"), ([-1], "vocabulary")]
)
async def test_a_prompt_that_cannot_be(engine: LlamaEngine, ids: list[int], reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        engine.generate(greedy(ids))


async def test_generating_before_loading(gguf: Path) -> None:
    with pytest.raises(EngineError, match="not loaded"):
        LlamaEngine(gguf).generate(greedy([1]))


async def test_a_follow_up_computes_only_its_new_tokens(engine: LlamaEngine) -> None:
    first = await read(engine.generate(greedy(prompt(700), 50)))
    follow_up = prompt(700) + first.ids + prompt(30, seed=1)
    second = await read(engine.generate(greedy(follow_up, 50)))
    assert second.finished.cached_tokens == 749  # the last sampled id was not fed yet
    assert second.prefills[0] == Prefill(749, 780, 749)


async def test_together_they_say_what_they_say_alone(engine: LlamaEngine, gguf: Path) -> None:
    requests = [greedy(prompt(40 + 90 * i, seed=i), 30) for i in range(6)]
    together = await asyncio.gather(*(read(engine.generate(request)) for request in requests))
    for request, got in zip(requests, together, strict=True):
        assert len(got.ids) == 30
        likely(gguf, list(request.prompt), got.ids)


async def test_a_failure_anywhere_ends_what_runs_and_not_the_engine(
    engine: LlamaEngine, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(Cache, "take", full)
        with pytest.raises(EngineError, match="MemoryError"):
            await read(engine.generate(greedy(prompt(20))))
    with monkeypatch.context() as broken:
        broken.setattr("agent.engine.llama.step_loop.Sampler", full)
        with pytest.raises(EngineError, match="MemoryError"):
            await read(engine.generate(greedy(prompt(20))))
    said = await read(engine.generate(greedy(prompt(20))))
    likely(gguf, prompt(20), said.ids)


async def test_who_waits_begins_after_a_failure(
    engine: LlamaEngine, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, take, both, failures = Scheduler.add, Cache.take, threading.Event(), [MemoryError()]

    def add_both(scheduler: Scheduler, job: Job) -> Job | None:
        both.wait(60)
        return add(scheduler, job)

    def fail_once(cache: Cache, ids: list[int], idle: bool) -> Place:
        if failures:
            raise failures.pop()
        return take(cache, ids, idle)

    monkeypatch.setattr(Scheduler, "add", add_both)
    monkeypatch.setattr(Cache, "take", fail_once)
    one, other = [engine.generate(greedy(prompt(20))) for _ in range(2)]
    both.set()
    with pytest.raises(EngineError, match="MemoryError"):
        await read(one)
    async with asyncio.timeout(60):
        likely(gguf, prompt(20), (await read(other)).ids)


async def test_the_same_seed_writes_the_same(engine: LlamaEngine) -> None:
    def seeded(seed: int) -> Request:
        return Request(prompt(50), max_tokens=40, sampling=Sampling(seed=seed))

    one, same, other = [await read(engine.generate(seeded(seed))) for seed in (1, 1, 2)]
    assert one.ids == same.ids != other.ids


async def test_cancelled_between_tokens(
    engine: LlamaEngine, caplog: pytest.LogCaptureFixture
) -> None:
    generation = engine.generate(greedy(prompt(50), None))

    def cancel(item: object) -> None:
        if isinstance(item, Tokens):
            generation.cancel()

    got = await read(generation, cancel)
    assert got.finished.reason == "cancelled"
    assert 0 < len(got.ids) < 4000
    generation.cancel()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    again = await read(engine.generate(greedy(prompt(50), 20)))
    assert again.ids[:20] == (got.ids + again.ids[len(got.ids) :])[:20]


async def test_cancelled_in_prefill_and_taken_up_again(engine: LlamaEngine, gguf: Path) -> None:
    generation = engine.generate(greedy(prompt(4000), 20))
    got = await read(generation, lambda item: generation.cancel())
    assert (got.ids, got.finished.reason) == ([], "cancelled")
    assert got.prefills[-1].done < 4000
    again = await read(engine.generate(greedy(prompt(4000), 20)))
    likely(gguf, prompt(4000), again.ids)


async def test_cancelled_before_its_turn(engine: LlamaEngine) -> None:
    running = [engine.generate(greedy(prompt(50, seed), 200)) for seed in range(4)]
    waits = engine.generate(greedy(prompt(60), 200))
    waits.cancel()
    assert (await read(waits)).finished.reason == "cancelled"
    ends = await asyncio.gather(*map(read, running))
    assert [got.finished.reason for got in ends] == ["length"] * 4


async def test_a_reader_that_goes_away_cancels(engine: LlamaEngine) -> None:
    async def leave() -> None:
        async for _ in engine.generate(greedy(prompt(50), None)):
            await asyncio.Event().wait()

    task = asyncio.create_task(leave())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await read(engine.generate(greedy(prompt(50), 5)))).finished.reason == "length"


async def test_closing_ends_what_runs_and_waits(engine: LlamaEngine) -> None:
    generations = [engine.generate(greedy(prompt(50), None)) for _ in range(3)]
    reading = asyncio.gather(*map(read, generations))
    await engine.close()
    assert {got.finished.reason for got in await reading} == {"cancelled"}
    await engine.load()
    assert (await read(engine.generate(greedy(prompt(50), 5)))).finished.reason == "length"


async def test_loading_reports_progress_once_for_all_who_ask(gguf: Path) -> None:
    engine = LlamaEngine(gguf)
    reports: list[float] = []
    await asyncio.gather(engine.load(reports.append), engine.load(), engine.load())
    await engine.load(reports.append)
    assert reports == sorted(set(reports)) and reports[-1] == 1.0
    await engine.close()


async def test_threads_are_measured_and_kept(gguf: Path) -> None:
    engine = LlamaEngine(gguf)
    await engine.load()
    measured = engine.threads
    assert measured and measured.decode >= 1 and measured.prefill >= 1
    await engine.close()
    await engine.load()
    assert engine.threads is measured
    await engine.close()


async def test_a_load_can_be_cancelled_and_begun_again(gguf: Path) -> None:
    engine = LlamaEngine(gguf, threads=Threads(1, 1))
    loading = asyncio.create_task(engine.load())
    await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await engine.load()
    assert len((await read(engine.generate(greedy([1], 1)))).ids) == 1
    await engine.close()


QUIET = """
import asyncio, sys
from pathlib import Path
from agent.engine.protocol import Request
from agent.engine.llama.engine import LlamaEngine

async def main(path, close):
    engine = LlamaEngine(path)
    await engine.load()
    async for _ in engine.generate(Request([1, 2, 3], max_tokens=50)):
        pass
    if close:
        await engine.close()
    else:
        engine.generate(Request([1, 2, 3]))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2] == "close"))
"""


@pytest.mark.parametrize("end", ["close", "leave it running"])
def test_nothing_is_ever_printed(gguf: Path, end: str) -> None:
    ran = subprocess.run([sys.executable, "-c", QUIET, gguf, end], capture_output=True, timeout=100)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
