"""A GGUF of GPT-OSS's shape with random weights and the whole vocabulary, a tenth of the 20b's size."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from agent.tiny import gguf as gguf_file
from agent.tiny import vocabulary

NAME = "large-1"
"""To be changed with what is written."""
WIDTH, LAYERS, EXPERTS, USED = 1024, 16, 32, 4
HEADS, KV_HEADS, HEAD_WIDTH, WINDOW = 16, 4, 64, 128
PEAKED = 5.0
"""Standard deviation of the scores, in nats: a few tokens have most of the mass, as in a trained
model."""
_Q8, _MXFP4 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.MXFP4


class _Large:
    """Writes the large model; layers share their random bytes, so that it takes seconds."""

    def __init__(self, path: Path) -> None:
        self.random = np.random.default_rng(0)
        self.writer = gguf.GGUFWriter(path, "gpt-oss")
        self.experts = {name: self._mxfp4(EXPERTS, WIDTH, WIDTH) for name in ("gate", "up", "down")}

    def _mxfp4(self, *shape: int) -> npt.NDArray[np.uint8]:
        """Blocks of an exponent and 32 values of 4 bits; weights of about 1/√width."""
        blocks = self.random.integers(0, 256, (*shape[:-1], shape[-1] // 32, 17), np.uint8)
        blocks[..., 0] = 127 - round(np.log2(shape[-1] ** 0.5 * 3))
        return blocks.reshape(*shape[:-1], -1)

    def q8(self, name: str, rows: int, columns: int, scale: float) -> npt.NDArray[np.uint8]:
        """A tensor in Q8_0 with the given standard deviation, still to be changed."""
        blocks = self.random.integers(0, 256, (rows, columns // 32, 34), np.uint8)
        step = np.array([scale / 74], np.float16)  # of whole random bytes it is 74
        blocks[..., :2] = step.view(np.uint8)
        data = blocks.reshape(rows, -1)
        self.writer.add_tensor(name, data, raw_dtype=_Q8)
        return data

    def f32(self, name: str, *shape: int, scale: float = 0.1, mean: float = 0.0) -> None:
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        self.writer.add_tensor(name, values + np.float32(mean))

    def layer(self, number: int) -> None:
        p, wide, narrow = f"blk.{number}", HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
        self.f32(f"{p}.attn_norm.weight", WIDTH, mean=1.0)
        self.f32(f"{p}.post_attention_norm.weight", WIDTH, mean=1.0)
        for name, rows, columns in (
            ("q", wide, WIDTH), ("k", narrow, WIDTH), ("v", narrow, WIDTH), ("output", WIDTH, wide)
        ):  # fmt: skip
            self.q8(f"{p}.attn_{name}.weight", rows, columns, columns**-0.5)
            self.f32(f"{p}.attn_{name}.bias", rows)
        self.f32(f"{p}.attn_sinks.weight", HEADS)
        self.f32(f"{p}.ffn_gate_inp.weight", EXPERTS, WIDTH, scale=WIDTH**-0.5)
        self.f32(f"{p}.ffn_gate_inp.bias", EXPERTS)
        for name, data in self.experts.items():
            self.writer.add_tensor(f"{p}.ffn_{name}_exps.weight", data, raw_dtype=_MXFP4)
            self.f32(f"{p}.ffn_{name}_exps.bias", EXPERTS, WIDTH)


def write(path: Path) -> None:
    """Experts in MXFP4, all else in Q8_0; special tokens always score 0."""
    large = _Large(path)
    w = large.writer
    _metadata(w)
    gguf_file.tokenizer(w)
    large.q8("token_embd.weight", vocabulary.SIZE, WIDTH, 1.0)
    output = large.q8("output.weight", vocabulary.SIZE, WIDTH, PEAKED * WIDTH**-0.5)
    output[vocabulary.ORDINARY :] = 0
    large.f32("output_norm.weight", WIDTH, mean=1.0)
    for number in range(LAYERS):
        large.layer(number)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _metadata(w: gguf.GGUFWriter) -> None:
    w.add_name(NAME)
    w.add_block_count(LAYERS)
    w.add_context_length(131_072)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(WIDTH)
    w.add_expert_feed_forward_length(WIDTH)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_WIDTH)
    w.add_value_length(HEAD_WIDTH)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(WINDOW)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(USED)
    w.add_rope_freq_base(150_000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(32.0)
    w.add_rope_scaling_orig_ctx_len(4096)
    w.add_vocab_size(vocabulary.SIZE)
