"""Group ``busy``: the same machine beside as many busy processes as it has cores.

The peers are our own engine with one thread, which others disturb least, and llama-server with a thread
for each core. One engine is loaded beside the busy processes; another before they start, so that it has
to notice them.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.processor import usable_cores
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import Request, Sampling, Tokens
from tests.bench import BenchmarkRow, compare
from tests.bench.llama_server import GREEDY, LlamaServer
from tests.bench.models import large_model

PROMPT_TOKENS, OUTPUT_TOKENS = 64, 48
NOTICING_TOKENS = 100
"""Tokens in which the engine that was loaded before may notice the load."""
CONTEXT_TOKENS = 4096


def rows() -> list[BenchmarkRow]:
    """Speed beside busy processes, of one thread, of llama-server and of ours."""
    return asyncio.run(_rows())


async def _rows() -> list[BenchmarkRow]:
    path = large_model()
    loop = asyncio.get_running_loop()
    earlier = await _loaded(path, None)

    def measure(engine: LlamaEngine, prompt: bool) -> float:
        running = asyncio.run_coroutine_threadsafe(_speed(engine, prompt), loop)
        return running.result()

    def of_server(server: LlamaServer) -> float:
        stream = asyncio.run(server.complete(_prompt(), OUTPUT_TOKENS, **GREEDY))
        seconds = stream.seconds_to_last_text - stream.seconds_to_first_text
        return (OUTPUT_TOKENS - 1) / seconds

    with _busy_cores():
        await _speed(earlier, False, NOTICING_TOKENS)
        chosen, one = await _loaded(path, None), await _loaded(path, ThreadCounts(1, 1))
        found = []
        for engine, name in ((chosen, "loaded beside them"), (earlier, "loaded before them")):
            for prompt, what in ((False, "decoding"), (True, "a prompt")):
                found.append(
                    await asyncio.to_thread(
                        compare,
                        f"{what} beside {usable_cores()} busy processes, {name}, 1.4 GB",
                        "tokens/s",
                        lambda engine=engine, prompt=prompt: measure(engine, prompt),
                        "one thread",
                        lambda prompt=prompt: measure(one, prompt),
                        n=5,
                        goal="≥ 0.9",
                    )
                )
        cores = usable_cores()
        with LlamaServer(path, threads=ThreadCounts(cores, cores)) as server:
            found.append(
                await asyncio.to_thread(
                    compare,
                    f"decoding beside {cores} busy processes, 1.4 GB",
                    "tokens/s",
                    lambda: measure(chosen, False),
                    f"llama-server, {cores} threads",
                    lambda: of_server(server),
                    n=3,
                    goal="≥ 1.0",
                )
            )
    for engine in (earlier, chosen, one):
        await engine.close()
    return found


@contextmanager
def _busy_cores() -> Iterator[None]:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(usable_cores())
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


async def _loaded(path: Path, threads: ThreadCounts | None) -> LlamaEngine:
    engine = LlamaEngine(path, placement=Placement(CONTEXT_TOKENS), threads=threads)
    await engine.load()
    return engine


def _prompt() -> list[int]:
    """A prompt that no cache knows."""
    began = time.perf_counter_ns()
    return [1000 + (began + 7919 * index) % 190_000 for index in range(PROMPT_TOKENS)]


async def _speed(engine: LlamaEngine, prompt: bool, count: int = OUTPUT_TOKENS) -> float:
    """Tokens a second of a prompt, or of what is generated."""
    count = 1 if prompt else count
    began, first = time.perf_counter(), 0.0
    request = Request(_prompt(), count, sampling=Sampling(temperature=0), private=True)
    async for event in engine.generate(request):
        if isinstance(event, Tokens) and not first:
            first = time.perf_counter()
    return (
        PROMPT_TOKENS / (first - began) if prompt else (count - 1) / (time.perf_counter() - first)
    )
