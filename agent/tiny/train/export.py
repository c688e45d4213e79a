"""The shipped core from a checkpoint.

python -m agent.tiny.train.export RUN [agent/tiny/core.xz] [--blend FILE --share 0.3]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agent.tiny import expand
from agent.tiny.train import packing, warm_start
from agent.tiny.train.model import ATTENTION_TENSORS, LOGIT_SCALE, Shape, Tiny, TransformerLayer


def tensors(model: Tiny) -> dict[str, npt.NDArray[Any]]:
    """The core's tensors by their names in the file; Q8_0 data are bytes."""
    shape = model.shape
    e, f = shape.experts, shape.expert_dim

    def array(x: torch.Tensor) -> npt.NDArray[np.float32]:
        return np.ascontiguousarray(x.detach().float().cpu().numpy())

    out: dict[str, npt.NDArray[Any]] = {
        "rows.ids": model.trained.cpu().numpy().astype(np.int32),
        "rows.in": packing.quantise_q4(array(model.input_rows())),
        "rows.out": packing.quantise_q4(array(model.output_rows())),
        "output_norm.weight": array(model.output_norm) * LOGIT_SCALE,
    }
    for index, block in enumerate(model.blocks):
        assert isinstance(block, TransformerLayer)
        name = f"blk.{index}."
        out[name + "attn_norm.weight"] = array(block.attn_norm)
        for key, long in ATTENTION_TENSORS:
            out[f"{name}{long}.weight"] = array(getattr(block, key)).astype(np.float16)
            out[f"{name}{long}.bias"] = array(getattr(block, f"{key}_bias"))
        out[name + "attn_sinks.weight"] = array(block.sinks)
        out[name + "post_attention_norm.weight"] = array(block.ffn_norm)
        out[name + "ffn_gate_inp.weight"] = array(block.router)
        out[name + "ffn_gate_inp.bias"] = array(block.router_bias)
        for key, long in (("gate", "ffn_gate_exps"), ("up", "ffn_up_exps")):
            matrix = array(getattr(block, key)).reshape(e, f, shape.dim)
            out[f"{name}{long}.weight"] = packing.quantise_q8(matrix)
            out[f"{name}{long}.bias"] = array(getattr(block, f"{key}_bias")).reshape(e, f)
        down = array(block.down).reshape(shape.dim, e, f).transpose(1, 0, 2)
        out[name + "ffn_down_exps.weight"] = packing.quantise_q8(np.ascontiguousarray(down))
        out[name + "ffn_down_exps.bias"] = array(block.down_bias)
    return out


def load(run: Path) -> tuple[Tiny, dict[str, Any]]:
    """The model of a run's checkpoint and what else the checkpoint says."""
    saved = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    layers = 1 + max(int(name.split(".")[1]) for name in saved["model"] if name[:6] == "blocks")
    with np.load(run / "rows.npz") as chosen:
        width = len(saved["model"]["blocks.0.gate"]) // Shape.experts
        model = Tiny(Shape(layers=layers, expert_dim=width), chosen["trained"], chosen["full"])
    model.load_state_dict(saved["model"])
    return model, saved


def main() -> None:
    """Write the core of a checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("core", type=Path, nargs="?", default=expand.CORE)
    parser.add_argument("--blend", type=Path, help="a core that the run began with")
    parser.add_argument("--share", type=float, default=0.3, help="of that core in every weight")
    options = parser.parse_args()
    model, saved = load(options.run)
    if options.blend:
        warm_start.blend(model, options.blend, options.share)
    packing.write_core(options.core, model.shape.as_dict(), tensors(model))
    print(f"{options.core} {options.core.stat().st_size} bytes, step {saved['step']}")


if __name__ == "__main__":
    main()
