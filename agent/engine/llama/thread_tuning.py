"""How many threads a model runs best with: measured, because shared cores make guesses wrong."""

from __future__ import annotations

import math
import os
import statistics
import time
from dataclasses import dataclass
from threading import Timer

from agent.engine.llama.batch import Piece
from agent.engine.llama.model import Model

RUNS = 6
"""Of one candidate, the first to warm up; three when they take long."""
SECONDS = 0.05
"""What is long for all runs of a candidate."""
GAIN = 0.9
"""More threads must take at most this share of the time to be worth their cores."""
HOPELESS = 6.0
"""Times one run of the best candidate so far, within which another must have made three: on
shared cores a thread that waits for another can cost a hundred times its work."""
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
    decode, seconds = _best(model, cores, [0])
    prefill = _best(model, cores, [0] * BATCH)[0] if seconds < SLOW else cores
    model.clear()
    return Threads(decode, prefill)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _best(model: Model, cores: int, ids: list[int]) -> tuple[int, float]:
    """The number of threads that feeds `ids` fastest, and its seconds.

    Half the cores come first (often one thread for each real one), then all, then ever fewer
    until that gets slower.
    """
    best, least = cores, math.inf
    counts = [max(1, cores // 2), cores, *(cores >> n for n in range(2, cores.bit_length()))]
    for count in dict.fromkeys(counts):
        seconds = _time(model, count, ids, max(SECONDS, HOPELESS * least))
        if seconds < least * (GAIN if count > best else 1 / GAIN):
            best, least = count, seconds
        elif count < best:
            break
    return best, least


def _time(model: Model, threads: int, ids: list[int], limit: float) -> float:
    """Median seconds of feeding `ids`; infinite when three runs do not fit into `limit`."""
    model.set_threads(threads, threads)
    alarm = Timer(limit, model.stop) if limit < math.inf else None
    if alarm:
        alarm.start()
    times: list[float] = []
    while len(times) < 3 or (len(times) < RUNS and sum(times) < SECONDS):
        model.clear()
        start = time.perf_counter()
        if model.decode([Piece(0, ids, 0)]) != "done":
            break
        model.logits()
        times.append(time.perf_counter() - start)
    if alarm:
        alarm.cancel()
        alarm.join()
    model.go_on()
    return statistics.median(times[1:]) if len(times) >= 3 else math.inf
