"""The model that benchmarks run on."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tests.engine import random_gguf


@functools.cache
def model() -> Path:
    """The embedded model, or one of random weights with the full vocabulary while there is none."""
    folder = Path(tempfile.mkdtemp(prefix="agent-bench-"))
    try:
        from agent.tiny import expand

        return Path(expand.ensure(folder))
    except (ImportError, OSError):
        shape = random_gguf.Shape(
            vocabulary=201_088, width=128, heads=8, kv_heads=2, window=128, context=32_768
        )
        return random_gguf.write(folder / "random.gguf", shape)
