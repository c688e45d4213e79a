"""Group ``remote``: tokens through our remote engine, beside asking the same vLLM directly.

Both send the same body; measured are the tokens per second of all streams together, and the time to a
stream's first token. vLLM itself is on its slowest machine, a CPU.
"""

import asyncio
import statistics
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from agent.engine.protocol import Request, Sampling, Tokens
from agent.engine.remote.backends import VllmBackend
from agent.engine.remote.endpoint import RemoteEndpoint
from agent.engine.remote.engine import RemoteEngine
from agent.formats.harmony.encoding import load_encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.tiny import vocabulary
from tests.bench import BenchmarkRow, build_vllm, progress
from tests.bench.models import STOP_IDS
from tests.bench.stream_client import post_stream
from tests.bench.vllm_server import SERVED_MODEL, VllmServer

TOKENS = 64
ROUNDS = 7
STREAMS = (1, 8, 32)

StreamTimes = list[float]
"""When a stream was requested and when its tokens came, in seconds of perf_counter."""


def rows() -> list[BenchmarkRow]:
    """Two rows for each number of streams."""
    build_vllm.install()
    form = HarmonyFormat(load_encoding(vocabulary.ranks))
    with VllmServer() as server, asyncio.Runner() as runner:
        engine = RemoteEngine(RemoteEndpoint("vllm", server.url), form)
        runner.run(engine.load())
        table = [row for count in STREAMS for row in _rows(runner, engine, server.port, count)]
        runner.run(engine.close())
    return table


def _rows(
    runner: asyncio.Runner, engine: RemoteEngine, port: int, count: int
) -> list[BenchmarkRow]:
    progress(f"{count} streams of vLLM …")
    # Tokens with which the model would end are never chosen.
    sampling = Sampling(temperature=0, logit_bias=tuple((token, -100.0) for token in STOP_IDS))
    requests = [
        Request(list(range(1000 * (n + 1), 1000 * (n + 1) + 64)), TOKENS, sampling=sampling)
        for n in range(count)
    ]

    def ours() -> tuple[float, float]:
        return runner.run(_measure([_engine_times(engine, each) for each in requests]))

    def theirs() -> tuple[float, float]:
        return runner.run(_measure([_direct_times(port, each) for each in requests]))

    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(ROUNDS)]
    name, peer = f"{count} streams" if count > 1 else "1 stream", "asked directly"
    speeds, firsts = ([(a[i], b[i]) for a, b in pairs] for i in range(2))
    return [
        BenchmarkRow(f"vLLM, {name}", "tokens/s", peer, *_columns(speeds), "≥ 0.97"),
        BenchmarkRow(f"vLLM, {name}, first token", "ms", peer, *_columns(firsts), "+ 3 ms"),
    ]


def _columns(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


async def _measure(streams: list[Coroutine[Any, Any, StreamTimes]]) -> tuple[float, float]:
    """Tokens per second of all streams, and the median time to a first token in milliseconds."""
    start = time.perf_counter()
    results = await asyncio.gather(*streams)
    seconds = time.perf_counter() - start
    firsts = [(first - requested) * 1000 for requested, first, *_ in results]
    return len(results) * TOKENS / seconds, statistics.median(firsts)


async def _engine_times(engine: RemoteEngine, request: Request) -> StreamTimes:
    times, count = [time.perf_counter()], 0
    async for item in engine.generate(replace(request)):
        if isinstance(item, Tokens):
            count += len(item.ids)
            times.append(time.perf_counter())
    assert count == TOKENS, f"{count} tokens"
    return times


async def _direct_times(port: int, request: Request) -> StreamTimes:
    backend = VllmBackend()
    body = backend.completion_body(request, TOKENS, None)
    body |= {"model": SERVED_MODEL, "prompt": list(request.prompt)}
    answer = await post_stream(port, backend.completion_path, body)
    parsed = [(at, backend.parse_chunk(event).ids) for at, event in answer.events]
    assert sum(len(ids) for _, ids in parsed) == TOKENS
    return [answer.requested_at, *(at for at, ids in parsed if ids)]
