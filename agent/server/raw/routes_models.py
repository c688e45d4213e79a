"""Lists of models, and their load and unload as in llama-server's router:
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md#using-multiple-models"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agent.server.http.endpoints import endpoint
from agent.server.http.errors import missing
from agent.server.http.json_response import JsonResponse, speaks_anthropic
from agent.server.http.request_body import read_body
from agent.server.input.parsing import parse_json_object, validate
from agent.server.input.schemas import RequestModel
from agent.server.messages.answers import model_info, model_page
from agent.server.raw.model_description import describe_models
from agent.server.responses.answer_schemas import ModelChange, ModelObject, ModelPage
from agent.server.responses.models import ServedModel
from agent.server.responses.service import ResponseService


class ModelName(RequestModel):
    """The body of ``POST /models/load`` and ``/models/unload``."""

    model: str | None = None


class ModelRoutes:
    """The routes about the models of this server."""

    def __init__(self, service: ResponseService) -> None:
        self._service, self._models = service, service.models

    @endpoint("GET", "/v1/models", ModelPage)
    async def models(self, request: Request) -> Response:
        """GET /v1/models: the loaded model first, then all that a request may name."""
        models = await describe_models(await self._models.list_all(), self._service.started_at)
        if speaks_anthropic(request.scope):
            return JsonResponse(model_page(models))
        return JsonResponse({"object": "list", "data": models})

    @endpoint("GET", "/v1/models/{id:path}", ModelObject)
    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}"""
        name = request.path_params["id"]
        models = await describe_models([await self._models.find(name)], self._service.started_at)
        model = next((m for m in models if m["id"] == name), models[0])
        return JsonResponse(model_info(model) if speaks_anthropic(request.scope) else model)

    @endpoint("POST", "/v1/models/load", ModelChange, body=ModelName)
    async def load(self, request: Request) -> Response:
        """POST /models/load: load a model; answered once it is in memory."""
        await self._models.load(await self._named(request))
        return JsonResponse({"success": True})

    @endpoint("POST", "/v1/models/unload", ModelChange, body=ModelName)
    async def unload(self, request: Request) -> Response:
        """POST /models/unload: unload a model; answered once nothing uses it and it is unloaded."""
        await self._models.unload(await self._named(request))
        return JsonResponse({"success": True})

    async def _named(self, request: Request) -> ServedModel:
        body = parse_json_object(await read_body(request, self._service.body_budget))
        if (name := validate(ModelName, body).model) is None:
            raise missing("model")
        return await self._models.find(name)
