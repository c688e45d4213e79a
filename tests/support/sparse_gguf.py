"""GGUFs of the real models' shapes whose weights are a hole in the file: gigabytes without disk use."""

import os
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

Q8, F32, MXFP4 = (
    gguf.GGMLQuantizationType.Q8_0,
    gguf.GGMLQuantizationType.F32,
    gguf.GGMLQuantizationType.MXFP4,
)


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model; by default those of gpt-oss-20b, but for the vocabulary."""

    name: str = "gpt-oss-20b"
    architecture: str = "gpt-oss"
    layers: int = 24
    experts: int = 32
    width: int = 2880
    heads: int = 64
    kv_heads: int = 8
    head: int = 64
    window: int = 128
    context: int = 131_072
    vocabulary: int = 512


SMALL = ModelShape()
LARGE = ModelShape(name="gpt-oss-120b", layers=36, experts=128)


def write_model(path: Path, shape: ModelShape = SMALL) -> Path:
    """Write a model's header and make the file as long as it says."""
    s = shape
    w = gguf.GGUFWriter(path, s.architecture)
    w.add_name(s.name)
    w.add_block_count(s.layers)
    w.add_context_length(s.context)
    w.add_embedding_length(s.width)
    w.add_feed_forward_length(s.width)
    w.add_expert_feed_forward_length(s.width)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head)
    w.add_value_length(s.head)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(s.window)
    w.add_expert_count(s.experts)
    w.add_expert_used_count(4)
    w.add_rope_freq_base(150_000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list([f"t{i}" for i in range(s.vocabulary)])
    w.add_token_types([gguf.TokenType.NORMAL] * s.vocabulary)
    w.add_token_merges(["t 0"])
    w.add_eos_token_id(0)
    total = 0

    def add(name: str, *dims: int, kind: gguf.GGMLQuantizationType = F32) -> None:
        nonlocal total
        block, size = gguf.GGML_QUANT_SIZES[kind]
        count = int(np.prod(dims)) // block * size
        raw = None if kind == F32 else kind
        w.add_tensor_info(name, dims, np.dtype(np.float32), count, raw_dtype=raw)
        total += (count + 31) // 32 * 32

    d, h = s.width, s.head
    add("token_embd.weight", s.vocabulary, d, kind=Q8)
    add("output.weight", s.vocabulary, d, kind=Q8)
    add("output_norm.weight", d)
    for layer in range(s.layers):
        p = f"blk.{layer}."
        add(p + "attn_norm.weight", d)
        add(p + "post_attention_norm.weight", d)
        for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            add(f"{p}attn_{name}.weight", heads * h, d, kind=Q8)
            add(f"{p}attn_{name}.bias", heads * h)
        add(p + "attn_output.weight", d, s.heads * h, kind=Q8)
        add(p + "attn_output.bias", d)
        add(p + "attn_sinks.weight", s.heads)
        add(p + "ffn_gate_inp.weight", s.experts, d)
        add(p + "ffn_gate_inp.bias", s.experts)
        for name in ("gate", "up", "down"):
            add(f"{p}ffn_{name}_exps.weight", s.experts, d, d, kind=MXFP4)
            add(f"{p}ffn_{name}_exps.bias", s.experts, d)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    os.truncate(path, (path.stat().st_size + 31) // 32 * 32 + total)
    return path
