"""Measures how many threads a model runs best with; where cores are shared, guesses are wrong."""

import math
import statistics
import time
from threading import Timer

from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.llama.processor import performance_cores, usable_cores
from agent.engine.placement.placement import ThreadCounts

MAX_TIMED_RUNS = 6
"""Timed runs of one candidate, of which the first warms up; three if they take long."""
CANDIDATE_SECONDS = 0.05
"""Seconds for all runs of one candidate after which three runs are enough."""
MAX_TIME_RATIO = 0.9
"""More threads must take at most this share of the time to be worth their cores."""
TIMEOUT_IN_BEST_RUNS = 6.0
"""A candidate is dropped if its three runs take longer than this many runs of the best one: on shared
cores its threads wait for each other."""
PREFILL_TOKENS = 32
"""Tokens of the batch that stands for a prompt."""
SLOW_TOKEN_SECONDS = 0.02
"""Seconds for one token from which batches are not measured: all cores prefill by default."""
CONTENDED_RATIO = 1.3
"""Ratio of a token's time on all cores to the best from which other programs use the cores."""


def measure_threads(model: LlamaModel) -> ThreadCounts:
    """Run a few tokens with each likely number of threads; leaves the KV cache empty."""
    cores = usable_cores()
    seconds = _measure_counts(model, cores, [0])
    decode = _fastest(seconds)
    if seconds[decode] < SLOW_TOKEN_SECONDS:
        prefill = _fastest(_measure_counts(model, cores, [0] * PREFILL_TOKENS))
    else:
        prefill = cores if seconds[cores] < CONTENDED_RATIO * seconds[decode] else decode
    model.clear()
    return ThreadCounts(decode, prefill)


def _fastest(seconds: dict[int, float]) -> int:
    """The number of threads to take: more of them must be worth their cores."""
    best = min(seconds)
    for count in sorted(seconds):
        if seconds[count] < seconds[best] * MAX_TIME_RATIO:
            best = count
    return best


def _measure_counts(model: LlamaModel, cores: int, ids: list[int]) -> dict[int, float]:
    """Seconds for `ids` by number of threads; infinite where it takes too long. Performance cores are
    tried first, then half the cores, all, and ever fewer until that gets slower."""
    seconds: dict[int, float] = {}
    counts = [max(1, cores // 2), cores, *(cores >> n for n in range(2, cores.bit_length()))]
    if (fast := performance_cores()) is not None:
        counts.insert(0, fast)
    for count in dict.fromkeys(counts):
        least = min(seconds.values(), default=math.inf)
        limit = max(CANDIDATE_SECONDS, TIMEOUT_IN_BEST_RUNS * least)
        seconds[count] = _median_seconds(model, count, ids, limit)
        if count < cores // 2 and seconds[count] > least / MAX_TIME_RATIO:
            break
    return seconds


def _median_seconds(model: LlamaModel, threads: int, ids: list[int], limit: float) -> float:
    """Return the median seconds of decoding `ids`; infinite if three runs exceed `limit` seconds."""
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
