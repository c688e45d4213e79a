"""Measures how many threads a model runs best with; where cores are shared, guesses are wrong."""

from __future__ import annotations

import math
import os
import statistics
import time
from threading import Timer

from agent.engine.llama.batch import BatchSpan
from agent.engine.llama.model import LlamaModel
from agent.engine.llama.thread_counts import ThreadCounts

MAX_TIMED_RUNS = 6
"""Timed runs of one candidate, of which the first warms up; three are enough when they take
long."""
CANDIDATE_SECONDS = 0.05
"""Seconds for all runs of one candidate after which three runs are enough."""
MAX_TIME_RATIO = 0.9
"""More threads must take at most this share of the time to be worth their cores."""
TIMEOUT_IN_BEST_RUNS = 6.0
"""A candidate must make three runs within this many runs of the best one so far: on shared cores a
thread that waits for another can cost a hundred times its work."""
PREFILL_TOKENS = 32
"""Tokens of the batch that stands for a prompt."""
SLOW_TOKEN_SECONDS = 0.02
"""Seconds for one token from which batches are not measured: all cores prefill."""


def measure_threads(model: LlamaModel) -> ThreadCounts:
    """Run a few tokens with each likely number of threads; leaves the KV cache empty."""
    cores = _usable_cores()
    decode, seconds = _fastest(model, cores, [0])
    prefill = (
        _fastest(model, cores, [0] * PREFILL_TOKENS)[0] if seconds < SLOW_TOKEN_SECONDS else cores
    )
    model.clear()
    return ThreadCounts(decode, prefill)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fastest(model: LlamaModel, cores: int, ids: list[int]) -> tuple[int, float]:
    """Return the number of threads that decodes `ids` fastest, and the seconds that it takes.

    Half the cores are tried first (often one thread for each physical core), then all, then ever
    fewer until that gets slower.
    """
    best, least = cores, math.inf
    counts = [max(1, cores // 2), cores, *(cores >> n for n in range(2, cores.bit_length()))]
    for count in dict.fromkeys(counts):
        seconds = _median_seconds(
            model, count, ids, max(CANDIDATE_SECONDS, TIMEOUT_IN_BEST_RUNS * least)
        )
        if seconds < least * (MAX_TIME_RATIO if count > best else 1 / MAX_TIME_RATIO):
            best, least = count, seconds
        elif count < best:
            break
    return best, least


def _median_seconds(model: LlamaModel, threads: int, ids: list[int], limit: float) -> float:
    """Return the median seconds of decoding `ids`; infinite if three runs exceed `limit`
    seconds."""
    model.set_threads(threads, threads)
    timer = Timer(limit, model.abort) if limit < math.inf else None
    if timer:
        timer.start()
    times: list[float] = []
    while len(times) < 3 or (len(times) < MAX_TIMED_RUNS and sum(times) < CANDIDATE_SECONDS):
        model.clear()
        start = time.perf_counter()
        if model.decode([BatchSpan(0, ids, 0)]) != "done":
            break
        model.logits()
        times.append(time.perf_counter() - start)
    if timer:
        timer.cancel()
        timer.join()
    model.clear_abort()
    return statistics.median(times[1:]) if len(times) >= 3 else math.inf
