"""The models that benchmarks run on, written once below CACHE."""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agent.engine.placement.placement import DEFAULT_SEQUENCES, Placement
from agent.tiny import embedding_rows, expand, gguf
from tests.bench import CACHE, GPU_LAYERS, large_gguf, progress

_SHAPE = os.environ.get("AGENT_BENCH_SHAPE", "large")
"""What the large model is: ``large``, ``20b``, or ``small`` for none."""
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
        tensors |= {"rows.out": out}
        gguf.write(path, shape, tensors, lambda done: None, embedding_rows.bits())

    return _write_once(f"endless-{hashlib.sha256(core).hexdigest()[:12]}.gguf", write)


@functools.cache
def large_model() -> Path:
    """GPT-OSS's architecture with random weights in MXFP4, without stop tokens either: 1.4 GB, or
    12 GB of gpt-oss-20b's shape where AGENT_BENCH_SHAPE is ``20b``."""
    if _SHAPE == "small":
        return endless_model()
    return random_model(large_gguf.GPT_OSS_20B if _SHAPE == "20b" else large_gguf.LARGE)


def random_model(shape: large_gguf.ModelShape) -> Path:
    """A model of a shape, with random weights."""
    return _write_once(f"{shape.name}.gguf", functools.partial(large_gguf.write_model, shape=shape))


def chat_model() -> Path:
    """What conversations and streams are measured on: the endless model, on GPUs the large one."""
    return large_model() if GPU_LAYERS else endless_model()


def large_model_name() -> str:
    """What the tables call the large model."""
    return {"small": "embedded", "20b": "gpt-oss-20b's shape"}.get(_SHAPE, "1.4 GB MXFP4")


def bench_placement(context: int = 4096, sequences: int = DEFAULT_SEQUENCES) -> Placement:
    """The placement of our side: GPU_LAYERS on the GPUs."""
    return Placement(context, sequences=sequences, gpu_layers=GPU_LAYERS)


def _write_once(name: str, write: Callable[[Path], None]) -> Path:
    path = CACHE / name
    if not path.is_file():
        progress(f"writing {path} (once) …")
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        write(partial)
        partial.replace(path)
    return path
