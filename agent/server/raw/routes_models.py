"""The models with their limits, as other servers name them, and their load and unload as in
llama-server's router:
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md#using-multiple-models

Their tokens: ``/tokenize``, ``/detokenize`` and ``/props`` with the fields of both vLLM
(https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#tokenizer-api) and llama.cpp; and
``/v1/embeddings``, which no model here can answer."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from agent.engine.placement.gguf_header import read_outline, read_vocabulary_size
from agent.engine.placement.memory_estimate import split_files
from agent.engine.protocol import EngineError
from agent.formats import detect
from agent.formats.protocol import Format
from agent.server.chat.requests import ChatMessage, ChatTranslation
from agent.server.http.endpoints import endpoint
from agent.server.http.errors import invalid
from agent.server.http.json_response import JsonResponse, speaks_anthropic
from agent.server.http.request_body import read_json
from agent.server.input.parsing import RequestT, validate
from agent.server.input.schemas import RequestModel
from agent.server.messages.answers import model_info, model_page
from agent.server.raw.completions import MAX_TOKEN_ID, encode_prompt
from agent.server.responses import answer_schemas
from agent.server.responses.models import ServedModel
from agent.server.responses.service import ResponseService
from tools.version import program_version


class ModelName(RequestModel):
    """The body of ``POST /models/load`` and ``/models/unload``."""

    model: str


class TokenizeRequest(RequestModel):
    """The body of ``POST /tokenize``: a raw ``prompt`` (vLLM) or ``content`` (llama.cpp), or the
    ``messages`` and ``tools`` of a chat completion."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    return_token_strs: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(RequestModel):
    """The body of ``POST /detokenize``."""

    model: str | None = None
    tokens: list[int] = Field(max_length=200_000)


class EmbeddingsRequest(RequestModel):
    """The body of ``POST /v1/embeddings``."""

    model: str | None = None
    input: Any = None


class ModelRoutes:
    """The routes about the models of this server and their tokens."""

    def __init__(self, service: ResponseService) -> None:
        self._service, self._models = service, service.models

    @endpoint("GET", "/v1/models", answer_schemas.ModelPage)
    async def models(self, request: Request) -> Response:
        """GET /v1/models: all that a request may name, first the one that runs without a name."""
        models = await self._describe(await self._models.list_all())
        if speaks_anthropic(request.scope):
            return JsonResponse(model_page(models))
        return JsonResponse({"object": "list", "data": models})

    @endpoint("GET", "/v1/models/{id:path}", answer_schemas.ModelObject)
    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}"""
        name = request.path_params["id"]
        models = await self._describe([await self._models.find(name)])
        model = next((m for m in models if m["id"] == name), models[0])
        return JsonResponse(model_info(model) if speaks_anthropic(request.scope) else model)

    @endpoint("POST", "/v1/models/load", answer_schemas.ModelChange, body=ModelName)
    async def load(self, request: Request) -> Response:
        """POST /models/load: load a model; answered once it is in memory."""
        async with self._models.in_use((await self._read(ModelName, request))[1].name):
            return JsonResponse({"success": True})

    @endpoint("POST", "/v1/models/unload", answer_schemas.ModelChange, body=ModelName)
    async def unload(self, request: Request) -> Response:
        """POST /models/unload: unload a model as soon as nothing uses it; answered after that."""
        await self._models.unload((await self._read(ModelName, request))[1])
        return JsonResponse({"success": True})

    async def _describe(self, models: Sequence[ServedModel]) -> list[dict[str, Any]]:
        """The models, and an entry for each name of ``--alias``."""
        described: list[dict[str, Any]] = []
        for served in models:
            entry = await asyncio.to_thread(_describe, served, self._service.started_at)
            names = dict.fromkeys((served.name, *served.runtime.aliases))
            described += [{**entry, "id": name} for name in names]
        return described

    @endpoint("POST", "/tokenize", answer_schemas.TokenizedText, body=TokenizeRequest)
    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: the token ids of a text or of a chat's prompt."""
        body, served = await self._read(TokenizeRequest, request)
        ids = await self._encode(body)
        form = await self._format(body.model)
        length = served.runtime.context_length
        value: dict[str, Any] = {"count": len(ids), "max_model_len": length, "tokens": ids}
        if body.return_token_strs:
            value["token_strs"] = [form.token_bytes(i).decode("utf-8", "replace") for i in ids]
        if body.with_pieces:
            value["tokens"] = [{"id": i, "piece": _piece(form.token_bytes(i))} for i in ids]
        return JsonResponse(value)

    async def _encode(self, body: TokenizeRequest) -> list[int]:
        given = [
            name for name in ("prompt", "content", "messages") if getattr(body, name) is not None
        ]
        if len(given) != 1:
            message = "Send one of 'prompt', 'content' and 'messages'."
            raise invalid("prompt", message, "missing_required_parameter")
        if body.messages is not None:
            messages = [message.model_dump(exclude_none=True) for message in body.messages]
            value = {"model": body.model, "messages": messages, "tools": body.tools}
            chat = ChatTranslation(value, self._service)
            with chat.params():
                return await self._service.prompt_ids(chat.request)
        form = await self._format(body.model)
        text = body.content if body.prompt is None else body.prompt
        assert text is not None
        # By default vLLM begins a prompt as the model's prompts begin, llama.cpp's server does not.
        chosen = body.add_special_tokens if body.add_special is None else body.add_special
        begin = body.prompt is not None if chosen is None else chosen
        return await encode_prompt(form, text, begin=begin, special=body.parse_special is not False)

    @endpoint("POST", "/detokenize", answer_schemas.DetokenizedText, body=DetokenizeRequest)
    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize: the text of token ids."""
        body, _ = await self._read(DetokenizeRequest, request)
        form = await self._format(body.model)
        raw = []
        for number, token in enumerate(body.tokens):
            if not 0 <= token <= MAX_TOKEN_ID or not (spelled := form.token_bytes(token)):
                raise invalid(f"tokens[{number}]", f"The model has no token with the id {token}.")
            raw.append(spelled)
        text = b"".join(raw).decode("utf-8", "replace")
        return JsonResponse({"prompt": text, "content": text})

    @endpoint("GET", "/props", answer_schemas.ServerProperties)
    async def props(self, request: Request) -> Response:
        """GET /props: facts of the model, or of that of ``model``, as llama.cpp's server names them."""
        served = await self._models.find(request.query_params.get("model"))
        runtime, sampling = served.runtime, asdict(served.defaults.sampling)
        settings = {"n_ctx": runtime.context_length, "params": sampling}
        return JsonResponse(
            {
                "default_generation_settings": settings,
                "total_slots": runtime.provider.loader.sequences,
                "model_alias": runtime.model.name,
                "modalities": {"vision": False, "audio": False},
                "is_sleeping": runtime.loaded is None,
                "build_info": f"agent {program_version()}",
            }
        )

    @endpoint("POST", "/v1/embeddings", body=EmbeddingsRequest)
    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings: refused, for the models that run here write text."""
        _, served = await self._read(EmbeddingsRequest, request)
        message = f"This server makes no embeddings: its model {served.name} writes text."
        raise invalid("model", message, "unsupported_parameter")

    async def _read(self, kind: type[RequestT], request: Request) -> tuple[RequestT, ServedModel]:
        body = validate(kind, await read_json(request, self._service.body_budget))
        return body, await self._models.find(getattr(body, "model", None))

    async def _format(self, name: str | None) -> Format:
        """The model's format; loads the model if need be. Raises ApiError."""
        async with self._models.in_use(name) as (_, loaded):
            return loaded.format


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
    context = runtime.context_length if runtime.provider.knows_context else None
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


def _piece(raw: bytes) -> str | list[int]:
    """A token's text; its bytes, where they are a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
