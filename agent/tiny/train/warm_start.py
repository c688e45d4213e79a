"""A model to train on from a shipped core: the inverse of export.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch

from agent.tiny import expand, vocabulary
from agent.tiny.train.model import ATTENTION_TENSORS, LOGIT_SCALE, Shape, Tiny, TransformerLayer


def markup(trained: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of the trained rows may change altogether: markup and punctuation, no words."""
    texts = vocabulary.tokens()
    return np.array(
        [
            i >= vocabulary.ORDINARY_TOKENS
            or not any(c > 127 or chr(c).isalnum() for c in texts[i])
            for i in trained
        ]
    )


def core_rows(core: Path) -> npt.NDArray[Any]:
    """The ids of a core's trained rows."""
    return expand.read_core(core.read_bytes())[1]["rows.ids"].astype(np.int64)


def load(core: Path) -> Tiny:
    """The model that a core holds."""
    ids = core_rows(core)
    model = Tiny(Shape(**expand.read_core(core.read_bytes())[0]), ids, markup(ids))
    fill(model, core)
    return model


def fill(model: Tiny, core: Path) -> None:
    """Gives `model` the weights of a core as it was rounded.

    The model may have more layers, wider experts and more trained rows than the core: further
    layers and units add nothing yet (their outputs begin at 0), further rows are the structured
    ones, so that the model begins as the core. Raises ValueError if the core is no part of the
    model in this sense.
    """
    shape, tensors = expand.read_core(core.read_bytes())
    core_shape = Shape(**shape)
    layers, width = core_shape.layers, core_shape.expert_dim
    ids = torch.from_numpy(tensors["rows.ids"].astype(np.int64))
    at = torch.searchsorted(model.trained, ids).clamp(max=len(model.trained) - 1)
    same_rows = bool((model.trained[at] == ids).all())
    grown = replace(core_shape, layers=model.shape.layers, expert_dim=model.shape.expert_dim)
    if grown != model.shape or not same_rows:
        raise ValueError(f"{core} has another shape or other rows than the model to fill")

    def array(name: str, *size: int) -> torch.Tensor:
        data = tensors[name]
        if data.dtype == np.uint8:
            data = gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q8_0)
        return torch.from_numpy(data.astype(np.float32)).reshape(size or data.shape)

    def rows_of(name: str) -> torch.Tensor:
        packed = gguf.quants.dequantize(tensors[name], gguf.GGMLQuantizationType.Q4_0)
        return torch.from_numpy(packed.astype(np.float32))

    with torch.no_grad():
        inputs, outputs = model.structured_rows()
        inputs[at], outputs[at] = rows_of("rows.in"), rows_of("rows.out")
        model.set_rows(inputs, outputs)
        model.output_norm.copy_(array("output_norm.weight") / LOGIT_SCALE)
        for index, block in enumerate(model.blocks):
            assert isinstance(block, TransformerLayer)
            if index >= layers:
                for matrix in (block.o, block.down, block.o_bias, block.down_bias):
                    matrix.zero_()
                continue
            name = f"blk.{index}."
            block.attn_norm.copy_(array(name + "attn_norm.weight"))
            for key, long in ATTENTION_TENSORS:
                getattr(block, key).copy_(array(f"{name}{long}.weight"))
                getattr(block, f"{key}_bias").copy_(array(f"{name}{long}.bias"))
            block.sinks.copy_(array(name + "attn_sinks.weight"))
            block.ffn_norm.copy_(array(name + "post_attention_norm.weight"))
            block.router.copy_(array(name + "ffn_gate_inp.weight"))
            block.router_bias.copy_(array(name + "ffn_gate_inp.bias"))
            for key, long in (("gate", "ffn_gate_exps"), ("up", "ffn_up_exps")):
                for tensor, part in (
                    (getattr(block, key), "weight"),
                    (getattr(block, f"{key}_bias"), "bias"),
                ):
                    experts = tensor.unflatten(0, (core_shape.experts, -1))
                    experts[:, :width] = array(f"{name}{long}.{part}").view_as(experts[:, :width])
            down = block.down.zero_().unflatten(1, (core_shape.experts, -1))
            down[:, :, :width] = array(name + "ffn_down_exps.weight").transpose(0, 1)
            block.down_bias.copy_(array(name + "ffn_down_exps.bias"))


def blend(model: Tiny, core: Path, share: float) -> None:
    """Moves `model` towards a core: `share` (0 … 1) of every weight is the core's then."""
    with torch.no_grad():
        mine = [p.clone() for p in model.parameters()]
        fill(model, core)
        for p, own in zip(model.parameters(), mine, strict=True):
            p.copy_((1 - share) * own + share * p)
