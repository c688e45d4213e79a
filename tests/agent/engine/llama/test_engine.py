"""The local engine as its callers see it, on a random model."""

import asyncio
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.engine.llama import model as native
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.llama.prefix_cache import AcquiredSequence, PrefixCache
from agent.engine.llama.scheduler import GenerationJob, Scheduler
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import (
    ContextOverflowError,
    EngineError,
    Prefill,
    Request,
    Sampling,
    Tokens,
)
from tests.support.engines import assert_likely, greedy_request, random_prompt, read_generation
from tests.support.waiting import HANG_SECONDS, wait_until


def bare_loop(gguf: Path, ids: list[int], tokens: int) -> list[int]:
    """The tokens of a plain loop over llama.cpp."""
    model = LlamaModel(gguf, Placement(4096), lambda done: True)
    model.set_threads(1, 1)
    model.decode([BatchSpan(0, ids, 0)])
    generated = [int(model.logits().argmax())]
    while len(generated) < tokens:
        model.decode([BatchSpan(0, generated[-1:], len(ids) + len(generated) - 1)])
        generated.append(int(model.logits().argmax()))
    model.close()
    return generated


async def test_generate_greedy_equals_a_plain_loop(engine: LlamaEngine, gguf: Path) -> None:
    result = await read_generation(engine.generate(greedy_request(random_prompt(50), 100)))
    assert result.ids == bare_loop(gguf, random_prompt(50), 100)
    assert result.finished.reason == "length"


def test_model_without_tokenizer_has_the_same_logits(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size_and_logits() -> tuple[int, list[float]]:
        model = LlamaModel(gguf, Placement(4096), lambda done: True)
        model.set_threads(1, 1)
        model.decode([BatchSpan(0, random_prompt(20), 0)])
        result = model.vocabulary_size, model.logits().tolist()
        model.close()
        return result

    without = size_and_logits()
    monkeypatch.setattr(native, "_vocabulary_overrides", lambda path: None)
    assert without == size_and_logits()


async def test_generate_reports_prefill_in_steps(engine: LlamaEngine) -> None:
    result = await read_generation(engine.generate(greedy_request(random_prompt(1300), 1)))
    assert [p.done for p in result.prefills] == [0, 512, 1024, 1299, 1300]
    assert {(p.total, p.cached) for p in result.prefills} == {(1300, 0)}


async def test_generate_ends_with_the_stop_id(engine: LlamaEngine) -> None:
    free = await read_generation(engine.generate(greedy_request(random_prompt(50), 30)))
    stop = free.ids[10]
    until = free.ids[: free.ids.index(stop) + 1]
    result = await read_generation(
        engine.generate(greedy_request(random_prompt(50), 30, frozenset({stop})))
    )
    assert (result.ids, result.finished.reason) == (until, "stop")


async def test_generate_max_tokens_0_only_prefills(engine: LlamaEngine) -> None:
    result = await read_generation(engine.generate(greedy_request(random_prompt(50), 0)))
    assert (result.ids, result.finished.reason) == ([], "length")
    again = await read_generation(engine.generate(greedy_request(random_prompt(50), 5)))
    assert again.finished.cached_tokens == 49


async def test_generate_fills_the_context_exactly(gguf: Path) -> None:
    engine = LlamaEngine(gguf, placement=Placement(300), threads=ThreadCounts(1, 1))
    await engine.load()
    assert engine.context_length == 300
    result = await read_generation(engine.generate(greedy_request(random_prompt(280), None)))
    assert (len(result.ids), result.finished.reason) == (20, "context")
    last = await read_generation(engine.generate(greedy_request(random_prompt(299), None)))
    assert (len(last.ids), last.finished.reason) == (1, "context")
    with pytest.raises(ContextOverflowError, match="300 tokens and the context holds 300"):
        engine.generate(greedy_request(random_prompt(300)))
    await engine.close()


async def test_load_context_is_at_most_the_trained_one(gguf: Path) -> None:
    engine = LlamaEngine(gguf, placement=Placement(10_000), threads=ThreadCounts(1, 1))
    await engine.load()
    assert engine.context_length == 4096
    await engine.close()


@pytest.mark.parametrize(
    ("ids", "reason"), [([], "empty"), ([1, 512], "vocabulary"), ([-1], "vocabulary")]
)
async def test_generate_invalid_prompt_raises(
    engine: LlamaEngine, ids: list[int], reason: str
) -> None:
    with pytest.raises(EngineError, match=reason):
        engine.generate(greedy_request(ids))


async def test_generate_before_load_raises(gguf: Path) -> None:
    with pytest.raises(EngineError, match="not loaded"):
        LlamaEngine(gguf).generate(greedy_request([1]))


async def test_generate_next_turn_computes_only_new_tokens(engine: LlamaEngine) -> None:
    first = await read_generation(engine.generate(greedy_request(random_prompt(700), 50)))
    follow_up = random_prompt(700) + first.ids + random_prompt(30, seed=1)
    second = await read_generation(engine.generate(greedy_request(follow_up, 50)))
    assert second.finished.cached_tokens == 749  # the last sampled id was not fed yet
    assert second.prefills[0] == Prefill(749, 780, 749)


async def test_generate_side_by_side_stays_likely(engine: LlamaEngine, gguf: Path) -> None:
    requests = [greedy_request(random_prompt(40 + 90 * i, seed=i), 30) for i in range(6)]
    together = await asyncio.gather(
        *(read_generation(engine.generate(request)) for request in requests)
    )
    for request, result in zip(requests, together, strict=True):
        assert len(result.ids) == 30
        assert_likely(gguf, list(request.prompt), result.ids)


async def test_step_failure_ends_generations_not_the_engine(
    engine: LlamaEngine, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(PrefixCache, "acquire", fail)
        with pytest.raises(EngineError, match="MemoryError"):
            await read_generation(engine.generate(greedy_request(random_prompt(20))))
    with monkeypatch.context() as broken:
        broken.setattr("agent.engine.llama.step_loop.Sampler", fail)
        with pytest.raises(EngineError, match="MemoryError"):
            await read_generation(engine.generate(greedy_request(random_prompt(20))))
    result = await read_generation(engine.generate(greedy_request(random_prompt(20))))
    assert_likely(gguf, random_prompt(20), result.ids)


async def test_step_failure_lets_waiting_request_start(
    engine: LlamaEngine, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, acquire = Scheduler.add, PrefixCache.acquire
    both_queued, failures = threading.Event(), [MemoryError()]

    def add_both(scheduler: Scheduler, job: GenerationJob) -> GenerationJob | None:
        both_queued.wait(HANG_SECONDS)
        return add(scheduler, job)

    def fail_once(cache: PrefixCache, ids: list[int], draft: bool) -> AcquiredSequence:
        if failures:
            raise failures.pop()
        return acquire(cache, ids, draft)

    monkeypatch.setattr(Scheduler, "add", add_both)
    monkeypatch.setattr(PrefixCache, "acquire", fail_once)
    first, second = [engine.generate(greedy_request(random_prompt(20))) for _ in range(2)]
    both_queued.set()
    with pytest.raises(EngineError, match="MemoryError"):
        await read_generation(first)
    async with asyncio.timeout(HANG_SECONDS):
        assert_likely(gguf, random_prompt(20), (await read_generation(second)).ids)


async def test_generate_same_seed_repeats(engine: LlamaEngine) -> None:
    def seeded(seed: int) -> Request:
        return Request(random_prompt(50), max_tokens=40, sampling=Sampling(seed=seed))

    first, same, other = [
        await read_generation(engine.generate(seeded(seed))) for seed in (1, 1, 2)
    ]
    assert first.ids == same.ids != other.ids


async def test_cancel_between_tokens(engine: LlamaEngine, caplog: pytest.LogCaptureFixture) -> None:
    generation = engine.generate(greedy_request(random_prompt(50), None))

    def cancel(item: object) -> None:
        if isinstance(item, Tokens):
            generation.cancel()

    result = await read_generation(generation, cancel)
    assert result.finished.reason == "cancelled"
    assert 0 < len(result.ids) < 4000
    generation.cancel()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    again = await read_generation(engine.generate(greedy_request(random_prompt(50), 20)))
    assert again.ids[:20] == (result.ids + again.ids[len(result.ids) :])[:20]


async def test_cancel_in_prefill_then_generate_again(engine: LlamaEngine, gguf: Path) -> None:
    generation = engine.generate(greedy_request(random_prompt(4000), 20))
    result = await read_generation(generation, lambda item: generation.cancel())
    assert (result.ids, result.finished.reason) == ([], "cancelled")
    assert result.prefills[-1].done < 4000
    again = await read_generation(engine.generate(greedy_request(random_prompt(4000), 20)))
    assert_likely(gguf, random_prompt(4000), again.ids)


async def test_cancel_while_waiting_ends_only_that_request(engine: LlamaEngine) -> None:
    running = [engine.generate(greedy_request(random_prompt(50, seed), 200)) for seed in range(4)]
    waits = engine.generate(greedy_request(random_prompt(60), 200))
    waits.cancel()
    assert (await read_generation(waits)).finished.reason == "cancelled"
    ends = await asyncio.gather(*map(read_generation, running))
    assert [result.finished.reason for result in ends] == ["length"] * 4


async def test_reader_cancelled_ends_the_generation(engine: LlamaEngine) -> None:
    generation = engine.generate(greedy_request(random_prompt(50), None))
    generating = asyncio.Event()

    async def stop_reading() -> None:
        async for item in generation:
            if isinstance(item, Tokens):
                generating.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(stop_reading())
    await generating.wait()
    assert engine.unfinished == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: not engine.unfinished)
    assert generation.cancelled, "it did not end by itself"
    result = await read_generation(engine.generate(greedy_request(random_prompt(50), 5)))
    assert result.finished.reason == "length"


async def test_close_cancels_running_and_waiting(engine: LlamaEngine) -> None:
    generations = [engine.generate(greedy_request(random_prompt(50), None)) for _ in range(3)]
    reading = asyncio.gather(*map(read_generation, generations))
    await engine.close()
    assert {result.finished.reason for result in await reading} == {"cancelled"}
    await engine.load()
    assert (
        await read_generation(engine.generate(greedy_request(random_prompt(50), 5)))
    ).finished.reason == "length"


async def test_load_concurrent_calls_report_progress_once(gguf: Path) -> None:
    engine = LlamaEngine(gguf)
    reports: list[float] = []
    await asyncio.gather(engine.load(reports.append), engine.load(), engine.load())
    await engine.load(reports.append)
    assert reports == sorted(set(reports)) and reports[-1] == 1.0
    await engine.close()


async def test_load_measures_threads_once(gguf: Path) -> None:
    engine = LlamaEngine(gguf)
    await engine.load()
    measured = engine.threads
    assert measured and measured.decode >= 1 and measured.prefill >= 1
    await engine.close()
    await engine.load()
    assert engine.threads is measured
    await engine.close()


async def test_load_cancelled_can_be_repeated(gguf: Path) -> None:
    engine = LlamaEngine(gguf, threads=ThreadCounts(1, 1))
    loading = asyncio.create_task(engine.load())
    await asyncio.sleep(0)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await engine.load()
    assert len((await read_generation(engine.generate(greedy_request([1], 1)))).ids) == 1
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
def test_engine_prints_nothing(gguf: Path, end: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", QUIET, gguf, end], capture_output=True, timeout=HANG_SECONDS
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
