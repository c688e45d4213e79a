"""Decoding through the engine's stream beside a bare loop over llama_decode and argmax in this
process, and beside llama-bench, which feeds random tokens and samples nothing."""

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
from tests.bench import Row, Skipped, beside
from tests.bench.bare import Bare
from tests.bench.build import program
from tests.bench.models import endless, tenth
from tests.bench.peer import threads

PROMPT = list(range(1000, 1064))
SETTINGS = {
    "greedy": (Sampling(temperature=0), "≥ 0.97"),
    "temperature 1": (Sampling(seed=1), "≥ 0.93"),
    "temperature 1, min-p 0.05": (Sampling(min_p=0.05, seed=1), ""),
    "temperature 1, top-p 0.95": (Sampling(top_p=0.95, seed=1), ""),
}


def rows() -> list[Row]:
    """One row a sampling and model; the bare peer is greedy always."""
    return [*_rows(endless(), "embedded", 200, 9), *_rows(tenth(), "1.4 GB MXFP4", 48, 7)]


def _rows(path: Path, name: str, count: int, n: int) -> list[Row]:
    with asyncio.Runner() as runner:
        engine = LlamaEngine(path, placement=Placement(4096), threads=threads(path))
        runner.run(engine.load())
        bare = Bare(path)
        ours = partial(_ours, runner, engine, count)
        peer = partial(bare.tokens_per_second, PROMPT, count, threads(path))
        found = [
            beside(
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
        found += _beside_llama_bench(partial(ours, SETTINGS["greedy"][0]), name, path, count, n)
        runner.run(engine.close())
    return found


def _ours(runner: asyncio.Runner, engine: LlamaEngine, count: int, sampling: Sampling) -> float:
    return runner.run(_tokens_per_second(engine, sampling, count))


def _beside_llama_bench(
    ours: Callable[[], float], name: str, path: Path, count: int, n: int
) -> list[Row]:
    try:
        program("llama-bench")
    except Skipped:
        return []  # the other groups say it
    theirs = partial(_llama_bench, path, count)
    peer = "llama-bench, no sampling"
    return [beside(f"engine, {name}, greedy", "tokens/s", ours, peer, theirs, n)]


async def _tokens_per_second(engine: LlamaEngine, sampling: Sampling, count: int) -> float:
    """As a reader of the stream sees it: from the end of prefill to the last token."""
    start = 0.0
    async for item in engine.generate(Request(PROMPT, count, sampling=sampling)):
        if isinstance(item, Prefill):
            start = time.perf_counter()
    return count / (time.perf_counter() - start)


def _llama_bench(path: Path, count: int) -> float:
    chosen = threads(path)
    done = subprocess.run(
        [
            str(program("llama-bench")), "--model", str(path), "--n-prompt", "0",
            "--n-gen", str(count), "--repetitions", "1", "--output", "json",
            "--threads", str(chosen.decode),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)[0]["avg_ts"])
