"""Runs a small model of random weights, ordinary and repacked, as a program that may die of it:
``python -m agent.engine.placement.cpu_probe_child TYPES`` (numbers of enum ggml_type). It prints
``{"stage": "plain", "prefill": …, "decode": …}``, then the same for ``repacked``."""

import ctypes
import json
import resource
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import gguf
import numpy as np

from agent.engine.llama.bindings import ggml_function
from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.placement.cpu_probe import Speed
from agent.engine.placement.placement import Placement
from agent.util.temporary_folders import process_folder

EMBEDDING_WIDTH, EXPERT_COUNT, VOCABULARY_SIZE = 512, 4, 512
PROMPT_TOKENS, DECODE_TOKENS, TIMED_RUNS = 128, 32, 8
MIN_CORRELATION = 0.99
"""Correlation of the logits of both kinds of weights, below which the repacked ones are wrong."""


def main(types: list[int]) -> None:
    # To die here is a result like any other: no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        path = Path(folder, "probe.gguf")
        _write_model(path, types)
        plain = _load(path, repacked=False)
        _print_stage("plain", _measure(plain))
        repacked = _load(path, repacked=True)
        _measure(repacked)
        # In turns, and the best run counts: other programs run too.
        pairs = [(_measure(plain), _measure(repacked)) for _ in range(TIMED_RUNS)]
        _print_stage("plain", _best(pair[0] for pair in pairs))
        if np.corrcoef(plain.logits(), repacked.logits())[0, 1] >= MIN_CORRELATION:
            _print_stage("repacked", _best(pair[1] for pair in pairs))


def _print_stage(stage: str, speed: Speed) -> None:
    print(json.dumps({"stage": stage, **asdict(speed)}), flush=True)


def _best(speeds: Iterable[Speed]) -> Speed:
    runs = list(speeds)
    return Speed(max(run.prefill for run in runs), max(run.decode for run in runs))


def _load(path: Path, *, repacked: bool) -> LlamaModel:
    placement = Placement(
        PROMPT_TOKENS + DECODE_TOKENS, sequences=1, ubatch=PROMPT_TOKENS, extra_buffers=repacked
    )
    model = LlamaModel(path, placement, lambda done: True)
    model.set_threads(1, 1)
    return model


def _measure(model: LlamaModel) -> Speed:
    model.clear()
    start = perf_counter()
    prompt = [i * 7 % VOCABULARY_SIZE for i in range(PROMPT_TOKENS)]
    outcomes = {model.decode([BatchSpan(0, prompt, 0)])}
    middle = perf_counter()
    for i in range(DECODE_TOKENS):
        outcomes.add(model.decode([BatchSpan(0, [i], PROMPT_TOKENS + i)]))
    if outcomes != {"done"}:
        raise SystemExit(3)
    return Speed(PROMPT_TOKENS / (middle - start), DECODE_TOKENS / (perf_counter() - middle))


def _write_model(path: Path, types: list[int]) -> None:
    needs_matrix = ggml_function("ggml_quantize_requires_imatrix", ctypes.c_bool, ctypes.c_int)
    kinds = [kind for kind in types if kind and not needs_matrix(kind)] or [0]
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
        w.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType(kind) if kind else None)

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


def _quantise(values: Any, kind: int) -> Any:
    """Quantise float32 (…, row) to uint8 (…, bytes of a row) of a ggml type."""
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
