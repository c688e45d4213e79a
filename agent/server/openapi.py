"""GET /openapi.json: the endpoints as they are, and what their bodies may hold."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import Route, WebSocketRoute

from agent.events import Response
from agent.server.chat_completions import ChatRequest
from agent.server.errors import JSON
from agent.server.schemas import CreateResponse
from tools.version import version

BODIES: dict[str, type[BaseModel]] = {
    "/v1/responses": CreateResponse,
    "/v1/responses/input_tokens": CreateResponse,
    "/v1/responses/compact": CreateResponse,
    "/v1/chat/completions": ChatRequest,
}
"""By the paths that are posted to."""
ANSWERS = {"/v1/responses", "/v1/responses/{id}", "/v1/responses/{id}/cancel"}
"""Those that answer with a response."""
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


_WRONG = {
    "description": "What is wrong with the request.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def route(described: Sequence[Route | WebSocketRoute]) -> Route:
    """The document of these routes, which itself is one of them."""
    made: list[dict[str, Any]] = []

    async def openapi(request: Request) -> HttpResponse:
        """This document."""
        if not made:
            made.append(_document([*described, own]))
        return JSON(made[0])

    own = Route("/openapi.json", openapi, methods=["GET"])
    return own


def _document(routes: Sequence[Route | WebSocketRoute]) -> dict[str, Any]:
    _, schemas = models_json_schema(
        [
            (CreateResponse, "validation"),
            (ChatRequest, "validation"),
            (Response, "serialization"),
        ],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        path = re.sub(r":\w+}", "}", one.path)
        if isinstance(one, WebSocketRoute):
            paths.setdefault(path, {})["get"] = _connection(one)
            continue
        for method in sorted((one.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = _operation(one, path, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "agent", "version": version()},
        "paths": paths,
        "components": {
            "schemas": {**_open(schemas["$defs"]), "Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _open(schema: Any) -> Any:
    """Unknown fields are ignored here, so that more than one alternative may fit."""
    match schema:
        case dict():
            return {("anyOf" if key == "oneOf" else key): _open(one) for key, one in schema.items()}
        case list():
            return [_open(one) for one in schema]
        case _:
            return schema


def _summary(one: Route | WebSocketRoute) -> str:
    said = inspect.getdoc(one.endpoint) or one.name or ""
    return re.sub(r"^[A-Z]+ /\S+?:? ", "", said.partition("\n\n")[0].replace("\n", " "))


def _connection(one: WebSocketRoute) -> dict[str, Any]:
    """OpenAPI has no word for what is sent over a WebSocket."""
    return {
        "summary": _summary(one),
        "description": (
            'A message holds the fields of a CreateResponse and `"type": "response.create"`.'
            ' `"generate": false` prepares a response to go on from; requests of different'
            " `stream_id` run side by side. What is wrong is told by a message of type"
            ' "error" with `status` and the `error` of an Error.'
        ),
        "responses": {"101": {"description": "The connection is a WebSocket now."}, "4XX": _WRONG},
    }


def _operation(one: Route, path: str, method: str) -> dict[str, Any]:
    answers: dict[str, Any] = {"application/json": {"schema": {}}}
    if path in ANSWERS and method != "DELETE":
        answers["application/json"] = {"schema": _named(Response)}
    if path in ("/v1/responses", "/v1/responses/{id}", "/v1/chat/completions"):
        answers["text/event-stream"] = {"schema": {"type": "string"}}
    operation: dict[str, Any] = {
        "summary": _summary(one),
        "responses": {
            "200": {"description": "Done.", "content": answers},
            "4XX": _WRONG,
        },
    }
    if names := re.findall(r"{(\w+)}", path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if method == "POST" and (body := BODIES.get(path)) is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _named(body)}},
        }
    return operation


def _named(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
