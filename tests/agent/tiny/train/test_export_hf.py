"""The embedded model as a Hugging Face checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from agent.formats.harmony.encoding import load_encoding
from agent.tiny import expand, vocabulary
from agent.tiny.train import export_hf

pytestmark = pytest.mark.slow
TEXTS = (
    "hello world", "Grüße, 你好! 1234567", "def f(x):\n    return x**2\n\n",
    "don't WE'LL  ok\t\r\n x", " 🙂🙃 aé", "'s'S  \u00a0x\u2028y", "<|start|>x<|end|>", "",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    export_hf.checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Path) -> Tokenizer:
    return Tokenizer.from_file(str(checkpoint / "tokenizer.json"))


def header_of(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its data begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)), 8 + size


@pytest.mark.long
def test_texts_have_our_tokens(tokenizer: Tokenizer) -> None:
    encoding = load_encoding(vocabulary.ranks)
    for text in TEXTS:
        expected = encoding.encode(text, allowed_special="all")
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected
    assert tokenizer.get_vocab_size() == vocabulary.VOCABULARY_SIZE


@pytest.mark.long
@given(st.text(max_size=200))
def test_any_text_has_our_tokens(tokenizer: Tokenizer, text: str) -> None:
    expected = load_encoding(vocabulary.ranks).encode(text, allowed_special="all")
    assert tokenizer.encode(text, add_special_tokens=False).ids == expected


@pytest.mark.long
def test_weights_have_the_names_and_shapes_of_transformers(checkpoint: Path) -> None:
    header, begin = header_of(checkpoint / "model.safetensors")
    config = json.loads((checkpoint / "config.json").read_text())
    layers, dim, width = (
        config[key] for key in ("num_hidden_layers", "hidden_size", "intermediate_size")
    )
    experts, heads = config["num_local_experts"], config["num_attention_heads"]
    inside = heads * config["head_dim"]
    layer = {
        "input_layernorm.weight": [dim],
        "post_attention_layernorm.weight": [dim],
        "self_attn.sinks": [heads],
        **{f"self_attn.{x}_proj.weight": [inside, dim] for x in "qkv"},
        **{f"self_attn.{x}_proj.bias": [inside] for x in "qkv"},
        "self_attn.o_proj.weight": [dim, inside],
        "self_attn.o_proj.bias": [dim],
        "mlp.router.weight": [experts, dim],
        "mlp.router.bias": [experts],
        "mlp.experts.gate_up_proj": [experts, dim, 2 * width],
        "mlp.experts.gate_up_proj_bias": [experts, 2 * width],
        "mlp.experts.down_proj": [experts, width, dim],
        "mlp.experts.down_proj_bias": [experts, dim],
    }
    expected = {
        "model.embed_tokens.weight": [vocabulary.VOCABULARY_SIZE, dim],
        "lm_head.weight": [vocabulary.VOCABULARY_SIZE, dim],
        "model.norm.weight": [dim],
    } | {f"model.layers.{n}.{name}": size for n in range(layers) for name, size in layer.items()}
    del header["__metadata__"]
    assert {name: entry["shape"] for name, entry in header.items()} == expected
    sizes = [(checkpoint / "model.safetensors").stat().st_size - begin]
    assert max(entry["data_offsets"][1] for entry in header.values()) == sizes[0]


@pytest.mark.long
def test_gate_and_up_projection_alternate(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    header, begin = header_of(path)
    entry = header["model.layers.0.mlp.experts.gate_up_proj_bias"]
    data = np.fromfile(
        path, "<f4", int(np.prod(entry["shape"])), offset=begin + entry["data_offsets"][0]
    ).reshape(entry["shape"])
    _, core = expand.read_core(expand.CORE.read_bytes())
    assert np.array_equal(data[:, ::2], core["blk.0.ffn_gate_exps.bias"])
    assert np.array_equal(data[:, 1::2], core["blk.0.ffn_up_exps.bias"])
