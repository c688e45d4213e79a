"""The models with their limits, as other servers name them, and their load and unload as in
llama-server's router:
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md#using-multiple-models"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent.engine.placement.gguf_header import read_outline, read_vocabulary_size
from agent.engine.placement.memory_estimate import split_files
from agent.engine.protocol import EngineError
from agent.formats import detect
from agent.server.http.endpoints import endpoint
from agent.server.http.json_response import JsonResponse, speaks_anthropic
from agent.server.http.request_body import read_json
from agent.server.input.parsing import validate
from agent.server.input.schemas import RequestModel
from agent.server.messages.answers import model_info, model_page
from agent.server.responses.answer_schemas import ModelChange, ModelObject, ModelPage
from agent.server.responses.models import ServedModel
from agent.server.responses.service import ResponseService


class ModelName(RequestModel):
    """The body of ``POST /models/load`` and ``/models/unload``."""

    model: str


class ModelRoutes:
    """The routes about the models of this server."""

    def __init__(self, service: ResponseService) -> None:
        self._service, self._models = service, service.models

    @endpoint("GET", "/v1/models", ModelPage)
    async def models(self, request: Request) -> Response:
        """GET /v1/models: all that a request may name, first the one that runs without a name."""
        models = await self._describe(await self._models.list_all())
        if speaks_anthropic(request.scope):
            return JsonResponse(model_page(models))
        return JsonResponse({"object": "list", "data": models})

    @endpoint("GET", "/v1/models/{id:path}", ModelObject)
    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}"""
        name = request.path_params["id"]
        models = await self._describe([await self._models.find(name)])
        model = next((m for m in models if m["id"] == name), models[0])
        return JsonResponse(model_info(model) if speaks_anthropic(request.scope) else model)

    @endpoint("POST", "/v1/models/load", ModelChange, body=ModelName)
    async def load(self, request: Request) -> Response:
        """POST /models/load: load a model; answered once it is in memory."""
        async with self._models.in_use((await self._named(request)).name):
            return JsonResponse({"success": True})

    @endpoint("POST", "/v1/models/unload", ModelChange, body=ModelName)
    async def unload(self, request: Request) -> Response:
        """POST /models/unload: unload a model as soon as nothing uses it; answered after that."""
        await self._models.unload(await self._named(request))
        return JsonResponse({"success": True})

    async def _named(self, request: Request) -> ServedModel:
        body = await read_json(request, self._service.body_budget)
        return await self._models.find(validate(ModelName, body).model)

    async def _describe(self, models: Sequence[ServedModel]) -> list[dict[str, Any]]:
        """The models, and an entry for each name of ``--alias``."""
        described: list[dict[str, Any]] = []
        for served in models:
            entry = await asyncio.to_thread(_describe, served, self._service.started_at)
            names = dict.fromkeys((served.name, *served.runtime.aliases))
            described += [{**entry, "id": name} for name in names]
        return described


def _describe(served: ServedModel, created: int) -> dict[str, Any]:
    runtime, model, form = served.runtime, served.runtime.model, served.runtime.format
    meta: dict[str, Any] = {}
    trained, abilities, loader = None, (True, True), runtime.provider.loader
    if loader.is_local and (runtime.loaded is not None or model.path is not None):
        with suppress(EngineError):  # its file cannot be read
            meta, abilities = _read_header(loader.gguf_path(lambda done: None))
            trained = meta["n_ctx_train"]
    if form is not None:
        abilities = form.parses_calls, bool(form.end_reasoning())
    context = runtime.known_context_length
    if context is None and not served.is_first:  # its placement may leave it fewer
        limits = (model.placement_request.context, trained)
        context = min((limit for limit in limits if limit), default=None)
    aliases = [name for name in model.aliases if "/" not in name]
    named = zip(("tools", "thinking"), abilities, strict=True)
    description: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "local",
        "root": model.name,
        "parent": None,
        "aliases": ["default", *aliases] if served.is_first else aliases,
        "context_length": context,
        "max_model_len": context,
        "status": {"value": runtime.state},
        "capabilities": ["completion", *(name for name, has in named if has)],
    }
    has_meta = meta and runtime.loaded is not None and runtime.script is None
    return {**description, "meta": meta} if has_meta else description


@lru_cache(maxsize=256)
def _read_header(path: Path) -> tuple[dict[str, Any], tuple[bool, bool]]:
    """Facts of a GGUF, as llama.cpp's server names them, and whether its chat template has tools and
    reasoning. Raises EngineError."""
    outlines = [read_outline(part) for part in split_files(path)]
    metadata = outlines[0].metadata
    architecture, vocabulary_size = read_vocabulary_size(path)
    tensors = [tensor for outline in outlines for tensor in outline.tensors]
    template = str(metadata.get("tokenizer.chat_template", ""))
    is_harmony = detect.is_harmony(metadata)
    return {
        "n_vocab": vocabulary_size,
        "n_ctx_train": metadata.get(f"{architecture}.context_length"),
        "n_embd": metadata.get(f"{architecture}.embedding_length"),
        "n_params": sum(math.prod(tensor.shape) for tensor in tensors),
        "size": sum(tensor.size for tensor in tensors),
    }, (is_harmony or "tools" in template, is_harmony or "think" in template)
