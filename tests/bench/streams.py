"""Several generations at once beside ``llama-server -np N``: tokens a second of all together, and the
longest that a stream waits for its next token. Ours are read from the engine, theirs over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Request, Sampling, Tokens
from tests.bench import Row, progress
from tests.bench.models import endless
from tests.bench.peer import GREEDY, LlamaServer, threads

COUNT = 96
ROUNDS = 7
STREAMS = (1, 2, 4, 8)
CONTEXT = 4096


@dataclass(frozen=True)
class Came:
    """When one stream's tokens came, from the common start; seconds."""

    times: list[float]

    @property
    def gap(self) -> float:
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False))


def rows() -> list[Row]:
    """Two rows for each number of streams."""
    with asyncio.Runner() as runner:
        placement = Placement(CONTEXT, sequences=max(STREAMS))
        engine = LlamaEngine(endless(), placement=placement, threads=threads(endless()))
        runner.run(engine.load())
        found = [row for streams in STREAMS for row in _rows(runner, engine, streams)]
        runner.run(engine.close())
    return found


def _prompt(number: int) -> list[int]:
    return list(range(1000 * (number + 1), 1000 * (number + 1) + 64))


def _rows(runner: asyncio.Runner, engine: LlamaEngine, streams: int) -> list[Row]:
    progress(f"streams together: {streams} …")
    with LlamaServer(endless(), context=CONTEXT, streams=streams) as server:

        def ours() -> tuple[float, float]:
            return runner.run(_together([_ours(engine, _prompt(i)) for i in range(streams)]))

        def theirs() -> tuple[float, float]:
            return runner.run(_together([_theirs(server, _prompt(i)) for i in range(streams)]))

        ours(), theirs()
        pairs = [(ours(), theirs()) for _ in range(ROUNDS)]
    speeds = [(a[0], b[0]) for a, b in pairs]
    gaps = [(a[1], b[1]) for a, b in pairs]
    peer, name = f"llama-server -np {streams}", f"{streams} streams" if streams > 1 else "1 stream"
    return [
        Row(f"{name}, together", "tokens/s", peer, *_columns(speeds), "≥ 1.0"),
        Row(f"{name}, worst gap", "ms", peer, *_columns(gaps), "≤ 1.2"),
    ]


def _columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


async def _together(streams: list[Coroutine[Any, Any, Came]]) -> tuple[float, float]:
    """Tokens a second of all, and the worst gap of any in milliseconds."""
    start = time.perf_counter()
    came = await asyncio.gather(*streams)
    seconds = time.perf_counter() - start
    return len(came) * COUNT / seconds, max(one.gap for one in came) * 1000


async def _ours(engine: LlamaEngine, prompt: list[int]) -> Came:
    times = []
    async for item in engine.generate(Request(prompt, COUNT, sampling=Sampling(temperature=0))):
        if isinstance(item, Tokens):
            times.append(time.perf_counter())
    return Came(times)


async def _theirs(server: LlamaServer, prompt: list[int]) -> Came:
    return Came((await server.complete(prompt, COUNT, **GREEDY)).texts)
