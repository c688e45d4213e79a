"""Small GGUFs with random weights, for tests that need llama.cpp but no sense in its output."""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np


@dataclass(frozen=True)
class RandomShape:
    """Sizes of a random model; the vocabulary has no special tokens."""

    vocabulary: int = 512
    width: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    experts: int = 4
    experts_used: int = 2
    window: int = 32
    context: int = 4096
    seed: int = 0


def write_model(
    path: Path, shape: RandomShape | None = None, architecture: str = "gpt-oss"
) -> Path:
    """Write a GPT-OSS model of `shape` to `path` and return `path`."""
    s = shape or RandomShape()
    random = np.random.default_rng(s.seed)
    w = gguf.GGUFWriter(path, architecture)
    w.add_name("random")
    w.add_block_count(s.layers)
    w.add_context_length(s.context)
    w.add_embedding_length(s.width)
    w.add_feed_forward_length(s.width)
    w.add_expert_feed_forward_length(s.width)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head_width)
    w.add_value_length(s.head_width)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(s.window)
    w.add_expert_count(s.experts)
    w.add_expert_used_count(s.experts_used)
    w.add_rope_freq_base(150_000.0)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list([f"t{i}" for i in range(s.vocabulary)])
    w.add_token_types([gguf.TokenType.NORMAL] * s.vocabulary)
    w.add_token_merges(["t 0"])
    w.add_eos_token_id(0)

    def add(name: str, *dims: int, scale: float = 0.0, dtype: type = np.float32) -> None:
        scale = scale or dims[-1] ** -0.5
        values = random.standard_normal(dims, dtype=np.float32) * np.float32(scale)
        w.add_tensor(name, values.astype(dtype))

    def add_unit_weights(name: str, *dims: int) -> None:
        w.add_tensor(name, np.ones(dims, dtype=np.float32))

    d, e, h = s.width, s.experts, s.head_width
    add("token_embd.weight", s.vocabulary, d, scale=1.0, dtype=np.float16)
    add("output.weight", s.vocabulary, d, scale=2.0 * d**-0.5, dtype=np.float16)
    add_unit_weights("output_norm.weight", d)
    for layer in range(s.layers):
        p = f"blk.{layer}."
        add_unit_weights(p + "attn_norm.weight", d)
        add_unit_weights(p + "post_attention_norm.weight", d)
        for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            add(f"{p}attn_{name}.weight", heads * h, d, scale=2.0 * d**-0.5)
            add(f"{p}attn_{name}.bias", heads * h, scale=0.1)
        add(p + "attn_output.weight", d, s.heads * h, scale=2.0 * (s.heads * h) ** -0.5)
        add(p + "attn_output.bias", d, scale=0.1)
        add(p + "attn_sinks.weight", s.heads, scale=0.1)
        add(p + "ffn_gate_inp.weight", e, d)
        add(p + "ffn_gate_inp.bias", e, scale=0.1)
        for name in ("gate", "up", "down"):
            add(f"{p}ffn_{name}_exps.weight", e, d, d)
            add(f"{p}ffn_{name}_exps.bias", e, d, scale=0.1)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def write_llama_model(path: Path, shape: RandomShape | None = None) -> Path:
    """Write a Llama model, without sliding layers, to `path` and return `path`."""
    s = shape or RandomShape()
    random = np.random.default_rng(s.seed)
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(s.layers)
    w.add_context_length(s.context)
    w.add_embedding_length(s.width)
    w.add_feed_forward_length(s.width)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_rope_dimension_count(s.width // s.heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list([f"t{i}" for i in range(s.vocabulary)])
    w.add_token_types([gguf.TokenType.NORMAL] * s.vocabulary)
    w.add_token_merges(["t 0"])
    w.add_eos_token_id(0)

    def add(name: str, *dims: int) -> None:
        values = random.standard_normal(dims, dtype=np.float32) * np.float32(2 * dims[-1] ** -0.5)
        w.add_tensor(f"{name}.weight", values)

    d, kv = s.width, s.width // s.heads * s.kv_heads
    add("token_embd", s.vocabulary, d)
    add("output", s.vocabulary, d)
    w.add_tensor("output_norm.weight", np.ones(d, dtype=np.float32))
    for layer in range(s.layers):
        p = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"{p}{name}.weight", np.ones(d, dtype=np.float32))
        for name, rows in (("q", d), ("k", kv), ("v", kv), ("output", d)):
            add(f"{p}attn_{name}", rows, d)
        for name in ("gate", "up", "down"):
            add(f"{p}ffn_{name}", d, d)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
