"""Finds the draft model that an entry of models.toml names, and checks that it can draft for it."""

from __future__ import annotations

from pathlib import Path

from agent.config.paths import Paths
from agent.engine.placement import gguf_header
from agent.engine.protocol import EngineError
from agent.models.catalog import Model
from agent.models.resolve import resolve_model

NORMAL_TOKEN = 1
"""LLAMA_TOKEN_TYPE_NORMAL of llama.h: a token of ordinary text."""


def resolve_draft(model: Model, paths: Paths) -> Model | None:
    """The draft model of a model's entry; None: it has none. Raises EngineError."""
    if model.draft is None:
        return None
    try:
        draft = resolve_model(model.draft, paths)
    except EngineError as error:
        raise EngineError(_cannot_draft(model, str(error))) from error
    if draft.endpoint is not None:
        raise EngineError(_cannot_draft(model, "It runs on a server."))
    return draft


def check_vocabulary(model: Model, path: Path, draft_path: Path) -> None:
    """Compare the tokens of two GGUFs. Raises EngineError unless the same ids have the same texts."""
    if path != draft_path and _tokens(path) != _tokens(draft_path):
        raise EngineError(
            _cannot_draft(model, "It has another vocabulary: name a smaller model of its family.")
        )


def _cannot_draft(model: Model, reason: str) -> str:
    return f"{model.draft} cannot be the draft model of {model.name}. {reason}"


def _tokens(path: Path) -> list[object]:
    """The text of each id, without the names of special tokens, which are spelled variously."""
    metadata = gguf_header.read_metadata(path, until="tokenizer.ggml.merges")
    tokens = metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list):
        return []
    if not isinstance(types, list):
        return [*tokens]
    return [
        token if kind == NORMAL_TOKEN else None for token, kind in zip(tokens, types, strict=False)
    ]
