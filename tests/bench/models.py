"""The models that benchmarks run on, written once below CACHE."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agent.tiny import expand, gguf
from tests.bench import CACHE, large_gguf, progress

STOP_IDS = (199_999, 200_002, 200_006, 200_007, 200_012)
"""``<|endoftext|> <|return|> <|start|> <|end|> <|call|>``"""


@functools.cache
def embedded_model() -> Path:
    """The embedded model."""
    return expand.ensure(CACHE)


@functools.cache
def endless_model() -> Path:
    """The embedded model without stop tokens, so that it writes as many tokens as a request allows.

    The stop tokens score 0: others are always likelier.
    """
    core = expand.CORE.read_bytes()

    def write(path: Path) -> None:
        shape, tensors = expand.read_core(core)
        out = tensors["rows.out"].copy()
        out[np.isin(tensors["rows.ids"], STOP_IDS)] = 0
        gguf.write(path, shape, tensors | {"rows.out": out}, lambda percent: None)

    return _write_once(f"endless-{hashlib.sha256(core).hexdigest()[:12]}.gguf", write)


@functools.cache
def large_model() -> Path:
    """GPT-OSS's architecture with random weights in MXFP4, 1.4 GB, without stop tokens either."""
    return _write_once(f"{large_gguf.MODEL_NAME}.gguf", large_gguf.write_model)


def _write_once(name: str, write: Callable[[Path], None]) -> Path:
    path = CACHE / name
    if not path.is_file():
        progress(f"writing {path} (once) …")
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        write(partial)
        partial.replace(path)
    return path
