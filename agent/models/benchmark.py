"""Measures prefill and decode speed of a model on this machine: greedy, one sequence."""

import random
from time import perf_counter

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.processor import performance_cores, power_saving, usable_cores
from agent.engine.placement.placement import ThreadCounts
from agent.engine.placement.planner import PlacementPlan
from agent.engine.protocol import Engine, Finished, Request, Sampling
from agent.models.loader import ModelLoader

TARGET_SECONDS = 3.0
"""Seconds that prefill and decode are measured for, about."""
PROMPT_TOKENS, OUTPUT_TOKENS = (64, 4096), (8, 512)
"""Fewest and most tokens of the measured prompt and output."""
ORDINARY_TOKEN_IDS = 500
"""Ids below this are ordinary tokens in every vocabulary."""


async def measure(loader: ModelLoader, plan: PlacementPlan | None) -> str:
    """Load the model and measure it; a sentence for people. Raises EngineError."""
    path = loader.gguf_path(lambda done: None)
    engine = LlamaEngine(path, placement=loader.placement(plan), draft=loader.draft_path())
    start = perf_counter()
    await engine.load()
    try:
        loaded = perf_counter() - start
        estimate = await _generate(engine, PROMPT_TOKENS[0], OUTPUT_TOKENS[0])
        reads = estimate.prompt_tokens / estimate.prefill_seconds
        prompt_tokens = _count(reads, PROMPT_TOKENS, engine.context_length // 2)
        writes = estimate.output_tokens / estimate.decode_seconds
        output_tokens = _count(writes, OUTPUT_TOKENS, engine.context_length // 4)
        result = await _generate(engine, prompt_tokens, output_tokens)
    finally:
        await engine.close()
    threads = engine.threads
    prefill_speed = result.prompt_tokens / result.prefill_seconds
    decode_speed = result.output_tokens / result.decode_seconds
    return (
        f"loaded in {loaded:.1f} s; reads {prefill_speed:,.0f} tokens/s (a prompt of"
        f" {result.prompt_tokens:,}), writes {decode_speed:,.1f} tokens/s (an answer of"
        f" {result.output_tokens:,})" + (f"; {describe_threads(threads)}" if threads else "")
    )


def describe_threads(threads: ThreadCounts) -> str:
    cores, fast, saving = usable_cores(), performance_cores(), power_saving()
    text = f"threads: {threads.prefill} for prompts, {threads.decode} for answers, of {cores} cores"
    if fast is not None:
        text += f" ({fast} performance cores)"
    if threads.decode < cores:
        text += ", measured now: more threads did not speed it up"
        busy = threads.prefill < cores and threads.prefill != fast
        text += " (other programs use the cores)" if busy else ""
    return text + (f"; slowed to save power: {saving}" if saving else "")


def _count(speed: float, bounds: tuple[int, int], room: int) -> int:
    least, most = bounds[0], min(bounds[1], room)
    return max(min(least, most), min(int(speed * TARGET_SECONDS), most))


async def _generate(engine: Engine, prompt_tokens: int, output_tokens: int) -> Finished:
    """Run one generation with a random prompt, of which no prefix is cached."""
    ids = [random.randrange(ORDINARY_TOKEN_IDS) for _ in range(prompt_tokens)]
    request = Request(ids, max_tokens=output_tokens, sampling=Sampling(temperature=0))
    async for item in engine.generate(request):
        if isinstance(item, Finished):
            return item
    raise AssertionError("a generation ends with Finished")
