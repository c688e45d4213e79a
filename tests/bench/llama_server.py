"""A peer: llama.cpp's own server with our thread counts and CPU kernels, and its defaults otherwise."""

import asyncio
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import uses_repacked_weights
from agent.engine.placement.placement import ThreadCounts
from tests.bench import GPU_LAYERS, progress
from tests.bench.build_llama import llama_program
from tests.bench.models import bench_placement
from tests.bench.peer_server import PeerServer
from tests.bench.stream_client import TimedStream, post_stream

GREEDY: dict[str, Any] = {"temperature": 0.0}
GREEDY_TOP_K: dict[str, Any] = {"temperature": 0.0, "top_k": 1}
"""Generates the same tokens as GREEDY; llama-server samples them a little faster this way."""
FULL_DISTRIBUTION: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "seed": 1,
}
"""Samples from the whole distribution, as OpenAI recommends for GPT-OSS."""


@functools.cache
def thread_counts(path: Path) -> ThreadCounts:
    """The thread counts of all sides: AGENT_BENCH_THREADS, or what the engine measures as best."""
    if count := os.environ.get("AGENT_BENCH_THREADS"):
        return ThreadCounts(int(count), int(count))

    async def measure() -> ThreadCounts:
        engine = LlamaEngine(path, placement=bench_placement())
        await engine.load()
        await engine.close()
        assert engine.threads
        return engine.threads

    counts = asyncio.run(measure())
    progress(f"{path.stem}: {counts} for all sides")
    return counts


class LlamaServer(PeerServer):
    """Runs llama-server: ``with LlamaServer(path) as server``."""

    name = "llama-server"

    def __init__(
        self,
        path: Path | None,
        *,
        context: int = 4096,
        streams: int = 1,
        threads: ThreadCounts | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """`path`: the model; None for a router, whose models are in `options` of its command line.

        `context`: tokens of each of the `streams`. `threads`: None: those of `thread_counts`.
        """
        if threads is None:
            assert path is not None
            threads = thread_counts(path)
        super().__init__()
        self._command = [
            str(llama_program("llama-server")), *(("--model", str(path)) if path else ()), *options,
            "--port", str(self.port),
            "--threads", str(threads.decode), "--threads-batch", str(threads.prefill),
            "--ctx-size", str(context * streams), "--parallel", str(streams),
            "--n-gpu-layers", str(GPU_LAYERS), "--flash-attn", "auto",
            "--repack" if uses_repacked_weights(bench_placement()) else "--no-repack",
        ]  # fmt: skip

    def command(self) -> Sequence[str]:
        """Its command line."""
        return self._command

    async def complete(self, prompt: list[int], count: int, **fields: Any) -> TimedStream:
        """Request exactly `count` tokens from /completion; `fields`: others of its body."""
        body = {"prompt": prompt, "n_predict": count}
        answer = await post_stream(self.port, "/completion", body | fields)
        written = answer.events[-1][1]["tokens_predicted"]
        assert written == count, f"llama-server wrote {written} tokens, not {count}"
        return answer
