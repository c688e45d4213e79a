"""Group ``speculation``: decoding with drafts from what came before, beside plain decoding.

What is written is forced token by token, so that both sides write the same: a text that copies most of
the prompt, as an edit of a file does, and one that repeats nothing, where drafts must cost nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement, Speculation
from agent.engine.protocol import Finished, Prefill, Request, Sampling
from tests.bench import BenchmarkRow, compare, progress
from tests.bench.llama_server import thread_counts
from tests.bench.models import endless_model, large_model

PROMPT_TOKENS = 600
EDIT_INTERVAL_TOKENS = 60
"""Copied tokens between two that differ from the prompt."""


class ForcedText:
    """A constraint that allows one text."""

    pending: None = None

    def __init__(self, ids: list[int]) -> None:
        self._ids, self._count = ids, 0

    def accept(self, token: int) -> bool:
        if token != self._ids[self._count]:
            return False
        self._count += 1
        return True

    def allowed(self) -> npt.NDArray[np.intp]:
        return np.array(self._ids[self._count : self._count + 1], np.intp)


def rows() -> list[BenchmarkRow]:
    """Two rows for each model: a copy with edits, and a text that repeats nothing."""
    return [
        *_model_rows(endless_model(), "embedded", 480, 9),
        *_model_rows(large_model(), "1.4 GB MXFP4", 96, 5),
    ]


def _model_rows(path: Path, name: str, count: int, n: int) -> list[BenchmarkRow]:
    source = random.Random(0)
    ids = source.sample(range(1000, 190_000), PROMPT_TOKENS + 2 * count)
    prompt, unique = ids[:PROMPT_TOKENS], ids[PROMPT_TOKENS:]
    edited = [
        unique[count + at] if at % EDIT_INTERVAL_TOKENS == 0 else prompt[at + 10]
        for at in range(count)
    ]
    texts = {"copy with edits": edited, "nothing repeated": unique[:count]}
    goals = {"copy with edits": "", "nothing repeated": "≥ 0.98"}
    with asyncio.Runner() as runner:
        engines = _load(runner, path, "lookup"), _load(runner, path, "off")
        table = []
        for what, text in texts.items():
            ours, theirs = (partial(_run_rate, runner, engine, prompt, text) for engine in engines)
            peer = "the same without drafts"
            table.append(compare(f"{name}, {what}", "tokens/s", ours, peer, theirs, n, goals[what]))
        for engine in engines:
            runner.run(engine.close())
    return table


def _load(runner: asyncio.Runner, path: Path, mode: Speculation) -> LlamaEngine:
    engine = LlamaEngine(
        path, placement=Placement(4096, speculation=mode), threads=thread_counts(path)
    )
    runner.run(engine.load())
    return engine


def _run_rate(
    runner: asyncio.Runner, engine: LlamaEngine, prompt: list[int], text: list[int]
) -> float:
    return runner.run(_rate(engine, prompt, text))


async def _rate(engine: LlamaEngine, prompt: list[int], text: list[int]) -> float:
    """Tokens per second from the end of prefill to the last token."""
    start = 0.0
    request = Request(
        prompt, len(text), sampling=Sampling(temperature=0), constraint=ForcedText(text)
    )
    async for item in engine.generate(request):
        match item:
            case Prefill():
                start = time.perf_counter()
            case Finished(drafted_tokens=drafted, accepted_tokens=accepted) if drafted:
                progress(f"{accepted} of {drafted} drafted tokens accepted")
    return len(text) / (time.perf_counter() - start)
