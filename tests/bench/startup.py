"""From nothing to a model that can answer."""

from __future__ import annotations

import asyncio
import time

from agent.engine.llama.engine import LlamaEngine
from tests.bench import Row, beside
from tests.bench.bare import Bare
from tests.bench.models import model


def rows() -> list[Row]:
    """Loading with everything measured and ready, beside llama.cpp's load and context alone."""
    return [beside("load", "loads/s", _ours, "bare load and context", _theirs)]


def _ours() -> float:
    async def load() -> float:
        engine = LlamaEngine(model())
        start = time.perf_counter()
        await engine.load()
        seconds = time.perf_counter() - start
        await engine.close()
        return seconds

    return 1 / asyncio.run(load())


def _theirs() -> float:
    start = time.perf_counter()
    bare = Bare(model())
    seconds = time.perf_counter() - start
    bare.close()
    return 1 / seconds
