"""Several servers of one model: who is asked, and what happens when one goes away."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from starlette.responses import Response

from agent.engine.protocol import EngineBusyError, EngineError, Request, Tokens, Waiting
from agent.engine.remote.client import RemoteTiming
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.engine.remote.replicas import MIN_BUSY_GENERATIONS
from agent.formats.harmony.format import HarmonyFormat
from tests.support.engines import read_generation
from tests.support.fake_vllm import FakeVllm
from tests.support.waiting import wait_until

TIMING = RemoteTiming(retry_pauses=(0.0,), retry_poll=0.005)
DONE = [[11], "length"]

Start = Callable[..., Awaitable[RemoteEngine]]


@pytest.fixture
async def fakes(form: HarmonyFormat) -> AsyncIterator[list[FakeVllm]]:
    """Three servers that listen."""
    fakes = [FakeVllm(form) for _ in range(3)]
    for fake in fakes:
        await fake.start()
    yield fakes
    for fake in fakes:
        await fake.stop()


@pytest.fixture
async def start(form: HarmonyFormat) -> AsyncIterator[Start]:
    """Load an engine that uses the servers: ``await start(fakes)``."""
    async with AsyncExitStack() as stack:

        async def load(fakes: list[FakeVllm], timing: RemoteTiming = TIMING) -> RemoteEngine:
            url, *others = (fake.url for fake in fakes)
            endpoint = RemoteEndpoint("vllm", url, other_urls=tuple(others))
            engine = RemoteEngine(endpoint, form, timing=timing)
            stack.push_async_callback(engine.close)
            await engine.load()
            return engine

        yield load


def prompt(number: int, more: int = 0) -> Request:
    """A prompt of conversation ``number``, whose later prompts have ``more`` tokens."""
    return Request([7, 7, 7, number, *range(more)], max_tokens=5, affinity_tokens=4)


def preferred(engine: RemoteEngine, fakes: list[FakeVllm], request: Request) -> FakeVllm:
    """The server that the engine would ask."""
    url = engine.replicas.choose(request).client.endpoint.url
    return next(fake for fake in fakes if fake.url == url)


async def test_conversation_stays_where_its_cache_is(fakes: list[FakeVllm], start: Start) -> None:
    engine, again = await start(fakes), await start(fakes[::-1])
    chosen = Counter[int]()
    for number in range(120):
        (fake,) = {preferred(engine, fakes, prompt(number, more)).port for more in (0, 5, 900)}
        assert preferred(again, fakes, prompt(number)).port == fake, "of another program too"
        chosen[fake] += 1
    assert len(chosen) == 3 and min(chosen.values()) > 20
    two = await start(fakes[:2])
    moved = [
        n
        for n in range(120)
        if preferred(two, fakes, prompt(n)) is not preferred(engine, fakes, prompt(n))
    ]
    assert {preferred(engine, fakes, prompt(n)) for n in moved} == {fakes[2]}, "only its own move"


async def test_busy_server_is_passed_over(fakes: list[FakeVllm], start: Start) -> None:
    engine = await start(fakes)
    favourite = preferred(engine, fakes, prompt(1))
    end = asyncio.Event()
    for fake in fakes:
        fake.replies = [[[11], end, "length"] for _ in range(30)]
    running = [
        asyncio.create_task(read_generation(engine.generate(prompt(1, more))))
        for more in range(MIN_BUSY_GENERATIONS)
    ]
    await wait_until(lambda: len(favourite.bodies) == MIN_BUSY_GENERATIONS)
    assert preferred(engine, fakes, prompt(1)) is not favourite
    running += [
        asyncio.create_task(read_generation(engine.generate(prompt(1, more)))) for more in range(14)
    ]
    await wait_until(lambda: sum(len(fake.bodies) for fake in fakes) == len(running))
    assert max(len(fake.bodies) for fake in fakes) <= 1.25 * len(running) / 3 + 1
    end.set()
    await asyncio.gather(*running)
    assert preferred(engine, fakes, prompt(1)) is favourite
    assert [replica.running for replica in engine.replicas.all] == [0, 0, 0]


async def test_server_at_its_limit_is_passed_over(fakes: list[FakeVllm], start: Start) -> None:
    engine = await start(fakes)
    favourite = preferred(engine, fakes, prompt(1))
    for fake in fakes:
        fake.replies = [DONE]
    favourite.replies = [Response(status_code=429)]
    assert (await read_generation(engine.generate(prompt(1)))).ids == [11]
    for fake in fakes:
        fake.replies = [Response(status_code=429)] * 2
    with pytest.raises(EngineBusyError):
        await read_generation(engine.generate(prompt(1)))


async def test_failure_before_first_token_goes_to_another(
    fakes: list[FakeVllm], start: Start
) -> None:
    """At once, and back to the first as soon as it answers again."""
    engine = await start(fakes)
    favourite = preferred(engine, fakes, prompt(1))
    for fake in fakes:
        fake.replies = [DONE, DONE, DONE]
    await favourite.stop()
    items: list[object] = []
    result = await read_generation(engine.generate(prompt(1)), items.append)
    assert result.ids == [11] and not any(isinstance(item, Waiting) for item in items)
    (down,) = [replica for replica in engine.replicas.all if not replica.is_usable]
    assert (down.client.endpoint.url, down.failures) == (favourite.url, 1)
    assert await engine.replicas.check_health() is None
    await read_generation(engine.generate(prompt(1)))
    assert down.generations == 1 and not favourite.bodies
    await favourite.start()
    await wait_until(lambda: preferred(engine, fakes, prompt(1)) is favourite)
    await read_generation(engine.generate(prompt(1)))
    assert len(favourite.bodies) == 1


async def test_failure_after_a_token_fails_the_turn(fakes: list[FakeVllm], start: Start) -> None:
    engine = await start(fakes)
    favourite = preferred(engine, fakes, prompt(1))
    favourite.replies = [[[11]]]
    with pytest.raises(EngineError, match=f"{favourite.url} went away after 1 tokens"):
        await read_generation(engine.generate(prompt(1)))
    assert sum(len(fake.bodies) for fake in fakes) == 1


async def test_request_that_fails_everywhere_ends(fakes: list[FakeVllm], start: Start) -> None:
    engine = await start(fakes, replace(TIMING, retry_pauses=(0.0, 0.0, 0.0)))
    for fake in fakes:
        fake.replies = [Response(status_code=500)] * 9
    with pytest.raises(EngineError, match=r"fails \(HTTP 500"):
        await read_generation(engine.generate(prompt(1)))
    assert sum(len(fake.bodies) for fake in fakes) == 4


async def test_all_away_waits_for_any(fakes: list[FakeVllm], start: Start) -> None:
    engine = await start(fakes)
    for fake in fakes:
        await fake.stop()
        fake.replies = [DONE]
    problem = await engine.replicas.check_health()
    assert problem is not None and problem.refused
    ids: list[int] = []
    messages = []
    async for item in engine.generate(prompt(1)):
        match item:
            case Waiting(message):
                messages.append(message)
                if len(messages) == 1:
                    await fakes[2].start()
            case Tokens():
                ids += item.ids
    assert ids == [11] and len(fakes[2].bodies) == 1
    assert f"vllm at {fakes[0].url}, {fakes[1].url}, {fakes[2].url} does not" in messages[0]
    await wait_until(lambda: preferred(engine, fakes, prompt(1)) is fakes[2])


async def test_load_needs_one_and_others_join(fakes: list[FakeVllm], start: Start) -> None:
    await fakes[0].stop()
    fakes[1].loading = 3
    engine = await start(fakes)
    assert engine.context_length == 1000
    usable = [replica.is_usable for replica in engine.replicas.all]
    assert not usable[0] and usable[2]
    await fakes[0].start()
    await wait_until(lambda: all(replica.is_usable for replica in engine.replicas.all))


async def test_load_of_none_raises(fakes: list[FakeVllm], start: Start) -> None:
    for fake in fakes:
        await fake.stop()
    with pytest.raises(EngineError, match=f"No vllm answers at {fakes[0].url} "):
        await start(fakes)


async def test_servers_of_several_models_are_refused(fakes: list[FakeVllm], start: Start) -> None:
    fakes[1].model = "other"
    with pytest.raises(
        EngineError, match=r"serves openai/gpt-oss-120b and .* other: the servers of"
    ):
        await start(fakes)


async def test_server_that_came_back_with_another_model_stays_away(
    fakes: list[FakeVllm], start: Start, form: HarmonyFormat
) -> None:
    engine = await start(fakes[:2])
    favourite = preferred(engine, fakes, prompt(1))
    for fake in fakes:
        fake.replies = [DONE]
    await favourite.stop()
    await read_generation(engine.generate(prompt(1)))
    favourite.model = "other"
    checks = favourite.health_checks
    await favourite.start()
    await wait_until(lambda: favourite.health_checks > checks + 2)
    assert preferred(engine, fakes, prompt(1)) is not favourite
    favourite.model = "openai/gpt-oss-120b"
    await wait_until(lambda: preferred(engine, fakes, prompt(1)) is favourite)


async def test_close_ends_what_waits(fakes: list[FakeVllm], start: Start) -> None:
    await fakes[0].stop()
    engine = await start(fakes[:2])
    fakes[1].replies = [[[11], asyncio.Event()]]
    generation = engine.generate(prompt(1))
    async for item in generation:
        if isinstance(item, Tokens):
            await engine.close()
    assert engine.replicas.all[1].running == 0
    with pytest.raises(EngineError, match="not loaded"):
        engine.generate(prompt(1))
    await engine.load()
    fakes[1].replies = [DONE]
    assert (await read_generation(engine.generate(prompt(1)))).ids == [11]


async def test_silent_server_is_replaced(fakes: list[FakeVllm], start: Start) -> None:
    """One that is stopped, as vLLM is: the request is made again of another one."""
    engine = await start(fakes[:2], replace(TIMING, silence=0.05))
    favourite = preferred(engine, fakes, prompt(1))
    for fake in fakes:
        fake.replies = [DONE]
    favourite.replies = [[asyncio.Event()]]
    reading = asyncio.create_task(read_generation(engine.generate(prompt(1))))
    await wait_until(lambda: bool(favourite.bodies))
    favourite.stop_listening()
    assert (await reading).ids == [11]
