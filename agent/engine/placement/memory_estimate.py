"""How large the parts of a model are, as its GGUF header tells: what decides where they can lie."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from agent.engine.placement import gguf_header
from agent.engine.placement.gguf_header import Outline, Tensor, Value

PERIODS = {"gpt-oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4}
"""Every so many layers one sees everything and the others slide, where the file does not say."""
WIDTH = 2
"""Bytes of one number in an f16 KV cache."""
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERT = re.compile(r"ffn_.*_exps\.")
_SPLIT = re.compile(r"(.+)-00001-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class Layer:
    """One block; sizes in bytes."""

    weights: int
    """Without its experts."""
    experts: int
    cell: int
    """Of one token in its f16 KV cache."""
    window: int
    """Tokens that it looks back; 0: all."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """One model; sizes in bytes."""

    architecture: str
    layers: tuple[Layer, ...]
    embedding: int
    """Always in the CPU's memory."""
    output: int
    """What follows the last layer."""
    tied: bool
    """The embedding is the output's matrix too."""
    trained: int
    """Tokens of the longest context that it was trained for."""
    activations: int
    """Of one token of a prefill chunk, while it is computed."""
    vocabulary: int
    types: frozenset[int]
    """ggml types of its matrices."""

    @property
    def weights(self) -> int:
        """All that is read from the file."""
        layers = sum(layer.weights + layer.experts for layer in self.layers)
        return self.embedding + self.output + layers


def of(path: Path) -> Sizes:
    """The sizes of a model's file, or of all files of a split one. Raises EngineError."""
    first = gguf_header.outline(path)
    tensors = list(first.tensors)
    for part in parts(path)[1:]:
        tensors += gguf_header.outline(part).tensors
    return _sizes(first, tensors)


def parts(path: Path) -> list[Path]:
    """All files of a model whose first is this one."""
    if (split := _SPLIT.fullmatch(path.name)) is None:
        return [path]
    stem, count = split[1], int(split[2])
    return [path.with_name(f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]


def _sizes(outline: Outline, tensors: list[Tensor]) -> Sizes:
    architecture = str(outline.values.get("general.architecture", ""))
    values = {
        key.removeprefix(f"{architecture}."): value
        for key, value in outline.values.items()
        if key.startswith(f"{architecture}.")
    }
    weights: defaultdict[int, int] = defaultdict(int)
    experts: defaultdict[int, int] = defaultdict(int)
    other: defaultdict[str, int] = defaultdict(int)
    for tensor in tensors:
        if (layer := _LAYER.match(tensor.name)) is None:
            other["embedding" if tensor.name.startswith("token_embd") else "output"] += tensor.size
        elif _EXPERT.match(layer[2]):
            experts[int(layer[1])] += tensor.size
        else:
            weights[int(layer[1])] += tensor.size
    count = _number(values, "block_count", max(weights, default=-1) + 1)
    return Sizes(
        architecture=architecture,
        layers=tuple(
            Layer(weights[i], experts[i], _cell(values, i), _window(values, architecture, i))
            for i in range(count)
        ),
        embedding=other["embedding"],
        output=other["output"],
        tied=not any(tensor.name == "output.weight" for tensor in tensors),
        trained=_number(values, "context_length", 4096),
        activations=_activations(values),
        vocabulary=max((t.shape[1] for t in tensors if t.name == "token_embd.weight"), default=0),
        types=frozenset(t.kind for t in tensors if len(t.shape) > 1),
    )


def _number(values: dict[str, Value], key: str, default: int, layer: int = 0) -> int:
    """A number that may differ between layers."""
    match values.get(key):
        case list(each):
            value = each[layer] if layer < len(each) else None
        case value:
            pass
    return int(value) if isinstance(value, int | float) else default


def _cell(values: dict[str, Value], layer: int) -> int:
    heads = max(1, _number(values, "attention.head_count", 1, layer))
    head = _number(values, "embedding_length", 0) // heads
    width = _number(values, "attention.key_length", head)
    width += _number(values, "attention.value_length", head)
    return WIDTH * _number(values, "attention.head_count_kv", heads, layer) * width


def _window(values: dict[str, Value], architecture: str, layer: int) -> int:
    window = _number(values, "attention.sliding_window", 0)
    match values.get("attention.sliding_window_pattern"):
        case list(flags):
            slides = layer < len(flags) and bool(flags[layer])
        case int(period) if period > 0:
            slides = layer % period < period - 1
        case _:
            period = PERIODS.get(architecture, 1)
            slides = layer % period < period - 1
    return window if slides else 0


def _activations(values: dict[str, Value]) -> int:
    """Four buffers of floats, each as wide as all experts in use, or as the widest dense layer."""
    experts = _number(values, "expert_used_count", 1) or 1
    wide = experts * _number(values, "expert_feed_forward_length", 0)
    wide = max(wide, _number(values, "feed_forward_length", 0))
    return 4 * 4 * (wide + _number(values, "embedding_length", 0))
