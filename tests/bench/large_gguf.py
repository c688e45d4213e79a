"""Writes GGUFs of GPT-OSS's architecture with random weights: gpt-oss-20b's shape, or a tenth of it."""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from agent.tiny import gguf as gguf_file
from agent.tiny import vocabulary


@dataclass(frozen=True)
class ModelShape:
    """The dimensions of a model."""

    name: str
    """Name of the cached file; change it with anything that is written into it."""
    width: int
    layers: int
    heads: int
    kv_heads: int
    experts: int = 32


LARGE = ModelShape("large-1", width=1024, layers=16, heads=16, kv_heads=4)
GPT_OSS_20B = ModelShape("shape-20b-1", width=2880, layers=24, heads=64, kv_heads=8)
"""That of openai/gpt-oss-20b."""
EXPERTS_USED, HEAD_WIDTH, WINDOW = 4, 64, 128
SCORE_STDDEV_NATS = 5.0
"""Standard deviation of the logits, in nats: a few tokens have most of the probability, as in a trained
model."""
_Q8, _MXFP4 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.MXFP4


class _RandomModelWriter:
    """Adds random tensors to a GGUF; the experts of all layers share their bytes, which saves time."""

    def __init__(self, path: Path, shape: ModelShape) -> None:
        self.shape = shape
        self.random = np.random.default_rng(0)
        self.writer = gguf.GGUFWriter(path, "gpt-oss")
        self.experts = {
            name: self._random_mxfp4(shape.experts, shape.width, shape.width)
            for name in ("gate", "up", "down")
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
        p, width, experts = f"blk.{number}", self.shape.width, self.shape.experts
        wide, narrow = self.shape.heads * HEAD_WIDTH, self.shape.kv_heads * HEAD_WIDTH
        self.add_f32(f"{p}.attn_norm.weight", width, mean=1.0)
        self.add_f32(f"{p}.post_attention_norm.weight", width, mean=1.0)
        for name, rows, columns in (
            ("q", wide, width), ("k", narrow, width), ("v", narrow, width), ("output", width, wide)
        ):  # fmt: skip
            self.add_q8(f"{p}.attn_{name}.weight", rows, columns, columns**-0.5)
            self.add_f32(f"{p}.attn_{name}.bias", rows)
        self.add_f32(f"{p}.attn_sinks.weight", self.shape.heads)
        self.add_f32(f"{p}.ffn_gate_inp.weight", experts, width, scale=width**-0.5)
        self.add_f32(f"{p}.ffn_gate_inp.bias", experts)
        for name, data in self.experts.items():
            self.writer.add_tensor(f"{p}.ffn_{name}_exps.weight", data, raw_dtype=_MXFP4)
            self.add_f32(f"{p}.ffn_{name}_exps.bias", experts, width)


def write_model(path: Path, shape: ModelShape) -> None:
    """Write a model: experts in MXFP4, other matrices in Q8_0; special tokens always score 0."""
    model = _RandomModelWriter(path, shape)
    w = model.writer
    _add_metadata(w, shape)
    gguf_file.add_tokenizer(w)
    model.add_q8("token_embd.weight", vocabulary.VOCABULARY_SIZE, shape.width, 1.0)
    output = model.add_q8(
        "output.weight",
        vocabulary.VOCABULARY_SIZE,
        shape.width,
        SCORE_STDDEV_NATS * shape.width**-0.5,
    )
    output[vocabulary.ORDINARY_TOKENS :] = 0
    model.add_f32("output_norm.weight", shape.width, mean=1.0)
    for number in range(shape.layers):
        model.add_layer(number)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _add_metadata(w: gguf.GGUFWriter, shape: ModelShape) -> None:
    w.add_name(shape.name)
    w.add_block_count(shape.layers)
    w.add_context_length(131_072)
    w.add_embedding_length(shape.width)
    w.add_feed_forward_length(shape.width)
    w.add_expert_feed_forward_length(shape.width)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_key_length(HEAD_WIDTH)
    w.add_value_length(HEAD_WIDTH)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_sliding_window(WINDOW)
    w.add_expert_count(shape.experts)
    w.add_expert_used_count(EXPERTS_USED)
    w.add_rope_freq_base(150_000.0)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(32.0)
    w.add_rope_scaling_orig_ctx_len(4096)
    w.add_vocab_size(vocabulary.VOCABULARY_SIZE)
