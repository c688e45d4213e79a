"""GET /openapi.json: a document made from the routes and the request models (OpenAPI 3.1)."""

import inspect
import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import Route, WebSocketRoute

from agent.events import Event, OfficialEvent
from agent.server.http.endpoints import ENDPOINTS, document_path
from agent.server.http.json_response import JsonResponse
from agent.server.input.schemas import ITEM_MODELS, InputMessage, ItemReference
from agent.server.responses.answer_schemas import ErrorAnswer
from tools.version import program_version

STREAM_EVENTS: tuple[type[OfficialEvent], ...] = tuple(
    kind for kind in get_args(get_args(Event)[0]) if issubclass(kind, OfficialEvent)
)
_UPLOAD = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
        "purpose": {"type": "string", "enum": ["batch"]},
    },
}
"""The form of ``POST /v1/files``."""
_UNTYPED_ANSWERS: dict[str, Any] = {
    "/v1/files/{id}/content": {"application/octet-stream": {"schema": {"type": "string"}}},
    "/metrics": {"text/plain": {"schema": {"type": "string"}}},
    "/openapi.json": {"application/json": {"schema": {"type": "object"}}},
}
_ERROR_ANSWER = {
    "description": "The error of the request.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def route(described: Sequence[Route | WebSocketRoute]) -> Route:
    document = cache(lambda: JsonResponse(_document([*described, own])).body)

    async def openapi(request: Request) -> HttpResponse:
        """This document."""
        return HttpResponse(document(), media_type="application/json")

    own = Route("/openapi.json", openapi, methods=["GET"])
    return own


def _document(routes: Sequence[Route | WebSocketRoute]) -> dict[str, Any]:
    used = ((each.body, each.answer, each.stream) for each in ENDPOINTS.values())
    models = dict.fromkeys(filter(None, (*chain.from_iterable(used), *STREAM_EVENTS, ErrorAnswer)))
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    events = [_reference(event) for event in STREAM_EVENTS]
    schemas["$defs"][OfficialEvent.__name__] = {"anyOf": events}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = document_path(route.path)
        if isinstance(route, WebSocketRoute):
            paths.setdefault(path, {})["get"] = _websocket_operation(route)
            continue
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(route, path, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "agent", "version": program_version()},
        "paths": paths,
        "components": {
            "schemas": _with_any_of(_with_item_types(schemas["$defs"])),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _with_item_types(schemas: dict[str, Any]) -> dict[str, Any]:
    """Add the ``type`` of input items, by which their model is chosen before it reads them."""
    kinds: dict[str, list[str]] = {}
    for kind, model in ITEM_MODELS.items():
        kinds.setdefault(model.__name__, []).append(kind)
    for name, values in kinds.items():
        schema = schemas[name]
        properties = {**schema.get("properties", {}), "type": {"type": "string", "enum": values}}
        required = {*schema.get("required", ()), "type"}
        if name in (InputMessage.__name__, ItemReference.__name__):
            required.remove("type")
        schemas[name] = schema | {"properties": properties, "required": sorted(required)}
    return schemas


def _with_any_of(schema: Any) -> Any:
    """Replace ``oneOf``: unknown fields are ignored, so that more than one alternative may match."""
    match schema:
        case dict():
            return {
                ("anyOf" if key == "oneOf" else key): _with_any_of(value)
                for key, value in schema.items()
            }
        case list():
            return [_with_any_of(value) for value in schema]
    return schema


def _summary(route: Route | WebSocketRoute) -> str:
    """The first paragraph of the handler's docstring, without a ``METHOD /path:`` before it."""
    doc = inspect.getdoc(route.endpoint) or route.name or ""
    return re.sub(r"^[A-Z]+ /\S+?:? ", "", doc.partition("\n\n")[0].replace("\n", " "))


def _websocket_operation(route: WebSocketRoute) -> dict[str, Any]:
    """Describe the messages in prose: OpenAPI 3.1 has no WebSockets."""
    return {
        "summary": _summary(route),
        "description": (
            'A message holds the fields of a CreateResponse and `"type": "response.create"`.'
            ' `"generate": false` prepares a response to continue from; requests of different'
            " `stream_id` run concurrently. An error is a message of type"
            ' "error" with `status` and the `error` of an Error.'
        ),
        "responses": {
            "101": {"description": "The connection is a WebSocket now."},
            "4XX": _ERROR_ANSWER,
        },
    }


def _operation(route: Route, path: str, method: str) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    declared = ENDPOINTS.get((method, path))
    if declared and declared.answer:
        answers["application/json"] = {"schema": _reference(declared.answer)}
    if declared and declared.stream:
        answers["text/event-stream"] = {"schema": _reference(declared.stream)}
    done = {"description": "Done.", "content": answers or _UNTYPED_ANSWERS.get(path, {})}
    responses = {"200": done, "4XX": _ERROR_ANSWER}
    operation: dict[str, Any] = {"summary": _summary(route), "responses": responses}
    if names := re.findall(r"{(\w+)}", path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    sent: dict[str, Any] = {}
    if declared and declared.body:
        sent = {"application/json": {"schema": _reference(declared.body)}}
    elif (method, path) == ("POST", "/v1/files"):
        sent = {"multipart/form-data": {"schema": _UPLOAD}}
    if sent:
        operation["requestBody"] = {"required": True, "content": sent}
    return operation


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
