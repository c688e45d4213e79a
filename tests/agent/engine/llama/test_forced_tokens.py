"""Given tokens, whose log probabilities are read: a step computes several of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.engine.forced_tokens import ForcedTokens
from agent.engine.llama import step_loop
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import LlamaModel
from agent.engine.placement.placement import MAX_FORCED_TOKENS, Placement, ThreadCounts
from agent.engine.protocol import EngineError, Request, Sampling, Tokens
from tests.support.engines import greedy_request, random_prompt, read_generation

FORCED = random_prompt(100, seed=5)


def forced_request(ids: list[int] = FORCED, **fields: Any) -> Request:
    first, *rest = ids
    sampling = Sampling(temperature=0)
    return Request(
        [first], len(rest), sampling=sampling, logprobs=2, constraint=ForcedTokens(rest), **fields
    )


async def scored(engine: LlamaEngine, request: Request) -> list[float]:
    """The log probabilities of a request's tokens."""
    values: list[float] = []

    def on_item(item: object) -> None:
        if isinstance(item, Tokens) and item.logprobs:
            values.extend(one.logprob for one in item.logprobs)

    result = await read_generation(engine.generate(request), on_item)
    assert result.ids == FORCED[1 : len(result.ids) + 1]
    assert result.finished.drafted_tokens == result.finished.accepted_tokens == 0
    return values


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each step of the model computes."""
    sizes: list[int] = []
    decode = LlamaModel.decode

    def counted(self: LlamaModel, spans: Any) -> Any:
        sizes.append(sum(len(span.ids) for span in spans))
        return decode(self, spans)

    monkeypatch.setattr(LlamaModel, "decode", counted)
    return sizes


async def new_engine(gguf: Path, **placement: Any) -> LlamaEngine:
    engine = LlamaEngine(gguf, placement=Placement(4096, **placement), threads=ThreadCounts(1, 1))
    await engine.load()
    return engine


@pytest.mark.parametrize("speculation", ["off", "lookup"])
async def test_forced_tokens_are_scored_in_batches_as_one_by_one(
    gguf: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch, speculation: str
) -> None:
    engine = await new_engine(gguf, speculation=speculation)
    steps.clear()
    values = await scored(engine, forced_request())
    assert len(steps) == -(-(len(FORCED) - 1) // (MAX_FORCED_TOKENS + 1))
    await engine.close()
    monkeypatch.setattr(step_loop, "MAX_FORCED_TOKENS", 0)
    engine = await new_engine(gguf)
    steps.clear()
    single = await scored(engine, forced_request())
    assert len(steps) == len(FORCED) - 1
    assert values == pytest.approx(single, abs=0.01)
    await engine.close()


async def test_forced_tokens_beside_a_generation(gguf: Path, steps: list[int]) -> None:
    engine = await new_engine(gguf)
    alone = await scored(engine, forced_request())
    prompt = greedy_request(random_prompt(30), 40)
    expected = (await read_generation(engine.generate(prompt))).ids
    steps.clear()
    values, other, again = await asyncio.gather(
        scored(engine, forced_request()),
        read_generation(engine.generate(greedy_request(random_prompt(30), 40))),
        scored(engine, forced_request()),
    )
    assert other.ids == expected
    assert values == pytest.approx(alone, abs=0.01) and again == pytest.approx(alone, abs=0.01)
    assert max(steps) <= MAX_FORCED_TOKENS + 3
    await engine.close()


async def test_forced_tokens_end_at_the_limit_or_when_cancelled(gguf: Path) -> None:
    engine = await new_engine(gguf, ubatch=64)
    short = Request(
        FORCED[:1], 10, sampling=Sampling(temperature=0), logprobs=0,
        constraint=ForcedTokens(FORCED[1:]),
    )  # fmt: skip
    assert len(await scored(engine, short)) == 10
    generation = engine.generate(forced_request(random_prompt(3000, seed=9)))
    async for item in generation:
        if isinstance(item, Tokens):
            generation.cancel()
    assert len(await scored(engine, forced_request())) == len(FORCED) - 1
    await engine.close()


@pytest.mark.parametrize("token", [-1, 512, 10**6])
async def test_forced_token_outside_vocabulary_is_refused_and_cache_stays(
    engine: LlamaEngine, token: int
) -> None:
    ids = random_prompt(300)
    await read_generation(engine.generate(greedy_request(ids, 2)))
    for forced in ([3, token, 4, 5], [token]):
        with pytest.raises(EngineError, match="not in the model's vocabulary"):
            await read_generation(engine.generate(forced_request([*ids[:50], *forced])))
    after = await read_generation(engine.generate(greedy_request([*ids, 1], 1)))
    assert after.finished.cached_tokens == len(ids)
