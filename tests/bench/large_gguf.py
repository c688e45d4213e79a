"""Writes a GGUF of GPT-OSS's architecture with random weights, a tenth of gpt-oss-20b's size."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from agent.tiny import gguf as gguf_file
from agent.tiny import vocabulary

MODEL_NAME = "large-1"
"""Name of the cached file; change it with anything that is written into it."""
WIDTH, LAYERS, EXPERTS, EXPERTS_USED = 1024, 16, 32, 4
HEADS, KV_HEADS, HEAD_WIDTH, WINDOW = 16, 4, 64, 128
SCORE_STDDEV_NATS = 5.0
"""Standard deviation of the logits, in nats: a few tokens have most of the probability, as in a trained
model."""
_Q8, _MXFP4 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.MXFP4


class _RandomModelWriter:
    """Adds random tensors to a GGUF; the experts of all layers share their bytes, which saves time."""

    def __init__(self, path: Path) -> None:
        self.random = np.random.default_rng(0)
        self.writer = gguf.GGUFWriter(path, "gpt-oss")
        self.experts = {
            name: self._random_mxfp4(EXPERTS, WIDTH, WIDTH) for name in ("gate", "up", "down")
        }

    def _random_mxfp4(self, *shape: int) -> npt.NDArray[np.uint8]:
        """Random MXFP4 blocks (an exponent and 32 values of 4 bits each), weights of about 1/√width."""
        blocks = self.random.integers(0, 256, (*shape[:-1], shape[-1] // 32, 17), np.uint8)
        blocks[..., 0] = 127 - round(np.log2(shape[-1] ** 0.5 * 3))
        return blocks.reshape(*shape[:-1], -1)

    def add_q8(self, name: str, rows: int, columns: int, scale: float) -> npt.NDArray[np.uint8]:
        """Add a Q8_0 tensor with ``scale`` as standard deviation; its bytes may still be changed."""
        blocks = self.random.integers(0, 256, (rows, columns // 32, 34), np.uint8)
        step = np.array(
            [scale / 74], np.float16
        )  # random signed bytes have a standard deviation of 74
        blocks[..., :2] = step.view(np.uint8)
        data = blocks.reshape(rows, -1)
        self.writer.add_tensor(name, data, raw_dtype=_Q8)
        return data

    def add_f32(self, name: str, *shape: int, scale: float = 0.1, mean: float = 0.0) -> None:
        """Add a normally distributed F32 tensor."""
        values = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        self.writer.add_tensor(name, values + np.float32(mean))

    def add_layer(self, number: int) -> None:
        """Add the tensors of a layer."""
        p, wide, narrow = f"blk.{number}", HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
        self.add_f32(f"{p}.attn_norm.weight", WIDTH, mean=1.0)
        self.add_f32(f"{p}.post_attention_norm.weight", WIDTH, mean=1.0)
        for name, rows, columns in (
            ("q", wide, WIDTH), ("k", narrow, WIDTH), ("v", narrow, WIDTH), ("output", WIDTH, wide)
        ):  # fmt: skip
            self.add_q8(f"{p}.attn_{name}.weight", rows, columns, columns**-0.5)
            self.add_f32(f"{p}.attn_{name}.bias", rows)
        self.add_f32(f"{p}.attn_sinks.weight", HEADS)
        self.add_f32(f"{p}.ffn_gate_inp.weight", EXPERTS, WIDTH, scale=WIDTH**-0.5)
        self.add_f32(f"{p}.ffn_gate_inp.bias", EXPERTS)
        for name, data in self.experts.items():
            self.writer.add_tensor(f"{p}.ffn_{name}_exps.weight", data, raw_dtype=_MXFP4)
            self.add_f32(f"{p}.ffn_{name}_exps.bias", EXPERTS, WIDTH)


def write_model(path: Path) -> None:
    """Write the model: experts in MXFP4, other matrices in Q8_0; special tokens always score 0."""
    model = _RandomModelWriter(path)
    w = model.writer
    _add_metadata(w)
    gguf_file.add_tokenizer(w)
    model.add_q8("token_embd.weight", vocabulary.VOCABULARY_SIZE, WIDTH, 1.0)
    output = model.add_q8(
        "output.weight", vocabulary.VOCABULARY_SIZE, WIDTH, SCORE_STDDEV_NATS * WIDTH**-0.5
    )
    output[vocabulary.ORDINARY_TOKENS :] = 0
    model.add_f32("output_norm.weight", WIDTH, mean=1.0)
    for number in range(LAYERS):
        model.add_layer(number)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _add_metadata(w: gguf.GGUFWriter) -> None:
    w.add_name(MODEL_NAME)
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
    w.add_expert_used_count(EXPERTS_USED)
    w.add_rope_freq_base(150_000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(32.0)
    w.add_rope_scaling_orig_ctx_len(4096)
    w.add_vocab_size(vocabulary.VOCABULARY_SIZE)
