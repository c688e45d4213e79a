"""How many threads a model runs best with: measured, because shared cores make guesses wrong."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass

from agent.engine.native import Model

SAMPLES = 5
SECONDS = 0.05
"""Time for one candidate; two runs are made in any case."""
GAIN = 0.9
"""More threads must take at most this share of the time to be worth their cores."""
BATCH = 32
SLOW = 0.02
"""Seconds a token from which batches are not tried as well."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads for single tokens and for prompts."""

    decode: int
    prefill: int


def measure(model: Model) -> Threads:
    """Run a few tokens with each likely number of threads; leaves the model's memory empty."""
    cores = _cores()
    counts = sorted({cores, *(2**i for i in range(cores.bit_length()) if 2**i <= cores)})
    decode, seconds = _best(model, counts, [0])
    prefill = cores
    if seconds < SLOW:
        prefill, _ = _best(model, [n for n in counts if n >= decode], [0] * BATCH)
    return Threads(decode, prefill)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _best(model: Model, counts: list[int], ids: list[int]) -> tuple[int, float]:
    """The fastest of `counts`, from the largest down until it gets much slower; and its time."""
    best, least = counts[-1], float("inf")
    for count in reversed(counts):
        seconds = _time(model, count, ids)
        if seconds > 1.5 * least:
            break
        if seconds * GAIN <= least:
            best, least = count, min(seconds, least)
    return best, least


def _time(model: Model, threads: int, ids: list[int]) -> float:
    """Median seconds of feeding `ids`, after one run to warm up."""
    model.set_threads(threads, threads)
    times: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(times) < 3 or (len(times) <= SAMPLES and time.perf_counter() < until):
        model.clear()
        start = time.perf_counter()
        model.decode(ids, 0)
        model.logits()
        times.append(time.perf_counter() - start)
    model.clear()
    return statistics.median(times[1:])
