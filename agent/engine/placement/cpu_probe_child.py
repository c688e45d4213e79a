"""Runs a small model of random weights, ordinary and repacked, as a program that may die of it:
``python -m agent.engine.placement.cpu_probe_child TYPES`` (numbers of enum ggml_type). It prints
``{"stage": "plain", "prefill": …, "decode": …}``, then the same for ``repacked``."""

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

from agent.util.temporary_folders import process_folder

EMBEDDING_WIDTH, EXPERT_COUNT, VOCABULARY_SIZE = 512, 4, 512
PROMPT_TOKENS, DECODE_TOKENS, TIMED_RUNS = 128, 32, 8
MIN_CORRELATION = 0.99
"""Correlation of the logits of both kinds of weights, below which the repacked ones are wrong."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of the prompt and of the output."""

    prefill: float
    decode: float


def main(types: list[int]) -> None:
    import numpy as np

    if sys.platform != "win32":
        import resource

        # To die here is a result like any other: no core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        path = Path(folder, "probe.gguf")
        _write_model(path, types)
        plain = _ProbeModel(path, repacked=False)
        _print_stage("plain", plain.speed())
        repacked = _ProbeModel(path, repacked=True)
        repacked.speed()
        # In turns, and the best run counts: other programs run too.
        pairs = [(plain.speed(), repacked.speed()) for _ in range(TIMED_RUNS)]
        _print_stage("plain", _best(pair[0] for pair in pairs))
        if np.corrcoef(plain.logits(), repacked.logits())[0, 1] >= MIN_CORRELATION:
            _print_stage("repacked", _best(pair[1] for pair in pairs))


def _print_stage(stage: str, speed: Speed) -> None:
    print(json.dumps({"stage": stage, **asdict(speed)}), flush=True)


def _best(speeds: Iterable[Speed]) -> Speed:
    runs = list(speeds)
    return Speed(max(run.prefill for run in runs), max(run.decode for run in runs))


class _ProbeModel:
    """The probe's model with ordinary or repacked weights, on one thread."""

    def __init__(self, path: Path, *, repacked: bool) -> None:
        from agent.engine.llama.bindings import lib

        self._lib = lib
        params = lib.llama_model_default_params()
        params.n_gpu_layers, params.use_extra_bufts = 0, repacked
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        settings = lib.llama_context_default_params()
        settings.n_ctx = PROMPT_TOKENS + DECODE_TOKENS
        settings.n_batch = settings.n_ubatch = PROMPT_TOKENS
        settings.n_threads = settings.n_threads_batch = 1
        self._context = lib.llama_init_from_model(self._model, settings)
        self._memory = lib.llama_get_memory(self._context)

    def _decode(self, ids: list[int]) -> None:
        tokens = (self._lib.llama_token * len(ids))(*ids)
        if self._lib.llama_decode(self._context, self._lib.llama_batch_get_one(tokens, len(ids))):
            raise SystemExit(3)

    def speed(self) -> Speed:
        self._lib.llama_memory_clear(self._memory, False)
        start = perf_counter()
        self._decode([i * 7 % VOCABULARY_SIZE for i in range(PROMPT_TOKENS)])
        middle = perf_counter()
        for i in range(DECODE_TOKENS):
            self._decode([i])
        return Speed(PROMPT_TOKENS / (middle - start), DECODE_TOKENS / (perf_counter() - middle))

    def logits(self) -> Any:
        """Copy the logits of the last token, (VOCABULARY_SIZE,) float32."""
        import numpy as np

        pointer = self._lib.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, (VOCABULARY_SIZE,)).copy()


def _write_model(path: Path, types: list[int]) -> None:
    import gguf
    import numpy as np

    kinds = [kind for kind in types if kind and _can_quantise(kind)] or [0]
    random = np.random.default_rng(0)
    w = gguf.GGUFWriter(path, "gpt-oss")
    w.add_block_count(len(kinds))
    w.add_context_length(4096)
    w.add_embedding_length(EMBEDDING_WIDTH)
    w.add_feed_forward_length(EMBEDDING_WIDTH)
    w.add_expert_feed_forward_length(EMBEDDING_WIDTH)
    w.add_head_count(8)
    w.add_head_count_kv(8)
    w.add_key_length(EMBEDDING_WIDTH // 8)
    w.add_value_length(EMBEDDING_WIDTH // 8)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(128)
    w.add_expert_count(EXPERT_COUNT)
    w.add_expert_used_count(2)
    w.add_rope_freq_base(150_000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list([f"t{i}" for i in range(VOCABULARY_SIZE)])
    w.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY_SIZE)
    w.add_token_merges(["t 0"])
    w.add_eos_token_id(0)

    def add(name: str, *dims: int, kind: int = 0) -> None:
        values = random.standard_normal(dims, dtype=np.float32) * np.float32(dims[-1] ** -0.5)
        data = _quantise(values, kind) if kind else values
        raw = gguf.GGMLQuantizationType(kind) if kind else None
        w.add_tensor(name, data, raw_dtype=raw)

    d = EMBEDDING_WIDTH
    add("token_embd.weight", VOCABULARY_SIZE, d)
    add("output.weight", VOCABULARY_SIZE, d)
    add("output_norm.weight", d)
    for layer, kind in enumerate(kinds):
        p = f"blk.{layer}."
        add(p + "attn_norm.weight", d)
        add(p + "post_attention_norm.weight", d)
        for name in ("q", "k", "v", "output"):
            add(f"{p}attn_{name}.weight", d, d, kind=kind)
            add(f"{p}attn_{name}.bias", d)
        add(p + "attn_sinks.weight", 8)
        add(p + "ffn_gate_inp.weight", EXPERT_COUNT, d)
        add(p + "ffn_gate_inp.bias", EXPERT_COUNT)
        for name in ("gate", "up", "down"):
            add(f"{p}ffn_{name}_exps.weight", EXPERT_COUNT, d, d, kind=kind)
            add(f"{p}ffn_{name}_exps.bias", EXPERT_COUNT, d)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _can_quantise(kind: int) -> bool:
    from agent.engine.placement.devices import ggml_function

    return not ggml_function("ggml_quantize_requires_imatrix", ctypes.c_bool, ctypes.c_int)(kind)


def _quantise(values: Any, kind: int) -> Any:
    """Quantise float32 (…, row) to uint8 (…, bytes of a row) of a ggml type."""
    import numpy as np

    from agent.engine.placement.devices import ggml_function

    row = values.shape[-1]
    size = ggml_function("ggml_row_size", ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)(kind, row)
    out = np.empty((*values.shape[:-1], size), np.uint8)
    number, address = ctypes.c_int64, ctypes.c_void_p
    quantise = ggml_function(
        "ggml_quantize_chunk",
        *(ctypes.c_size_t, ctypes.c_int, address, address, number, number, number, address),
    )
    quantise(kind, values.ctypes.data, out.ctypes.data, 0, values.size // row, row, None)
    return out


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
