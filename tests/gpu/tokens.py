"""Stage ``tokens``: whether the GPU's greedy tokens are the CPU's.

The CPU writes COUNT tokens. The GPU computes the same sequence, so that one difference does not make
all later ones, and names its own likeliest token at each place. Two kernels round differently: where
the CPU's two best tokens are nearly as likely, either is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agent.engine.llama.model import BatchSpan, LlamaModel, Logits
from agent.engine.placement.placement import KvType, Placement
from tests.bench import GPU_LAYERS, progress
from tests.bench.llama_server import thread_counts
from tests.bench.models import bench_placement, endless_model, large_model

PROMPT = list(range(1000, 1064))
COUNT = 96
TIE = 0.02
"""Tokens whose logits differ by less than this share of the logits' standard deviation are tied."""


@dataclass(frozen=True)
class Comparison:
    """Of COUNT greedy tokens: how many are the same, tied, or different."""

    equal: int
    ties: int
    different: int
    error: float
    """The largest difference of a logit, as a share of the logits' standard deviation."""


def continuation(
    path: Path, placement: Placement, ids: list[int]
) -> tuple[list[int], list[Logits]]:
    """Greedy tokens after PROMPT and the logits of each place; ``ids`` are written instead of them."""
    model = LlamaModel(path, placement, lambda done: True)
    threads = thread_counts(path)
    model.set_threads(threads.decode, threads.prefill)
    model.decode([BatchSpan(0, PROMPT, 0)])
    best, logits = [], []
    for place in range(COUNT):
        logits.append(model.logits().copy())
        best.append(int(logits[-1].argmax()))
        model.decode([BatchSpan(0, [ids[place] if ids else best[-1]], len(PROMPT) + place)])
    model.close()
    return best, logits


def compare(path: Path, ours: Placement, reference: Placement) -> Comparison:
    """Compare the tokens of a placement to those of another."""
    expected, right = continuation(path, reference, [])
    found, logits = continuation(path, ours, expected)
    equal = ties = 0
    for a, b, true in zip(found, expected, right, strict=True):
        equal += a == b
        ties += a != b and bool(true[b] - true[a] < TIE * true.std())
    error = max(float(np.abs(a - b).max() / b.std()) for a, b in zip(logits, right, strict=True))
    return Comparison(equal, ties, COUNT - equal - ties, error)


def rows() -> Iterator[str]:
    """The rows of the table."""
    kinds: tuple[KvType, ...] = ("f16", "q8_0")
    for path in (endless_model(), large_model())[: 2 if GPU_LAYERS else 1]:
        for kind in kinds:
            progress(f"tokens: {path.stem}, {kind} …")
            flash = True if kind != "f16" else None
            ours = replace(bench_placement(), kv_type=kind, flash_attention=flash)
            result = compare(path, ours, replace(ours, gpu_layers=0))
            yield (
                f"| {path.stem} | {kind} | {result.equal} | {result.ties} | {result.different} |"
                f" {result.error:.2g} |"
            )


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
