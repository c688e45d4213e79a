"""The memory layout and the threads of a model, as llama.cpp's parameters of the same meaning
(https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

KvType = Literal["f16", "q8_0", "q4_0", "f8"]
"""ggml type of the KV cache; ``f8``: OCP's FP8, E4M3 (llama.cpp 1.0)."""
Speculation = Literal["off", "lookup"]
"""Source of drafted tokens, of which one step verifies several: none, or the text before."""
MAX_DRAFT_TOKENS = 16
"""Drafted tokens of a step, of all generations together."""
MAX_FORCED_TOKENS = 32
"""Given tokens of a step (`agent.engine.forced_tokens`), of all generations together."""
DEFAULT_SEQUENCES, MAX_SEQUENCES = 4, 64
"""Generations that run side by side; llama.cpp could have 256 (LLAMA_MAX_SEQ)."""


@dataclass(frozen=True, slots=True)
class ThreadCounts:
    """Numbers of threads for single tokens and for prompts (n_threads, n_threads_batch)."""

    decode: int
    prefill: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Everything that is decided before a model is loaded."""

    context: int = 32_768
    """Tokens that one sequence may have (n_ctx); all sequences share these cells."""
    sequences: int = DEFAULT_SEQUENCES
    """Generations that run side by side (n_seq_max)."""
    ubatch: int = 512
    """Tokens of one prefill chunk (n_ubatch)."""
    gpu_layers: int = 0
    """Layers on GPUs, counted from the last (n_gpu_layers); the output counts as one more."""
    tensor_split: tuple[int, ...] = ()
    """Number of those layers on each GPU, in order (tensor_split); empty: llama.cpp divides them."""
    cpu_experts: int = 0
    """Layers, from the first, whose experts stay in the CPU's memory (--n-cpu-moe)."""
    expert_cache: int = field(default=0, repr=False)
    """Bytes on each GPU for experts that are in the CPU's memory (moe_cache_size, llama.cpp 1.0)."""
    kv_type: KvType = "f16"
    flash_attention: bool | None = None
    """None: llama.cpp decides."""
    extra_buffers: bool | None = None
    """Repack weights for the CPU's matrix instructions (use_extra_bufts); None: if known to work."""
    speculation: Speculation = field(default="off", repr=False)
    """It changes no state of the KV cache; nor does `draft`."""
    draft: Placement | None = field(default=None, repr=False)
    """The draft model's placement; None without one."""

    @property
    def outputs(self) -> int:
        """Tokens of a step whose logits are computed (n_outputs_max)."""
        return self.kv_sequences + max(MAX_DRAFT_TOKENS, MAX_FORCED_TOKENS)

    @property
    def kv_sequences(self) -> int:
        """Sequences of the KV cache, with one for segments on disk and auxiliary prompts."""
        return self.sequences + 1
