"""The numbers of threads that llama.cpp runs a model with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadCounts:
    """Numbers of threads for single tokens and for prompts (n_threads, n_threads_batch)."""

    decode: int
    prefill: int
