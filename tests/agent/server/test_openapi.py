"""The document tells what the server does."""

import re
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route, WebSocketRoute

from agent.server.app import create_app
from agent.server.http.options import ServerOptions
from tests.support.endpoint import Serve
from tests.support.requests import APPLY_PATCH, BAD_REQUESTS, CODE_CONTAINER, SEED_REQUEST
from tests.support.scripts import HELLO, WEATHER


async def fetch_document(
    serve: Serve, *replies: str | dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    served = await serve(*(replies or [HELLO]))
    answer = await served.get("/openapi.json")
    assert answer.status_code == 200
    return served, answer.json()


async def test_openapi_lists_every_route(serve: Serve) -> None:
    served, document = await fetch_document(serve)
    routes = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in create_app(served.service.models, ServerOptions()).routes
        if isinstance(route, Route | WebSocketRoute) and getattr(route, "include_in_schema", True)
        for method in (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}
    }
    listed = {(path, name.upper()) for path, item in document["paths"].items() for name in item}
    assert listed == routes and ("/openapi.json", "GET") in listed
    assert all(
        operation["summary"] for item in document["paths"].values() for operation in item.values()
    )
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', str(document).replace("'", '"')))
    assert references <= set(document["components"]["schemas"])


def schema_validator(document: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema.Draft202012Validator(schema)


async def test_openapi_schemas_match_bodies(serve: Serve) -> None:
    served, document = await fetch_document(serve)
    requests = schema_validator(document, "CreateResponse")
    good = [
        SEED_REQUEST,
        {"input": "x", "tools": [WEATHER, APPLY_PATCH, CODE_CONTAINER], "tool_choice": "auto"},
        {"input": [{"role": "user", "content": "x"}], "text": {"format": {"type": "text"}}},
    ]
    for body in good:
        requests.validate(body)
    answer = (await served.post({"input": "x", "tools": [WEATHER]})).json()
    schema_validator(document, "Response").validate(answer)
    error = (await served.post({})).json()
    schema_validator(document, "Error").validate(error)


async def test_openapi_tells_input_items_by_their_type(serve: Serve) -> None:
    _, document = await fetch_document(serve)
    requests = schema_validator(document, "CreateResponse")
    call = {"call_id": "c", "name": "f", "arguments": "{}"}
    for item in (
        {**call, "type": "function_call"},
        {"id": "msg_1"},
        {"role": "user", "content": "x"},
    ):
        assert requests.is_valid({"input": [item]})
    for item in (call, {"type": "function_call"}, {"type": "unknown", "id": "x"}, {}):
        assert not requests.is_valid({"input": [item]})


@pytest.mark.parametrize("body", [body for body, _, code in BAD_REQUESTS if code == "invalid_type"])
async def test_openapi_schema_refuses_wrong_types(serve: Serve, body: dict[str, Any]) -> None:
    _, document = await fetch_document(serve)
    assert not schema_validator(document, "CreateResponse").is_valid(body)
