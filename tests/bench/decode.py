"""Decoding through the engine's stream beside a bare loop over llama_decode and argmax."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from agent.engine.base import Prefill, Request, Sampling
from agent.engine.llama import LlamaEngine
from tests.bench import Row, beside
from tests.bench.bare import Bare
from tests.bench.models import model

PROMPT = list(range(1000, 1064))
COUNT = 200
SETTINGS = {
    "greedy": Sampling(temperature=0),
    "temperature 1": Sampling(seed=1),
    "temperature 1, min-p 0.05": Sampling(min_p=0.05, seed=1),
    "temperature 1, top-p 0.95": Sampling(top_p=0.95, seed=1),
}


def rows() -> list[Row]:
    """One row a sampling; the peer is greedy always."""
    with asyncio.Runner() as runner:
        engine = LlamaEngine(model())
        runner.run(engine.load())
        assert engine.threads
        bare = Bare(model())
        found = [
            beside(
                f"decode, {name}",
                "tokens/s",
                partial(_ours, runner, engine, sampling),
                "bare llama_decode + argmax",
                partial(bare.tokens_per_second, PROMPT, COUNT, engine.threads),
            )
            for name, sampling in SETTINGS.items()
        ]
        bare.close()
        runner.run(engine.close())
    return found


def _ours(runner: asyncio.Runner, engine: LlamaEngine, sampling: Sampling) -> float:
    return runner.run(_tokens_per_second(engine, sampling))


async def _tokens_per_second(engine: LlamaEngine, sampling: Sampling) -> float:
    """As a reader of the stream sees it: from the end of prefill to the last token."""
    start = 0.0
    async for item in engine.generate(Request(PROMPT, COUNT, sampling=sampling)):
        if isinstance(item, Prefill):
            start = time.perf_counter()
    return COUNT / (time.perf_counter() - start)
