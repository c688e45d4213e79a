"""Group ``startup``: loading a model until it can answer."""

import asyncio
import time

from agent.engine.llama.engine import LlamaEngine
from tests.bench import BenchmarkRow, compare
from tests.bench.bare_llama import BareLlama
from tests.bench.models import embedded_model


def rows() -> list[BenchmarkRow]:
    """The engine's load, which includes tuning threads, beside llama.cpp's load and context alone."""
    return [
        compare(
            "load",
            "loads/s",
            _engine_loads_per_second,
            "bare load and context",
            _bare_loads_per_second,
        )
    ]


def _engine_loads_per_second() -> float:
    async def load() -> float:
        engine = LlamaEngine(embedded_model())
        start = time.perf_counter()
        await engine.load()
        seconds = time.perf_counter() - start
        await engine.close()
        return seconds

    return 1 / asyncio.run(load())


def _bare_loads_per_second() -> float:
    start = time.perf_counter()
    bare = BareLlama(embedded_model())
    seconds = time.perf_counter() - start
    bare.close()
    return 1 / seconds
