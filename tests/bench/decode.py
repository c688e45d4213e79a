"""Group ``decode``: decoding through the engine's stream, beside a bare loop and llama-bench.

The bare loop runs llama_decode and argmax in this process; llama-bench samples nothing. Prefill is
measured beside llama-bench and llama-server.
"""

import asyncio
import itertools
import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.engine.llama.engine import LlamaEngine
from agent.engine.protocol import Prefill, Request, Sampling, Tokens
from tests.bench import GPU_LAYERS, BenchmarkRow, BenchmarkSkippedError, compare
from tests.bench.bare_llama import BareLlama
from tests.bench.build_llama import llama_program
from tests.bench.llama_server import GREEDY, LlamaServer, thread_counts
from tests.bench.models import bench_placement, endless_model, large_model, large_model_name

PROMPT = list(range(1000, 1064))
PREFILL_TOKENS = 2048
SETTINGS = {
    "greedy": (Sampling(temperature=0), "≥ 0.97"),
    "temperature 1": (Sampling(seed=1), "≥ 0.93"),
    "temperature 1, min-p 0.05": (Sampling(min_p=0.05, seed=1), ""),
    "temperature 1, top-p 0.95": (Sampling(top_p=0.95, seed=1), ""),
}


def rows() -> list[BenchmarkRow]:
    """One row for each sampling and model; the bare loop is always greedy."""
    table = _model_rows(endless_model(), "embedded", 200, 9)
    if large_model() != endless_model():
        table += _model_rows(large_model(), large_model_name(), 48, 3 if GPU_LAYERS else 7)
    return table


def _model_rows(path: Path, name: str, count: int, n: int) -> list[BenchmarkRow]:
    with asyncio.Runner() as runner:
        engine = LlamaEngine(path, placement=bench_placement(), threads=thread_counts(path))
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
        table += [_sampling_row(row) for row in table]
        table += _llama_bench_rows(partial(ours, SETTINGS["greedy"][0]), name, path, count, n)
        table += _prefill_rows(runner, engine, name, path, n)
        runner.run(engine.close())
    return table


def _sampling_row(row: BenchmarkRow) -> BenchmarkRow:
    """What of a token's time is not the bare loop's: sampling, and the way to the reader."""
    return BenchmarkRow(
        f"{row.name}, share of a token", "%", "", [100 * (1 - x) for x in row.ratios]
    )


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
    theirs = partial(_llama_bench_rate, path, "--n-gen", count)
    peer = "llama-bench, no sampling"
    return [compare(f"engine, {name}, greedy", "tokens/s", ours, peer, theirs, n)]


def _prefill_rows(
    runner: asyncio.Runner, engine: LlamaEngine, name: str, path: Path, n: int
) -> list[BenchmarkRow]:
    """Prompts whose tokens no side has read before, in chunks of as many tokens on each side."""
    starts = itertools.count(0, 7)

    def prompt() -> list[int]:
        return list(range(start := next(starts), start + PREFILL_TOKENS))

    def ours() -> float:
        return runner.run(_prefill_rate(engine, prompt()))

    def server_rate() -> float:
        answer = runner.run(server.complete(prompt(), 1, **GREEDY))
        return float(answer.events[-1][1]["timings"]["prompt_per_second"])

    title = f"engine, {name}, prefill of {PREFILL_TOKENS} tokens"
    try:
        with LlamaServer(path, options=("--ubatch-size", str(bench_placement().ubatch))) as server:
            theirs = partial(_llama_bench_rate, path, "--n-prompt", PREFILL_TOKENS)
            return [
                compare(title, "tokens/s", ours, "llama-bench", theirs, n),
                compare(title, "tokens/s", ours, "llama-server", server_rate, n),
            ]
    except BenchmarkSkippedError:
        return []


async def _stream_rate(engine: LlamaEngine, sampling: Sampling, count: int) -> float:
    """Tokens per second as the stream's reader gets them: from the end of prefill to the last token."""
    start = 0.0
    async for item in engine.generate(Request(PROMPT, count, sampling=sampling)):
        if isinstance(item, Prefill):
            start = time.perf_counter()
    return count / (time.perf_counter() - start)


async def _prefill_rate(engine: LlamaEngine, prompt: list[int]) -> float:
    """Prompt tokens per second, from the request to the first token."""
    start = time.perf_counter()
    stream = engine.generate(Request(prompt, 1, sampling=Sampling(temperature=0)))
    async for item in stream:
        if isinstance(item, Tokens):
            return len(prompt) / (time.perf_counter() - start)
    raise RuntimeError("no token was generated")


def _llama_bench_rate(path: Path, option: str, count: int) -> float:
    """Tokens per second that llama-bench reports; ``option``: ``--n-prompt`` or ``--n-gen``."""
    sizes = {"--n-prompt": 0, "--n-gen": 0, option: count}
    done = subprocess.run(
        [
            str(llama_program("llama-bench")), "--model", str(path), "--output", "json",
            *(text for size in sizes.items() for text in map(str, size)), "--repetitions", "1",
            "--threads", str(thread_counts(path).decode), "--n-gpu-layers", str(GPU_LAYERS),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)[0]["avg_ts"])
