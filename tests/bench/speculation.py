"""Group ``speculation``: decoding with drafts from what came before, beside plain decoding.

What is written is forced token by token, so that both sides write the same: a text that copies most of
the prompt, as an edit of a file does, and one that repeats nothing, where drafts must cost nothing.
llama-server cannot be forced: beside its own n-gram speculation both write freely what a prompt of
repeated ids begins. Then a draft model: the embedded model drafts for itself what it writes freely,
where all is right, and for the 1.4 GB model's forced text, where nothing is and it must be given up.
"""

import asyncio
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import Placement, Speculation
from agent.engine.protocol import Finished, Prefill, Request, Sampling
from tests.bench import BenchmarkRow, compare, progress
from tests.bench.llama_server import GREEDY, LlamaServer, thread_counts
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
        _llama_server_row(),
        _draft_row(endless_model(), "embedded, drafts for itself", 480, 9, free=True),
        _draft_row(large_model(), "1.4 GB MXFP4, drafts never right", 192, 5, goal="≥ 0.98"),
    ]


def _llama_server_row() -> BenchmarkRow:
    """The embedded model's free text, which repeats itself, beside llama-server's own n-grams."""
    path, count = endless_model(), 480
    prompt = random.Random(2).sample(range(1000, 190_000), 50) * (PROMPT_TOKENS // 50)
    with (
        asyncio.Runner() as runner,
        LlamaServer(path, options=("--spec-type", "ngram-map-k")) as server,
    ):
        engine = _load(runner, path, "lookup")

        def peer_rate() -> float:
            answer = runner.run(server.complete(prompt, count, **GREEDY))
            rate: float = answer.events[-1][1]["timings"]["predicted_per_second"]
            return rate

        ours = partial(_run_rate, runner, engine, prompt, None, count)
        name = "embedded, free text that repeats"
        row = compare(name, "tokens/s", ours, "llama-server, n-grams", peer_rate, 9, "≥ 1")
        runner.run(engine.close())
    return row


def _draft_row(
    path: Path, name: str, count: int, n: int, *, free: bool = False, goal: str = ""
) -> BenchmarkRow:
    """Decoding with the embedded model as the draft model. ``free``: what is written is not forced."""
    source = random.Random(1)
    ids = source.sample(range(1000, 190_000), PROMPT_TOKENS + count)
    prompt, text = ids[:PROMPT_TOKENS], None if free else ids[PROMPT_TOKENS:]
    with asyncio.Runner() as runner:
        engines = (_load(runner, path, "off", draft=endless_model()), _load(runner, path, "off"))
        ours, theirs = (
            partial(_run_rate, runner, engine, prompt, text, count) for engine in engines
        )
        row = compare(name, "tokens/s", ours, "the same without drafts", theirs, n, goal)
        for engine in engines:
            runner.run(engine.close())
    return row


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
            ours, theirs = (
                partial(_run_rate, runner, engine, prompt, text, count) for engine in engines
            )
            peer = "the same without drafts"
            table.append(compare(f"{name}, {what}", "tokens/s", ours, peer, theirs, n, goals[what]))
        for engine in engines:
            runner.run(engine.close())
    return table


def _load(
    runner: asyncio.Runner, path: Path, mode: Speculation, draft: Path | None = None
) -> LlamaEngine:
    placement = Placement(4096, speculation=mode)
    if draft is not None:
        placement = replace(placement, draft=placement)
    engine = LlamaEngine(path, placement=placement, threads=thread_counts(path), draft=draft)
    runner.run(engine.load())
    return engine


def _run_rate(
    runner: asyncio.Runner,
    engine: LlamaEngine,
    prompt: list[int],
    text: list[int] | None,
    count: int,
) -> float:
    return runner.run(_rate(engine, prompt, text, count))


async def _rate(
    engine: LlamaEngine, prompt: list[int], text: list[int] | None, count: int
) -> float:
    """Tokens per second from the end of prefill to the last token."""
    start = 0.0
    constraint = None if text is None else ForcedText(text)
    request = Request(prompt, count, sampling=Sampling(temperature=0), constraint=constraint)
    async for item in engine.generate(request):
        match item:
            case Prefill():
                start = time.perf_counter()
            case Finished(drafted_tokens=drafted, accepted_tokens=accepted) if drafted:
                progress(f"{accepted} of {drafted} drafted tokens accepted")
    return count / (time.perf_counter() - start)
