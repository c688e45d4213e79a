"""``/tokenize``, ``/detokenize`` and ``/props`` with the fields of both vLLM
(https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#tokenizer-api) and llama.cpp
(https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md), and ``/v1/embeddings``,
which no model here can answer."""

from dataclasses import asdict
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from agent.formats.protocol import Format
from agent.runtime.runtime import Runtime
from agent.server.chat.requests import ChatMessage, ChatTranslation
from agent.server.http.endpoints import endpoint
from agent.server.http.errors import invalid
from agent.server.http.json_response import JsonResponse
from agent.server.http.request_body import read_json
from agent.server.input.parsing import RequestT, validate
from agent.server.input.schemas import RequestModel
from agent.server.raw.completions import MAX_TOKEN_ID, encode_prompt
from agent.server.responses.answer_schemas import DetokenizedText, ServerProperties, TokenizedText
from agent.server.responses.service import ResponseService
from tools.version import program_version


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


class TokenRoutes:
    """The routes about tokens and the loaded model."""

    def __init__(self, service: ResponseService) -> None:
        self._service, self._models = service, service.models

    @endpoint("POST", "/tokenize", TokenizedText, body=TokenizeRequest)
    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: the token ids of a text or of a chat's prompt."""
        body, runtime = await self._read(TokenizeRequest, request)
        ids = await self._encode(body)
        form = await self._format(body.model)
        value: dict[str, Any] = {
            "count": len(ids),
            "max_model_len": runtime.context_length,
            "tokens": ids,
        }
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
        special = body.parse_special is not False
        return await encode_prompt(form, text, begin=begin, special=special)

    @endpoint("POST", "/detokenize", DetokenizedText, body=DetokenizeRequest)
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

    @endpoint("GET", "/props", ServerProperties)
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
        _, runtime = await self._read(EmbeddingsRequest, request)
        message = f"This server makes no embeddings: its model {runtime.model.name} writes text."
        raise invalid("model", message, "unsupported_parameter")

    async def _read(self, kind: type[RequestT], request: Request) -> tuple[RequestT, Runtime]:
        body = validate(kind, await read_json(request, self._service.body_budget))
        return body, (await self._models.find(getattr(body, "model", None))).runtime

    async def _format(self, name: str | None) -> Format:
        """The model's format; loads the model if need be. Raises ApiError."""
        async with self._models.in_use(name) as (_, loaded):
            return loaded.format


def _piece(raw: bytes) -> str | list[int]:
    """A token's text; its bytes, where they are a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
