"""Reads the sizes of a model's parts from its GGUF header, by the keys of
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and the tensors' names of
https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py."""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.placement.gguf_header import GgufOutline, MetadataValue, TensorInfo

SLIDING_PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4}
"""By architecture: the period in layers; the last one of each has full attention, the others slide. For
files without the key (set_swa_pattern in
https://github.com/ggml-org/llama.cpp/tree/master/src/models)."""
F16_BYTES = 2
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERT = re.compile(r"ffn_.*_exps\.")
_SPLIT = re.compile(r"(.+)-00001-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of one transformer block, in bytes."""

    weights: int
    """All tensors but those of its experts."""
    experts: int
    kv_bytes_per_token: int
    """Bytes of one token in the block's f16 KV cache."""
    sliding_window: int
    """Tokens that its attention looks back; 0: all."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Sizes of one model, in bytes."""

    architecture: str
    layers: tuple[LayerSizes, ...]
    embedding: int
    """The token embeddings, which are always in the CPU's memory."""
    output: int
    """All tensors after the last layer."""
    tied_output: bool
    """Whether the embedding is the output's matrix too."""
    trained_context: int
    """Tokens of the longest context that the model was trained for."""
    activation_bytes: int
    """Bytes of the buffers that compute one token of a prefill chunk."""
    vocabulary_size: int
    weight_types: frozenset[int]
    """ggml types of the model's matrices."""

    @property
    def weights(self) -> int:
        layers = sum(layer.weights + layer.experts for layer in self.layers)
        return self.embedding + self.output + layers


def read_model_sizes(path: Path) -> ModelSizes:
    first = gguf_header.read_outline(path)
    tensors = list(first.tensors)
    for part in split_files(path)[1:]:
        tensors += gguf_header.read_outline(part).tensors
    return _model_sizes(first, tensors)


def split_files(path: Path) -> list[Path]:
    """List all files of a model whose first is ``path``: NAME-00001-of-00003.gguf, and so on."""
    if (split := _SPLIT.fullmatch(path.name)) is None:
        return [path]
    stem, count = split[1], int(split[2])
    return [path.with_name(f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]


def _model_sizes(outline: GgufOutline, tensors: list[TensorInfo]) -> ModelSizes:
    architecture = str(outline.metadata.get("general.architecture", ""))
    prefix, items = f"{architecture}.", outline.metadata.items()
    values = {key.removeprefix(prefix): value for key, value in items if key.startswith(prefix)}
    weights: defaultdict[int, int] = defaultdict(int)
    experts: defaultdict[int, int] = defaultdict(int)
    rest: defaultdict[str, int] = defaultdict(int)
    for tensor in tensors:
        if (layer := _LAYER.match(tensor.name)) is None:
            rest["embedding" if tensor.name.startswith("token_embd") else "output"] += tensor.size
        elif _EXPERT.match(layer[2]):
            experts[int(layer[1])] += tensor.size
        else:
            weights[int(layer[1])] += tensor.size
    layers = []
    for i in range(_number(values, "block_count", max(weights, default=-1) + 1)):
        kv_bytes, window = _kv_bytes_per_token(values, i), _sliding_window(values, architecture, i)
        layers.append(LayerSizes(weights[i], experts[i], kv_bytes, window))
    rows = (tensor.shape[1] for tensor in tensors if tensor.name == "token_embd.weight")
    return ModelSizes(
        architecture=architecture,
        layers=tuple(layers),
        embedding=rest["embedding"],
        output=rest["output"],
        tied_output=not any(tensor.name == "output.weight" for tensor in tensors),
        trained_context=_number(values, "context_length", 4096),
        activation_bytes=_activation_bytes(values),
        vocabulary_size=max(rows, default=0),
        weight_types=frozenset(t.ggml_type for t in tensors if len(t.shape) > 1),
    )


def _number(values: dict[str, MetadataValue], key: str, default: int, layer: int = 0) -> int:
    """Return the number of a key; an array has one for each layer."""
    match values.get(key):
        case list(by_layer):
            value = by_layer[layer] if layer < len(by_layer) else None
        case value:
            pass
    return int(value) if isinstance(value, int | float) else default


def _kv_bytes_per_token(values: dict[str, MetadataValue], layer: int) -> int:
    """Compute the bytes of one token's keys and values, of all KV heads of a layer, in f16."""
    heads = max(1, _number(values, "attention.head_count", 1, layer))
    head_width = _number(values, "embedding_length", 0) // heads
    width = _number(values, "attention.key_length", head_width)
    width += _number(values, "attention.value_length", head_width)
    return F16_BYTES * _number(values, "attention.head_count_kv", heads, layer) * width


def _sliding_window(values: dict[str, MetadataValue], architecture: str, layer: int) -> int:
    window = _number(values, "attention.sliding_window", 0)
    match values.get("attention.sliding_window_pattern"):
        case list(flags):
            slides = layer < len(flags) and bool(flags[layer])
        case int(period) if period > 0:
            slides = layer % period < period - 1
        case _:
            period = SLIDING_PERIODS.get(architecture, 1)
            slides = layer % period < period - 1
    return window if slides else 0


def _activation_bytes(values: dict[str, MetadataValue]) -> int:
    """Estimate four float32 buffers, each as wide as the experts in use or the widest dense layer."""
    experts = _number(values, "expert_used_count", 1) or 1
    width = experts * _number(values, "expert_feed_forward_length", 0)
    width = max(width, _number(values, "feed_forward_length", 0))
    return 4 * 4 * (width + _number(values, "embedding_length", 0))
