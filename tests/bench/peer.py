"""The peer: llama.cpp's own server with our threads and kernels, and its defaults otherwise."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.model import repacked
from agent.engine.llama.thread_tuning import Threads
from agent.engine.placement.placement import Placement
from tests.bench import CACHE, Skipped, progress
from tests.bench.build import program
from tests.bench.client import Answer, stream

START = 120.0
"""Seconds that a server may take until it answers."""
GREEDY: dict[str, Any] = {"temperature": 0.0}
BEST: dict[str, Any] = {"temperature": 0.0, "top_k": 1}
"""The same tokens; llama-server finds them a little faster when it is told so."""
UNCUT: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1}
"""From the whole distribution, as OpenAI recommends for GPT-OSS."""


@functools.cache
def threads(path: Path) -> Threads:
    """For all sides: as AGENT_BENCH_THREADS says, or as the engine finds best when it loads."""
    if count := os.environ.get("AGENT_BENCH_THREADS"):
        return Threads(int(count), int(count))

    async def measured() -> Threads:
        engine = LlamaEngine(path)
        await engine.load()
        await engine.close()
        assert engine.threads
        return engine.threads

    chosen = asyncio.run(measured())
    progress(f"{path.stem}: {chosen} for all sides")
    return chosen


class LlamaServer:
    """``with LlamaServer(path) as server``: a running one."""

    def __init__(
        self,
        path: Path | None,
        *,
        context: int = 4096,
        streams: int = 1,
        chosen: Threads | None = None,
        more: Sequence[str] = (),
    ) -> None:
        """`path`: None makes it a router, which `more` of its options tell about its models.
        `context`: tokens of each of the `streams`. `chosen`: threads; None: those of all sides."""
        if chosen is None:
            assert path is not None
            chosen = threads(path)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._command = [
            str(program("llama-server")), *(("--model", str(path)) if path else ()), *more,
            "--port", str(self.port),
            "--threads", str(chosen.decode), "--threads-batch", str(chosen.prefill),
            "--ctx-size", str(context * streams), "--parallel", str(streams),
            "--repack" if repacked(Placement()) else "--no-repack",
        ]  # fmt: skip
        self._log = CACHE / "llama-server.log"

    def __enter__(self) -> LlamaServer:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until = time.monotonic() + START
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > until:
                self._process.kill()
                raise Skipped(f"llama-server does not start; its last words are in {self._log}.")
            time.sleep(0.1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except OSError:
            return False

    async def complete(self, prompt: list[int], count: int, **more: Any) -> Answer:
        """Its cheapest way: the prompt as ids, the text as it is, exactly `count` tokens."""
        body = {"prompt": prompt, "n_predict": count}
        answer = await stream(self.port, "/completion", body | more)
        written = answer.events[-1][1]["tokens_predicted"]
        assert written == count, f"llama-server wrote {written} tokens, not {count}"
        return answer
