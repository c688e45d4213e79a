"""Estimates from the size of its files what memory a model takes and how fast it runs here; the planner
(`agent/engine/placement/planner.py`) computes that from the header of a local file."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Literal

from agent.engine.placement.devices import free_memory, list_devices
from agent.engine.placement.planner import (
    GPU_RESERVE_BYTES,
    MEMORY_RESERVE_BYTES,
    PROGRAM_BYTES,
    usable_gpus,
)

SpeedClass = Literal["fast", "usable", "slow"]
"""fast: at least `FAST_TOKENS_PER_SECOND`; usable: at least `USABLE_TOKENS_PER_SECOND`."""
FAST_TOKENS_PER_SECOND, USABLE_TOKENS_PER_SECOND = 20, 4
CONTEXT_SHARE = 0.1
"""Memory of context and compute buffers, as a share of the weights."""
BANDWIDTH_SHARE = 0.5
"""The share of the memory's bandwidth at which weights are read while tokens are generated."""
ACTIVE_SHARES = {"gpt-oss-20b": 3.6 / 20.9, "gpt-oss-120b": 5.1 / 116.8}
"""Parameters that compute one token, of all (https://arxiv.org/abs/2508.10925, table 1)."""
PROBE_BYTES, PROBE_THREADS, PROBE_RUNS = 16 << 20, 4, 3
"""Bytes that each thread copies in a run; the best run counts."""
_EXPERTS = re.compile(r"(\d+(?:\.\d+)?)b-a(\d+(?:\.\d+)?)b", re.IGNORECASE)
"""Qwen3-30B-A3B: 3 of 30 billion parameters compute one token."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of this machine that decide whether a model runs on it; bytes."""

    memory: int
    """Free memory of the CPU."""
    gpu_memory: int
    """Free memory of the GPUs, without what they share with the CPU."""
    shares_memory: bool
    """Whether a GPU uses the CPU's memory."""
    bandwidth: float
    """Bytes that the CPU reads from its memory in a second."""

    @property
    def free(self) -> int:
        """Memory that a model may take, on the CPU and the GPUs together."""
        return max(self.memory - MEMORY_RESERVE_BYTES, 0) + self.gpu_memory


@dataclass(frozen=True, slots=True)
class FitEstimate:
    """Estimated memory and speed of a model on a machine."""

    memory: int
    """Bytes that it will want."""
    free: int
    """Bytes that it could get now."""
    speed: SpeedClass
    reason: str

    @property
    def fits(self) -> bool:
        return self.memory <= self.free

    def __str__(self) -> str:
        return f"{self.speed}: {self.reason}"


def inspect_machine() -> Machine:
    """Look at the memory and the devices of this machine; takes up to half a second, once."""
    gpus = usable_gpus(list_devices())
    own = sum(max(g.free - GPU_RESERVE_BYTES, 0) for g in gpus if not g.shares_memory)
    return Machine(free_memory(), own, any(g.shares_memory for g in gpus), measure_bandwidth())


def estimate_fit(name: str, size: int, machine: Machine) -> FitEstimate:
    needed = int(size * (1 + CONTEXT_SHARE))
    memory = needed + PROGRAM_BYTES

    def fit(speed: SpeedClass, reason: str) -> FitEstimate:
        return FitEstimate(memory, machine.free, speed, reason)

    if memory > machine.free:
        return fit("slow", "does not fit in memory")
    if needed <= machine.gpu_memory or machine.shares_memory:
        return fit("fast", "all of it on the GPU")
    where = "partly on the GPU" if machine.gpu_memory else "on the CPU"
    in_memory = size * active_share(name) * (1 - machine.gpu_memory / needed)
    tokens_per_second = BANDWIDTH_SHARE * machine.bandwidth / in_memory
    if tokens_per_second >= FAST_TOKENS_PER_SECOND:
        return fit("fast", where)
    return fit("usable" if tokens_per_second >= USABLE_TOKENS_PER_SECOND else "slow", where)


def active_share(name: str) -> float:
    """The share of its weights that a model reads for a token, by its name; 1 for a dense one."""
    for known, share in ACTIVE_SHARES.items():
        if known in name.lower():
            return share
    if (match := _EXPERTS.search(name)) is not None and float(match[1]) > 0:
        return min(float(match[2]) / float(match[1]), 1.0)
    return 1.0


def free_disk(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


@cache
def measure_bandwidth() -> float:
    """Bytes per second that a few threads read from memory and write to it, by copying arrays."""
    import numpy as np  # not needed before the first paint

    sources = [np.ones(PROBE_BYTES, np.uint8) for _ in range(PROBE_THREADS)]
    targets = [np.empty_like(source) for source in sources]
    best = 0.0
    with ThreadPoolExecutor(PROBE_THREADS) as pool:
        for _ in range(PROBE_RUNS):
            start = perf_counter()
            list(pool.map(np.copyto, targets, sources))
            best = max(best, 2 * PROBE_BYTES * PROBE_THREADS / (perf_counter() - start))
    return best
