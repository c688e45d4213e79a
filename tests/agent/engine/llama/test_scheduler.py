"""Several requests at once, on a random model and step by step."""

import asyncio
from pathlib import Path

import pytest

from agent.engine.llama.engine import MAX_QUEUED_REQUESTS, LlamaEngine
from agent.engine.llama.model import LlamaModel
from agent.engine.llama.prefix_cache import PrefixCache
from agent.engine.llama.scheduler import (
    MAX_BACKGROUND_JOBS,
    MAX_CHUNK_SECONDS,
    MIN_CHUNK_TOKENS,
    GenerationJob,
    Scheduler,
)
from agent.engine.llama.token_stream import TokenStream
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import EngineBusyError, Prefill, Request, Tokens
from tests.support.engines import (
    GenerationResult,
    assert_likely,
    greedy_request,
    random_prompt,
    read_generation,
)


async def load_engine(gguf: Path, **placement: int) -> LlamaEngine:
    engine = LlamaEngine(gguf, placement=Placement(**placement), threads=ThreadCounts(1, 1))
    await engine.load()
    return engine


# --- on the model ---


async def test_engine_more_requests_than_sequences_take_turns(
    engine: LlamaEngine, gguf: Path
) -> None:
    requests = [greedy_request(random_prompt(30 + 5 * i, seed=i), 20) for i in range(9)]
    together = await asyncio.gather(
        *(read_generation(engine.generate(request)) for request in requests)
    )
    for request, result in zip(requests, together, strict=True):
        assert (len(result.ids), result.finished.reason) == (20, "length")
        assert_likely(gguf, list(request.prompt), result.ids)


async def test_engine_decodes_while_another_request_prefills(engine: LlamaEngine) -> None:
    decoding = engine.generate(greedy_request(random_prompt(50), None))
    items: list[object] = []

    async def read_items() -> None:
        async for item in decoding:
            items.append(item)

    reading = asyncio.create_task(read_items())
    token_counts: list[int] = []

    def count_tokens(item: object) -> None:
        token_counts.append(sum(len(item.ids) for item in items if isinstance(item, Tokens)))

    prefilling = engine.generate(greedy_request(random_prompt(2000, seed=1), 1))
    result = await read_generation(prefilling, count_tokens)
    assert len(result.prefills) > 2000 // 512
    # About one token a step; a reader that comes late gets several steps at once.
    assert token_counts[-1] - token_counts[0] >= len(result.prefills) // 2
    decoding.cancel()
    await reading


async def test_engine_shared_prefix_is_computed_once(engine: LlamaEngine, gguf: Path) -> None:
    system = random_prompt(900)
    requests = [greedy_request(system + random_prompt(30 + i, seed=i), 15) for i in range(1, 5)]
    together = await asyncio.gather(
        *(read_generation(engine.generate(request)) for request in requests)
    )
    assert [result.finished.cached_tokens for result in together] == [0, 900, 900, 900]
    for request, result in zip(requests, together, strict=True):
        assert_likely(gguf, list(request.prompt), result.ids)


async def test_engine_conversations_keep_their_cache(engine: LlamaEngine) -> None:
    system = random_prompt(600)
    conversations = [system + random_prompt(300, seed=i) for i in range(1, 4)]
    for ids in conversations:
        ids += (await read_generation(engine.generate(greedy_request(ids, 10)))).ids
    for ids in conversations:
        again = await read_generation(
            engine.generate(greedy_request(ids + random_prompt(20, seed=9), 5))
        )
        assert again.finished.cached_tokens >= len(ids) - 1


async def test_engine_cancel_leaves_other_requests_alone(engine: LlamaEngine, gguf: Path) -> None:
    requests = [greedy_request(random_prompt(40, seed=i), 60) for i in range(3)]
    cancelled = engine.generate(greedy_request(random_prompt(1500, seed=7), None))
    others = [engine.generate(request) for request in requests]

    def cancel(item: object) -> None:
        if isinstance(item, Prefill) and item.done > 500:
            cancelled.cancel()

    first, *results = await asyncio.gather(
        read_generation(cancelled, cancel), *map(read_generation, others)
    )
    assert first.finished.reason == "cancelled"
    for request, result in zip(requests, results, strict=True):
        assert len(result.ids) == 60
        assert_likely(gguf, list(request.prompt), result.ids)


@pytest.mark.slow
async def test_engine_cancels_at_any_moment_keep_cache_intact(
    engine: LlamaEngine, gguf: Path
) -> None:
    running = engine.generate(greedy_request(random_prompt(60), 400))
    reading = asyncio.create_task(read_generation(running))
    for i in range(12):
        generation = engine.generate(greedy_request(random_prompt(700, seed=i), None))
        count = 0
        async for _ in generation:
            count += 1
            if count > i:
                generation.cancel()
    assert_likely(gguf, random_prompt(60), (await reading).ids)


async def test_engine_too_many_requests_are_refused(engine: LlamaEngine) -> None:
    accepted = [
        engine.generate(greedy_request(random_prompt(20), None))
        for _ in range(4 + MAX_QUEUED_REQUESTS)
    ]
    with pytest.raises(EngineBusyError, match="try again later"):
        engine.generate(greedy_request(random_prompt(20)))
    background = engine.generate(Request(random_prompt(20), max_tokens=0, background=True))
    accepted[-1].cancel()
    assert (await read_generation(accepted[-1])).finished.reason == "cancelled"
    await read_generation(accepted[0], lambda item: accepted[0].cancel())
    accepted.append(engine.generate(greedy_request(random_prompt(20), 1)))
    for generation in accepted:
        generation.cancel()
    await asyncio.gather(*map(read_generation, accepted[1:-2]), read_generation(accepted[-1]))
    assert (await read_generation(background)).finished.reason == "length"


async def test_engine_background_request_is_interrupted_and_resumed(engine: LlamaEngine) -> None:
    order: list[str] = []

    async def generate(name: str, request: Request) -> GenerationResult:
        result = await read_generation(engine.generate(request))
        order.append(name)
        return result

    background = asyncio.create_task(
        generate("background", Request(random_prompt(3000), max_tokens=0, background=True))
    )
    await asyncio.sleep(0)
    foreground = await generate("foreground", greedy_request(random_prompt(40, seed=1), 30))
    assert len(foreground.ids) == 30
    prefilled = await background
    assert order == ["foreground", "background"] and prefilled.finished.reason == "length"
    follow_up = await read_generation(
        engine.generate(greedy_request(random_prompt(3000) + random_prompt(20, seed=2), 5))
    )
    assert follow_up.finished.cached_tokens == 3000


async def test_engine_background_request_in_cache_evicts_nothing(engine: LlamaEngine) -> None:
    first = await read_generation(engine.generate(greedy_request(random_prompt(900), 200)))
    conversation = random_prompt(900) + first.ids
    prefilled = await read_generation(
        engine.generate(Request(random_prompt(900), max_tokens=0, background=True))
    )
    assert prefilled.finished.cached_tokens == 900
    again = await read_generation(engine.generate(greedy_request([*conversation, 5], 5)))
    assert again.finished.cached_tokens == len(conversation) - 1


async def test_engine_idle_sequences_are_evicted(gguf: Path) -> None:
    engine = await load_engine(gguf, context=1024, sequences=4)
    for seed in range(6):
        result = await read_generation(
            engine.generate(greedy_request(random_prompt(600, seed), 100))
        )
        assert (len(result.ids), result.finished.cached_tokens) == (100, 0)
    assert_likely(gguf, random_prompt(600, 5), result.ids)
    await engine.close()


@pytest.mark.long
async def test_engine_requests_beyond_the_cells_run_in_turn(gguf: Path) -> None:
    engine = await load_engine(gguf, context=1024, sequences=4)
    requests = [greedy_request(random_prompt(300, seed), 300) for seed in range(5)]
    together = await asyncio.gather(
        *(read_generation(engine.generate(request)) for request in requests)
    )
    for request, result in zip(requests, together, strict=True):
        assert (len(result.ids), result.finished.reason) == (300, "length")
        assert_likely(gguf, list(request.prompt), result.ids)
    await engine.close()


# --- step by step ---


@pytest.fixture(scope="module")
def model(gguf: Path) -> LlamaModel:
    return LlamaModel(gguf, Placement(4096), lambda done: True)


@pytest.fixture
def scheduler(model: LlamaModel) -> Scheduler:
    model.clear()
    return Scheduler(PrefixCache(model, 3), step_tokens=512)


def make_job(ids: list[int], background: bool = False) -> GenerationJob:
    return GenerationJob(
        Request(ids, background=background),
        TokenStream(lambda stream: None),
        list(ids),
        max_generated=100,
    )


def run_step(
    scheduler: Scheduler, pace: float = MAX_CHUNK_SECONDS / 100
) -> list[tuple[GenerationJob, int]]:
    """Do one step that takes `pace` seconds a token; jobs that sample get the token 1."""
    scheduler.start_ready()
    shares = scheduler.plan()
    scheduler.step_done(shares, pace * sum(tokens for _, tokens in shares))
    for job, _ in shares:
        if not job.remaining:
            job.ids.append(1)
            job.generated += 1
    return [(job, tokens) for job, tokens in shares]


async def test_scheduler_single_prompt_uses_full_steps(scheduler: Scheduler) -> None:
    scheduler.add(job := make_job(random_prompt(1100)))
    assert [run_step(scheduler) for _ in range(4)] == [[(job, n)] for n in (512, 512, 75, 1)]
    assert [run_step(scheduler) for _ in range(2)] == [[(job, 1)]] * 2


async def test_scheduler_chunks_beside_decoding_jobs_are_short(scheduler: Scheduler) -> None:
    scheduler.add(speaker := make_job(random_prompt(2)))
    run_step(scheduler), run_step(scheduler)
    scheduler.add(reader := make_job(random_prompt(20_000)))
    chunks = [run_step(scheduler)[1][1] for _ in range(12)]
    assert chunks[0] == MIN_CHUNK_TOKENS and chunks == sorted(chunks) and 95 <= chunks[-1] <= 100
    chunks = [run_step(scheduler, pace=MAX_CHUNK_SECONDS)[1][1] for _ in range(5)]
    assert chunks[-1] == MIN_CHUNK_TOKENS
    chunks = [run_step(scheduler, pace=MAX_CHUNK_SECONDS / 10_000)[1][1] for _ in range(12)]
    assert chunks[-1] == 511 and scheduler.running == [speaker, reader]


async def test_scheduler_prefilling_jobs_take_turns(scheduler: Scheduler) -> None:
    scheduler.add(speaker := make_job(random_prompt(2)))
    run_step(scheduler), run_step(scheduler)
    scheduler.add(a := make_job(random_prompt(900, 1)))
    scheduler.add(b := make_job(random_prompt(900, 2)))
    steps = [run_step(scheduler)[0:2] for _ in range(4)]
    assert [[job for job, _ in step] for step in steps] == [[speaker, x] for x in (a, b, a, b)]


async def test_scheduler_short_prompts_share_a_step(scheduler: Scheduler) -> None:
    scheduler.add(a := make_job(random_prompt(50, 1)))
    scheduler.add(b := make_job(random_prompt(60, 2)))
    assert run_step(scheduler) == [(a, 49), (b, 59)]
    assert run_step(scheduler) == [(b, 1), (a, 1)] or run_step(scheduler) == [(a, 1), (b, 1)]


async def test_scheduler_starts_jobs_in_order(scheduler: Scheduler) -> None:
    jobs = [make_job(random_prompt(50, i)) for i in range(5)]
    for job in jobs:
        scheduler.add(job)
    assert scheduler.start_ready() == jobs[:3]
    scheduler.remove(jobs[1])
    assert scheduler.start_ready() == [jobs[3]]


async def test_scheduler_prompt_shares_prefix_waits(scheduler: Scheduler) -> None:
    scheduler.add(a := make_job(random_prompt(1000)))
    scheduler.start_ready()
    scheduler.add(b := make_job(random_prompt(1000)[:900] + [3] * 50))
    scheduler.add(c := make_job(random_prompt(70, 3)))
    assert scheduler.start_ready() == [c]
    scheduler.remove(a)
    assert scheduler.start_ready() == [b]


async def test_scheduler_background_jobs_wait_for_all_others(scheduler: Scheduler) -> None:
    jobs = [
        make_job(random_prompt(100, i), background=True) for i in range(MAX_BACKGROUND_JOBS + 1)
    ]
    assert [scheduler.add(job) for job in jobs] == [None] * MAX_BACKGROUND_JOBS + [jobs[0]]
    assert scheduler.start_ready() == [jobs[-1]]
    scheduler.add(foreground := make_job(random_prompt(100, 9)))
    assert jobs[-1] not in scheduler.running
    assert scheduler.start_ready() == [foreground]
    scheduler.remove(foreground)
    assert scheduler.start_ready() == [jobs[-1]]
    assert len(scheduler.start_ready()) == 0


async def test_scheduler_background_job_in_cache_gets_no_sequence(scheduler: Scheduler) -> None:
    scheduler.add(job := make_job(random_prompt(100)))
    run_step(scheduler), run_step(scheduler)
    scheduler.remove(job)
    scheduler.add(again := make_job(random_prompt(90), background=True))
    again.max_generated = 0
    assert scheduler.start_ready() == [again] and again.sequence is None and not scheduler.running


async def test_scheduler_make_room_requeues_the_youngest_job(scheduler: Scheduler) -> None:
    scheduler.add(a := make_job(random_prompt(100, 1)))
    scheduler.add(b := make_job(random_prompt(100, 2)))
    run_step(scheduler)
    assert scheduler.make_room() is None  # b goes
    assert scheduler.running == [a] and list(scheduler.waiting) == [b]
    assert scheduler.start_ready() == []
    assert scheduler.make_room() is None  # what b had prefilled goes as well
    assert scheduler.make_room() is a
    scheduler.remove(a)
    assert scheduler.start_ready() == [b]
