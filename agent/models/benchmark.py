"""How fast a model reads and writes on this machine: a few seconds of each, greedy, one caller."""

from __future__ import annotations

import random
from time import perf_counter

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.planner import Choice
from agent.engine.protocol import Engine, Finished, Request, Sampling
from agent.models.loader import Loading

SECONDS = 3.0
"""Of reading, and of writing, about."""
PROMPTS, TOKENS = (64, 4096), (8, 512)
"""Fewest and most tokens that are read and written."""
ORDINARY = 500
"""Ids below this are ordinary tokens in every vocabulary."""


async def measure(loading: Loading, choice: Choice | None) -> str:
    """Load the model and measure; a sentence for people. Raises EngineError."""
    path = loading.file(lambda done: None)
    engine = LlamaEngine(path, placement=loading.placement(choice))
    start = perf_counter()
    await engine.load()
    try:
        loaded = perf_counter() - start
        first = await _one(engine, PROMPTS[0], TOKENS[0])
        most = min(PROMPTS[1], engine.context_length // 2)
        prompt = _within(first.prompt_tokens / first.prefill_seconds * SECONDS, PROMPTS[0], most)
        most = min(TOKENS[1], engine.context_length // 4)
        tokens = _within(first.output_tokens / first.decode_seconds * SECONDS, TOKENS[0], most)
        done = await _one(engine, prompt, tokens)
    finally:
        await engine.close()
    threads = engine.threads
    return (
        f"loaded in {loaded:.1f} s; prefill {done.prompt_tokens / done.prefill_seconds:,.0f} tokens/s"
        f" ({done.prompt_tokens:,}), decode {done.output_tokens / done.decode_seconds:,.1f} tokens/s"
        f" ({done.output_tokens:,})"
        + (f"; threads: {threads.prefill} and {threads.decode}" if threads else "")
    )


def _within(wanted: float, least: int, most: int) -> int:
    return max(min(least, most), min(int(wanted), most))


async def _one(engine: Engine, prompt: int, tokens: int) -> Finished:
    """Read a prompt that was not seen before, write so many tokens."""
    ids = [random.randrange(ORDINARY) for _ in range(prompt)]
    request = Request(ids, max_tokens=tokens, sampling=Sampling(temperature=0))
    async for item in engine.generate(request):
        if isinstance(item, Finished):
            return item
    raise AssertionError("a generation ends with Finished")
