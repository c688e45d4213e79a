"""The numbers of threads that llama.cpp runs a model with."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadCounts:
    """Numbers of threads for single tokens and for prompts (n_threads, n_threads_batch)."""

    decode: int
    prefill: int


def usable_cores() -> int:
    """The processor's cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
