"""How a model is laid out in memory: context, sequences, layers on a GPU, types of the KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KvType = Literal["f16", "q8_0", "q4_0"]


@dataclass(frozen=True, slots=True)
class Placement:
    """What is decided before a model is loaded."""

    context: int = 32_768
    """Tokens of one sequence; sequences share the memory."""
    sequences: int = 4
    """Callers whose generations run side by side."""
    step: int = 512
    """Tokens of one prefill chunk (ubatch)."""
    gpu_layers: int = 0
    """Layers on GPUs, counted from the last; the output counts as one more."""
    split: tuple[int, ...] = ()
    """Of those, how many on each GPU, in the backends' order; none: as llama.cpp divides them."""
    cpu_experts: int = 0
    """Layers, from the first, whose experts stay in the CPU's memory."""
    kv_type: KvType = "f16"
    flash_attention: bool | None = None
    """None: as llama.cpp finds best."""
    extra_buffers: bool | None = None
    """Repacked weights, half as fast again on CPUs; None: where they are sure to work."""
