"""Group ``decode``: decoding through the engine's stream, beside a bare loop and llama-bench.

The bare loop runs llama_decode and argmax in this process; llama-bench samples nothing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Prefill, Request, Sampling
from tests.bench import BenchmarkRow, BenchmarkSkippedError, compare
from tests.bench.bare_llama import BareLlama
from tests.bench.build_llama import llama_program
from tests.bench.llama_server import thread_counts
from tests.bench.models import endless_model, large_model

PROMPT = list(range(1000, 1064))
SETTINGS = {
    "greedy": (Sampling(temperature=0), "≥ 0.97"),
    "temperature 1": (Sampling(seed=1), "≥ 0.93"),
    "temperature 1, min-p 0.05": (Sampling(min_p=0.05, seed=1), ""),
    "temperature 1, top-p 0.95": (Sampling(top_p=0.95, seed=1), ""),
}


def rows() -> list[BenchmarkRow]:
    """One row for each sampling and model; the bare loop is always greedy."""
    return [
        *_model_rows(endless_model(), "embedded", 200, 9),
        *_model_rows(large_model(), "1.4 GB MXFP4", 48, 7),
    ]


def _model_rows(path: Path, name: str, count: int, n: int) -> list[BenchmarkRow]:
    with asyncio.Runner() as runner:
        engine = LlamaEngine(path, placement=Placement(4096), threads=thread_counts(path))
        runner.run(engine.load())
        bare = BareLlama(path)
        ours = partial(_engine_rate, runner, engine, count)
        peer = partial(bare.tokens_per_second, PROMPT, count, thread_counts(path))
        table = [
            compare(
                f"engine, {name}, {setting}",
                "tokens/s",
                partial(ours, sampling),
                "bare llama_decode + argmax",
                peer,
                n,
                goal,
            )
            for setting, (sampling, goal) in SETTINGS.items()
        ]
        bare.close()
        table += _llama_bench_rows(partial(ours, SETTINGS["greedy"][0]), name, path, count, n)
        runner.run(engine.close())
    return table


def _engine_rate(
    runner: asyncio.Runner, engine: LlamaEngine, count: int, sampling: Sampling
) -> float:
    return runner.run(_stream_rate(engine, sampling, count))


def _llama_bench_rows(
    ours: Callable[[], float], name: str, path: Path, count: int, n: int
) -> list[BenchmarkRow]:
    try:
        llama_program("llama-bench")
    except BenchmarkSkippedError:
        return []  # other groups report it
    theirs = partial(_llama_bench_rate, path, count)
    peer = "llama-bench, no sampling"
    return [compare(f"engine, {name}, greedy", "tokens/s", ours, peer, theirs, n)]


async def _stream_rate(engine: LlamaEngine, sampling: Sampling, count: int) -> float:
    """Tokens per second as the stream's reader gets them: from the end of prefill to the last token."""
    start = 0.0
    async for item in engine.generate(Request(PROMPT, count, sampling=sampling)):
        if isinstance(item, Prefill):
            start = time.perf_counter()
    return count / (time.perf_counter() - start)


def _llama_bench_rate(path: Path, count: int) -> float:
    """Tokens per second that llama-bench reports."""
    done = subprocess.run(
        [
            str(llama_program("llama-bench")), "--model", str(path), "--n-prompt", "0",
            "--n-gen", str(count), "--repetitions", "1", "--output", "json",
            "--threads", str(thread_counts(path).decode),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)[0]["avg_ts"])
