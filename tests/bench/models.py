"""The models that benchmarks run on, written once below CACHE.

The embedded one; the same one without its stop tokens, so that whoever runs it writes exactly as many
tokens as were asked for; and one of GPT-OSS's shape with a tenth of the 20b's size in MXFP4.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agent.tiny import expand, gguf
from tests.bench import CACHE, large, progress

STOPS = (199_999, 200_002, 200_006, 200_007, 200_012)
"""``<|endoftext|> <|return|> <|start|> <|end|> <|call|>``"""


@functools.cache
def model() -> Path:
    """The embedded model."""
    return expand.ensure(CACHE)


@functools.cache
def endless() -> Path:
    """The embedded model, whose stop tokens all score 0: others are always likelier."""
    packed = expand.CORE.read_bytes()

    def write(path: Path) -> None:
        shape, tensors = expand.read_core(packed)
        out = tensors["rows.out"].copy()
        out[np.isin(tensors["rows.ids"], STOPS)] = 0
        gguf.write(path, shape, tensors | {"rows.out": out}, lambda percent: None)

    return _once(f"endless-{hashlib.sha256(packed).hexdigest()[:12]}.gguf", write)


@functools.cache
def tenth() -> Path:
    """Random weights, 1.4 GB; all special tokens score 0, which none of the likely ones do."""
    return _once(f"{large.NAME}.gguf", large.write)


def _once(name: str, write: Callable[[Path], None]) -> Path:
    path = CACHE / name
    if not path.is_file():
        progress(f"writing {path} (once) …")
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        write(partial)
        partial.replace(path)
    return path
