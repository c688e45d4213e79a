"""A little model of random weights, run with ordinary weights and then with repacked ones.

A program of its own
(``python -m agent.engine.placement.cpu_probe_child TYPES``), because some builds of llama.cpp die of
it: it prints a line of JSON for each stage that it lived through. TYPES: ggml's numbers.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

WIDTH, EXPERTS, VOCABULARY = 512, 4, 512
PROMPT, TOKENS, RUNS = 128, 32, 8
ALIKE = 0.99
"""Correlation of the scores of both kinds of weights, below which the faster ones are wrong."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second."""

    prefill: float
    decode: float


def main(types: list[int]) -> None:
    """Try ordinary weights, then repacked ones; a line for each."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(
            resource.RLIMIT_CORE, (0, 0)
        )  # to die of it is an answer, not an accident
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probe.gguf")
        _write(path, types)
        plain = _Little(path, repacked=False)
        _tell("plain", plain.speed())
        repacked = _Little(path, repacked=True)
        repacked.speed()
        # By turns, and the best counts: other programs run too.
        pairs = [(plain.speed(), repacked.speed()) for _ in range(RUNS)]
        _tell("plain", _best(pair[0] for pair in pairs))
        if _alike(plain.scores(), repacked.scores()):
            _tell("repacked", _best(pair[1] for pair in pairs))


def _tell(stage: str, speed: Speed) -> None:
    print(json.dumps({"stage": stage, **asdict(speed)}), flush=True)


def _best(speeds: Iterable[Speed]) -> Speed:
    found = list(speeds)
    return Speed(max(s.prefill for s in found), max(s.decode for s in found))


def _alike(a: Any, b: Any) -> bool:
    import numpy as np

    return bool(np.corrcoef(a, b)[0, 1] >= ALIKE)


class _Little:
    """The probe's model, loaded one way or the other, on one thread."""

    def __init__(self, path: Path, *, repacked: bool) -> None:
        from agent.engine.llama.bindings import lib

        self._lib = lib
        params = lib.llama_model_default_params()
        params.n_gpu_layers, params.use_extra_bufts = 0, repacked
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        settings = lib.llama_context_default_params()
        settings.n_ctx = PROMPT + TOKENS
        settings.n_batch = settings.n_ubatch = PROMPT
        settings.n_threads = settings.n_threads_batch = 1
        self._context = lib.llama_init_from_model(self._model, settings)
        self._memory = lib.llama_get_memory(self._context)

    def _feed(self, ids: list[int]) -> None:
        tokens = (self._lib.llama_token * len(ids))(*ids)
        if self._lib.llama_decode(self._context, self._lib.llama_batch_get_one(tokens, len(ids))):
            raise SystemExit(3)

    def speed(self) -> Speed:
        """One prompt and a few tokens."""
        self._lib.llama_memory_clear(self._memory, False)
        start = perf_counter()
        self._feed([i * 7 % VOCABULARY for i in range(PROMPT)])
        middle = perf_counter()
        for i in range(TOKENS):
            self._feed([i])
        return Speed(PROMPT / (middle - start), TOKENS / (perf_counter() - middle))

    def scores(self) -> Any:
        """Of the last token, (VOCABULARY,) float32."""
        import numpy as np

        pointer = self._lib.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, (VOCABULARY,)).copy()


def _write(path: Path, types: list[int]) -> None:
    """A little gpt-oss of random weights, with a layer of each type."""
    import gguf
    import numpy as np

    kinds = [kind for kind in types if kind and _can_make(kind)] or [0]
    random = np.random.default_rng(0)
    w = gguf.GGUFWriter(path, "gpt-oss")
    w.add_block_count(len(kinds))
    w.add_context_length(4096)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(WIDTH)
    w.add_expert_feed_forward_length(WIDTH)
    w.add_head_count(8)
    w.add_head_count_kv(8)
    w.add_key_length(WIDTH // 8)
    w.add_value_length(WIDTH // 8)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(128)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(2)
    w.add_rope_freq_base(150_000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    w.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
    w.add_token_merges(["t 0"])
    w.add_eos_token_id(0)

    def add(name: str, *dims: int, kind: int = 0) -> None:
        values = random.standard_normal(dims, dtype=np.float32) * np.float32(dims[-1] ** -0.5)
        data = _quantised(values, kind) if kind else values
        raw = gguf.GGMLQuantizationType(kind) if kind else None
        w.add_tensor(name, data, raw_dtype=raw)

    d = WIDTH
    add("token_embd.weight", VOCABULARY, d)
    add("output.weight", VOCABULARY, d)
    add("output_norm.weight", d)
    for layer, kind in enumerate(kinds):
        p = f"blk.{layer}."
        add(p + "attn_norm.weight", d)
        add(p + "post_attention_norm.weight", d)
        for name in ("q", "k", "v", "output"):
            add(f"{p}attn_{name}.weight", d, d, kind=kind)
            add(f"{p}attn_{name}.bias", d)
        add(p + "attn_sinks.weight", 8)
        add(p + "ffn_gate_inp.weight", EXPERTS, d)
        add(p + "ffn_gate_inp.bias", EXPERTS)
        for name in ("gate", "up", "down"):
            add(f"{p}ffn_{name}_exps.weight", EXPERTS, d, d, kind=kind)
            add(f"{p}ffn_{name}_exps.bias", EXPERTS, d)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _can_make(kind: int) -> bool:
    """ggml can write this type without knowing what the weights are for."""
    from agent.engine.placement.devices import ggml

    return not ggml("ggml_quantize_requires_imatrix", ctypes.c_bool, ctypes.c_int)(kind)


def _quantised(values: Any, kind: int) -> Any:
    """float32 (…, row) as bytes (…, bytes of a row) of ggml's type."""
    import numpy as np

    from agent.engine.placement.devices import ggml

    row = values.shape[-1]
    size = ggml("ggml_row_size", ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)(kind, row)
    out = np.empty((*values.shape[:-1], size), np.uint8)
    number, address = ctypes.c_int64, ctypes.c_void_p
    quantise = ggml(
        "ggml_quantize_chunk",
        *(ctypes.c_size_t, ctypes.c_int, address, address, number, number, number, address),
    )
    quantise(kind, values.ctypes.data, out.ctypes.data, 0, values.size // row, row, None)
    return out


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
