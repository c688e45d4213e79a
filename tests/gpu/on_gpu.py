"""A pytest plugin: every model that a test loads goes to the GPU, whatever its placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.engine.llama.model import LlamaModel
from agent.engine.placement.placement import Placement
from tests.bench import GPU_LAYERS

_load = LlamaModel._load


def _load_on_gpu(
    self: LlamaModel, path: Path, placement: Placement, progress: Callable[[float], bool]
) -> None:
    _load(self, path, replace(placement, gpu_layers=GPU_LAYERS), progress)


LlamaModel._load = _load_on_gpu  # type: ignore[method-assign]
