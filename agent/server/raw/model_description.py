"""The models as ``GET /v1/models`` lists them: with their limits, as other servers name them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent.engine.placement.gguf_header import read_metadata, read_outline, read_vocabulary_size
from agent.engine.placement.memory_estimate import split_files
from agent.engine.protocol import EngineError
from agent.formats import detect
from agent.runtime.runtime import Runtime
from agent.server.responses.models import ServedModel


async def describe_models(models: Sequence[ServedModel], created: int) -> list[dict[str, Any]]:
    """The models, and an entry for each name of ``--alias``; ``created``: a Unix time."""
    described: list[dict[str, Any]] = []
    for served in models:
        entry = await asyncio.to_thread(_describe, served, created)
        others = [name for name in served.runtime.aliases if name != served.name]
        described += [entry, *({**entry, "id": name} for name in others)]
    return described


def _describe(served: ServedModel, created: int) -> dict[str, Any]:
    runtime, model = served.runtime, served.runtime.model
    context = runtime.known_context_length
    if context is None and not served.is_first:
        context = _expected_context(runtime)
    description: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "local",
        "root": model.name,
        "parent": None,
        "aliases": [
            *(["default"] if served.is_first else []),
            *(name for name in model.aliases if "/" not in name),
        ],
        "context_length": context,
        "max_model_len": context,
        "status": {"value": served.state, "failed": served.has_failed},
        "capabilities": ["completion", *_abilities(runtime)],
    }
    if runtime.loaded is not None and runtime.provider.loader.is_local and runtime.script is None:
        try:
            path = runtime.provider.loader.gguf_path(lambda done: None)
            description["meta"] = _read_meta(path)
        except EngineError:
            pass  # its file has gone since it was loaded
    return description


def _expected_context(runtime: Runtime) -> int | None:
    """Tokens of context before the model was ever placed, which may leave it fewer."""
    model = runtime.model
    wanted = model.placement_request.context
    if model.embedded or model.endpoint is not None or model.path is None:
        return wanted
    try:
        trained = _read_facts(model.path)[0]
    except EngineError:
        return wanted
    return min(filter(None, (wanted, trained)), default=None)


def _abilities(runtime: Runtime) -> list[str]:
    """``tools`` and ``thinking``, if the model has them; by its chat template before its first load."""
    model, form = runtime.model, runtime.format
    if form is not None:
        flags = form.parses_calls, bool(form.end_reasoning())
    elif model.embedded or model.path is None or model.format == detect.HARMONY:
        flags = True, True
    else:
        try:
            flags = _read_facts(model.path)[1:]
        except EngineError:
            flags = False, False
    return [name for name, has in zip(("tools", "thinking"), flags, strict=True) if has]


@lru_cache(maxsize=256)
def _read_facts(path: Path) -> tuple[int | None, bool, bool]:
    """The context that a GGUF's model was trained for, and whether its chat template has tools and
    reasoning. Raises EngineError."""
    values = read_metadata(path)
    architecture = values.get("general.architecture")
    context = values.get(f"{architecture}.context_length")
    template = str(values.get("tokenizer.chat_template", ""))
    known = context if isinstance(context, int) else None
    if detect.is_harmony(values):
        return known, True, True
    return known, "tools" in template, "think" in template


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
