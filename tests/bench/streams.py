"""Group ``streams``: several generations at once, beside ``llama-server -np N``.

Measured are the tokens per second of all together, and the longest wait of a stream for its next token.
Ours are read from the engine, theirs over HTTP.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from agent.engine.llama.engine import LlamaEngine
from agent.engine.protocol import Request, Sampling, Tokens
from tests.bench import BenchmarkRow, progress
from tests.bench.llama_server import GREEDY, LlamaServer, thread_counts
from tests.bench.models import bench_placement, chat_model

TOKENS = 96
ROUNDS = 7
STREAMS = (1, 2, 4, 8)
CONTEXT_TOKENS = 4096


@dataclass(frozen=True)
class TokenTimes:
    """When one stream's tokens came, in seconds of perf_counter."""

    times: list[float]

    @property
    def longest_gap(self) -> float:
        """The longest time between two tokens, in seconds."""
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False))


def rows() -> list[BenchmarkRow]:
    """Two rows for each number of streams."""
    with asyncio.Runner() as runner:
        path, placement = chat_model(), bench_placement(CONTEXT_TOKENS, max(STREAMS))
        engine = LlamaEngine(path, placement=placement, threads=thread_counts(path))
        runner.run(engine.load())
        table = [row for streams in STREAMS for row in _stream_rows(runner, engine, streams)]
        runner.run(engine.close())
    return table


def _prompt(number: int) -> list[int]:
    return list(range(1000 * (number + 1), 1000 * (number + 1) + 64))


def _stream_rows(runner: asyncio.Runner, engine: LlamaEngine, streams: int) -> list[BenchmarkRow]:
    progress(f"streams together: {streams} …")
    with LlamaServer(chat_model(), context=CONTEXT_TOKENS, streams=streams) as server:

        def ours() -> tuple[float, float]:
            return runner.run(
                _speed_and_gap([_engine_times(engine, _prompt(i)) for i in range(streams)])
            )

        def theirs() -> tuple[float, float]:
            return runner.run(
                _speed_and_gap([_llama_server_times(server, _prompt(i)) for i in range(streams)])
            )

        ours(), theirs()
        pairs = [(ours(), theirs()) for _ in range(ROUNDS)]
    speeds = [(a[0], b[0]) for a, b in pairs]
    gaps = [(a[1], b[1]) for a, b in pairs]
    peer, name = f"llama-server -np {streams}", f"{streams} streams" if streams > 1 else "1 stream"
    return [
        BenchmarkRow(f"{name}, together", "tokens/s", peer, *_columns(speeds), "≥ 1.0"),
        BenchmarkRow(f"{name}, worst gap", "ms", peer, *_columns(gaps), "≤ 1.2"),
    ]


def _columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


async def _speed_and_gap(streams: list[Coroutine[Any, Any, TokenTimes]]) -> tuple[float, float]:
    """Tokens per second of all streams, and the longest gap of any in milliseconds."""
    start = time.perf_counter()
    results = await asyncio.gather(*streams)
    seconds = time.perf_counter() - start
    speed = len(results) * TOKENS / seconds
    return speed, max(times.longest_gap for times in results) * 1000


async def _engine_times(engine: LlamaEngine, prompt: list[int]) -> TokenTimes:
    times = []
    async for item in engine.generate(Request(prompt, TOKENS, sampling=Sampling(temperature=0))):
        if isinstance(item, Tokens):
            times.append(time.perf_counter())
    return TokenTimes(times)


async def _llama_server_times(server: LlamaServer, prompt: list[int]) -> TokenTimes:
    return TokenTimes((await server.complete(prompt, TOKENS, **GREEDY)).text_times)
