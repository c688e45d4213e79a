"""Several callers at once, on a random model and step by step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import Model
from agent.engine.llama.prefix_cache import Cache
from agent.engine.llama.scheduler import AHEAD, LEAST, STANDSTILL, Job, Scheduler
from agent.engine.llama.thread_tuning import Threads
from agent.engine.llama.token_stream import Stream
from agent.engine.llama.worker import QUEUE
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Busy, Prefill, Request, Tokens
from tests.agent.engine.llama.test_engine import greedy, likely, prompt
from tests.support.engines import Read, read


async def loaded(gguf: Path, **placement: int) -> LlamaEngine:
    engine = LlamaEngine(gguf, placement=Placement(**placement), threads=Threads(1, 1))
    await engine.load()
    return engine


# --- on the model ---


async def test_more_than_there_are_sequences_take_turns(engine: LlamaEngine, gguf: Path) -> None:
    requests = [greedy(prompt(30 + 5 * i, seed=i), 20) for i in range(9)]
    together = await asyncio.gather(*(read(engine.generate(request)) for request in requests))
    for request, got in zip(requests, together, strict=True):
        assert (len(got.ids), got.finished.reason) == (20, "length")
        likely(gguf, list(request.prompt), got.ids)


async def test_streams_go_on_while_another_reads_its_prompt(engine: LlamaEngine) -> None:
    speaker = engine.generate(greedy(prompt(50), None))
    heard: list[object] = []

    async def listen() -> None:
        async for item in speaker:
            heard.append(item)

    listening = asyncio.create_task(listen())
    told: list[int] = []

    def note(item: object) -> None:
        told.append(sum(len(one.ids) for one in heard if isinstance(one, Tokens)))

    reader = await read(engine.generate(greedy(prompt(2000, seed=1), 1)), note)
    assert len(reader.prefills) > 2000 // 512
    assert told[-1] - told[0] >= len(reader.prefills) - 3
    speaker.cancel()
    await listening


async def test_a_common_beginning_is_computed_once(engine: LlamaEngine, gguf: Path) -> None:
    system = prompt(900)
    requests = [greedy(system + prompt(30 + i, seed=i), 15) for i in range(1, 5)]
    together = await asyncio.gather(*(read(engine.generate(request)) for request in requests))
    assert [got.finished.cached_tokens for got in together] == [0, 900, 900, 900]
    for request, got in zip(requests, together, strict=True):
        likely(gguf, list(request.prompt), got.ids)


async def test_conversations_side_by_side_keep_what_they_had(engine: LlamaEngine) -> None:
    system = prompt(600)
    talks = [system + prompt(300, seed=i) for i in range(1, 4)]
    for talk in talks:
        talk += (await read(engine.generate(greedy(talk, 10)))).ids
    for talk in talks:
        again = await read(engine.generate(greedy(talk + prompt(20, seed=9), 5)))
        assert again.finished.cached_tokens >= len(talk) - 1


async def test_one_is_cancelled_and_the_others_do_not_notice(
    engine: LlamaEngine, gguf: Path
) -> None:
    requests = [greedy(prompt(40, seed=i), 60) for i in range(3)]
    leaving = engine.generate(greedy(prompt(1500, seed=7), None))
    staying = [engine.generate(request) for request in requests]

    def leave(item: object) -> None:
        if isinstance(item, Prefill) and item.done > 500:
            leaving.cancel()

    left, *stayed = await asyncio.gather(read(leaving, leave), *map(read, staying))
    assert left.finished.reason == "cancelled"
    for request, got in zip(requests, stayed, strict=True):
        assert len(got.ids) == 60
        likely(gguf, list(request.prompt), got.ids)


@pytest.mark.slow
async def test_cancels_at_every_moment_leave_the_memory_whole(
    engine: LlamaEngine, gguf: Path
) -> None:
    stays = engine.generate(greedy(prompt(60), 400))
    reading = asyncio.create_task(read(stays))
    for i in range(12):
        leaves = engine.generate(greedy(prompt(700, seed=i), None))
        seen = 0
        async for _ in leaves:
            seen += 1
            if seen > i:
                leaves.cancel()
    likely(gguf, prompt(60), (await reading).ids)


async def test_more_than_may_wait_are_refused(engine: LlamaEngine) -> None:
    accepted = [engine.generate(greedy(prompt(20), None)) for _ in range(4 + QUEUE)]
    with pytest.raises(Busy, match="try again later"):
        engine.generate(greedy(prompt(20)))
    ahead = engine.generate(Request(prompt(20), max_tokens=0, idle=True))
    accepted[-1].cancel()
    assert (await read(accepted[-1])).finished.reason == "cancelled"
    await read(accepted[0], lambda item: accepted[0].cancel())
    accepted.append(engine.generate(greedy(prompt(20), 1)))
    for generation in accepted:
        generation.cancel()
    await asyncio.gather(*map(read, accepted[1:-2]), read(accepted[-1]))
    assert (await read(ahead)).finished.reason == "length"


async def test_work_ahead_gives_way_and_is_taken_up_again(engine: LlamaEngine) -> None:
    order: list[str] = []

    async def noting(name: str, request: Request) -> Read:
        got = await read(engine.generate(request))
        order.append(name)
        return got

    ahead = asyncio.create_task(noting("ahead", Request(prompt(3000), max_tokens=0, idle=True)))
    await asyncio.sleep(0)
    asked = await noting("asked", greedy(prompt(40, seed=1), 30))
    assert len(asked.ids) == 30
    laid = await ahead
    assert order == ["asked", "ahead"] and laid.finished.reason == "length"
    follow_up = await read(engine.generate(greedy(prompt(3000) + prompt(20, seed=2), 5)))
    assert follow_up.finished.cached_tokens == 3000


async def test_work_ahead_that_is_done_already_takes_nothing_away(engine: LlamaEngine) -> None:
    first = await read(engine.generate(greedy(prompt(900), 200)))
    talk = prompt(900) + first.ids
    laid = await read(engine.generate(Request(prompt(900), max_tokens=0, idle=True)))
    assert laid.finished.cached_tokens == 900
    again = await read(engine.generate(greedy([*talk, 5], 5)))
    assert again.finished.cached_tokens == len(talk) - 1


async def test_idle_sequences_make_room(gguf: Path) -> None:
    engine = await loaded(gguf, context=1024, sequences=4)
    for seed in range(6):
        got = await read(engine.generate(greedy(prompt(600, seed), 100)))
        assert (len(got.ids), got.finished.cached_tokens) == (100, 0)
    likely(gguf, prompt(600, 5), got.ids)
    await engine.close()


@pytest.mark.slow
async def test_jobs_that_do_not_fit_together_end_one_after_the_other(gguf: Path) -> None:
    engine = await loaded(gguf, context=1024, sequences=4)
    requests = [greedy(prompt(300, seed), 300) for seed in range(5)]
    together = await asyncio.gather(*(read(engine.generate(request)) for request in requests))
    for request, got in zip(requests, together, strict=True):
        assert (len(got.ids), got.finished.reason) == (300, "length")
        likely(gguf, list(request.prompt), got.ids)
    await engine.close()


# --- step by step ---


@pytest.fixture(scope="module")
def model(gguf: Path) -> Model:
    return Model(gguf, Placement(4096), lambda done: True)


@pytest.fixture
def scheduler(model: Model) -> Scheduler:
    model.clear()
    return Scheduler(Cache(model, 3), step=512)


def job(ids: list[int], idle: bool = False) -> Job:
    return Job(Request(ids, idle=idle), Stream(lambda stream: None), list(ids), limit=100)


def run(scheduler: Scheduler, pace: float = STANDSTILL / 100) -> list[tuple[Job, int]]:
    """One step with so many seconds a token, in which everybody who speaks says 1."""
    scheduler.begin()
    shares = scheduler.plan()
    scheduler.fed(shares, pace * sum(tokens for _, tokens in shares))
    for one, _ in shares:
        if not one.left:
            one.ids.append(1)
            one.said += 1
    return [(one, tokens) for one, tokens in shares]


async def test_alone_a_prompt_is_read_in_whole_steps_and_its_last_token(
    scheduler: Scheduler,
) -> None:
    scheduler.add(one := job(prompt(1100)))
    assert [run(scheduler) for _ in range(4)] == [[(one, n)] for n in (512, 512, 75, 1)]
    assert [run(scheduler) for _ in range(2)] == [[(one, 1)]] * 2


async def test_beside_speakers_chunks_take_no_longer_than_they_may(scheduler: Scheduler) -> None:
    scheduler.add(speaker := job(prompt(2)))
    run(scheduler), run(scheduler)
    scheduler.add(reader := job(prompt(20_000)))
    chunks = [run(scheduler)[1][1] for _ in range(12)]
    assert chunks[0] == LEAST and chunks == sorted(chunks) and 95 <= chunks[-1] <= 100
    chunks = [run(scheduler, pace=STANDSTILL)[1][1] for _ in range(5)]
    assert chunks[-1] == LEAST
    chunks = [run(scheduler, pace=STANDSTILL / 10_000)[1][1] for _ in range(12)]
    assert chunks[-1] == 511 and scheduler.running == [speaker, reader]


async def test_readers_take_turns(scheduler: Scheduler) -> None:
    scheduler.add(speaker := job(prompt(2)))
    run(scheduler), run(scheduler)
    scheduler.add(a := job(prompt(900, 1)))
    scheduler.add(b := job(prompt(900, 2)))
    steps = [run(scheduler)[0:2] for _ in range(4)]
    assert [[one for one, _ in step] for step in steps] == [[speaker, x] for x in (a, b, a, b)]


async def test_short_prompts_are_read_together(scheduler: Scheduler) -> None:
    scheduler.add(a := job(prompt(50, 1)))
    scheduler.add(b := job(prompt(60, 2)))
    assert run(scheduler) == [(a, 49), (b, 59)]
    assert run(scheduler) == [(b, 1), (a, 1)] or run(scheduler) == [(a, 1), (b, 1)]


async def test_who_asked_first_begins_first(scheduler: Scheduler) -> None:
    jobs = [job(prompt(50, i)) for i in range(5)]
    for one in jobs:
        scheduler.add(one)
    assert scheduler.begin() == jobs[:3]
    scheduler.remove(jobs[1])
    assert scheduler.begin() == [jobs[3]]


async def test_who_shares_a_beginning_waits_for_it(scheduler: Scheduler) -> None:
    scheduler.add(a := job(prompt(1000)))
    scheduler.begin()
    scheduler.add(b := job(prompt(1000)[:900] + [3] * 50))
    scheduler.add(c := job(prompt(70, 3)))
    assert scheduler.begin() == [c]
    scheduler.remove(a)
    assert scheduler.begin() == [b]


async def test_idle_ones_wait_until_nobody_else_does(scheduler: Scheduler) -> None:
    idle = [job(prompt(100, i), idle=True) for i in range(AHEAD + 1)]
    assert [scheduler.add(one) for one in idle] == [None] * AHEAD + [idle[0]]
    assert scheduler.begin() == [idle[-1]]
    scheduler.add(asks := job(prompt(100, 9)))
    assert idle[-1] not in scheduler.running
    assert scheduler.begin() == [asks]
    scheduler.remove(asks)
    assert scheduler.begin() == [idle[-1]]
    assert len(scheduler.begin()) == 0


async def test_work_ahead_that_was_done_gets_no_sequence(scheduler: Scheduler) -> None:
    scheduler.add(one := job(prompt(100)))
    run(scheduler), run(scheduler)
    scheduler.remove(one)
    scheduler.add(again := job(prompt(90), idle=True))
    again.limit = 0
    assert scheduler.begin() == [again] and again.sequence is None and not scheduler.running


async def test_without_room_the_youngest_waits_for_an_end(scheduler: Scheduler) -> None:
    scheduler.add(a := job(prompt(100, 1)))
    scheduler.add(b := job(prompt(100, 2)))
    run(scheduler)
    assert scheduler.make_room() is None  # b goes
    assert scheduler.running == [a] and list(scheduler.waiting) == [b]
    assert scheduler.begin() == []
    assert scheduler.make_room() is None  # what b had read goes as well
    assert scheduler.make_room() is a
    scheduler.remove(a)
    assert scheduler.begin() == [b]
