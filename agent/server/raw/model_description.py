"""The served model as ``GET /v1/models`` lists it: with its limits, as other servers name them."""

from __future__ import annotations

import asyncio
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent.engine.placement.gguf_header import read_outline, read_vocabulary_size
from agent.engine.placement.memory_estimate import split_files
from agent.engine.protocol import EngineError
from agent.runtime.runtime import Runtime


async def describe_models(runtime: Runtime, created: int) -> list[dict[str, Any]]:
    """The model, and an entry for each name of ``--alias``; ``created``: a Unix time."""
    model = runtime.model
    description: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "local",
        "root": model.name,
        "parent": None,
        "aliases": ["default", *(name for name in model.aliases if "/" not in name)],
        "context_length": runtime.known_context_length,
        "max_model_len": runtime.known_context_length,
    }
    if runtime.loaded is not None and runtime.provider.loader.is_local and runtime.script is None:
        try:
            path = await asyncio.to_thread(runtime.provider.loader.gguf_path, lambda done: None)
            description["meta"] = await asyncio.to_thread(_read_meta, path)
        except EngineError:
            pass  # its file has gone since it was loaded
    others = [name for name in runtime.aliases if name != model.name]
    return [description, *({**description, "id": name} for name in others)]


@lru_cache(maxsize=4)
def _read_meta(path: Path) -> dict[str, Any]:
    """Facts of a GGUF, as llama.cpp's server names them. Raises EngineError."""
    outlines = [read_outline(part) for part in split_files(path)]
    metadata = outlines[0].metadata
    architecture, vocabulary_size = read_vocabulary_size(path)
    tensors = [tensor for outline in outlines for tensor in outline.tensors]
    return {
        "n_vocab": vocabulary_size,
        "n_ctx_train": metadata.get(f"{architecture}.context_length"),
        "n_embd": metadata.get(f"{architecture}.embedding_length"),
        "n_params": sum(math.prod(tensor.shape) for tensor in tensors),
        "size": sum(tensor.size for tensor in tensors),
    }
