"""The document tells what the server does."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route, WebSocketRoute

from agent.server.app import create
from tests.agent.server.test_errors import BAD
from tests.agent.server.test_hosted_tools import CONTAINER, PATCH
from tests.agent.server.test_tool_selection import SEEDS
from tests.support.endpoint import Serve
from tests.support.scripts import HELLO, WEATHER


async def document(serve: Serve) -> tuple[Any, dict[str, Any]]:
    served = await serve(HELLO)
    answer = await served.get("/openapi.json")
    assert answer.status_code == 200
    return served, answer.json()


async def test_it_names_every_route(serve: Serve) -> None:
    served, found = await document(serve)
    routes = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in create(served.runtime).routes
        if isinstance(route, Route | WebSocketRoute)
        for method in (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}
    }
    told = {(path, name.upper()) for path, item in found["paths"].items() for name in item}
    assert told == routes and ("/openapi.json", "GET") in told
    assert all(one["summary"] for item in found["paths"].values() for one in item.values())
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', str(found).replace("'", '"')))
    assert references <= set(found["components"]["schemas"])


def checker(found: dict[str, Any], name: str) -> jsonschema.Draft202012Validator:
    schema = {"$ref": f"#/components/schemas/{name}", "components": found["components"]}
    return jsonschema.Draft202012Validator(schema)


async def test_its_schemas_hold(serve: Serve) -> None:
    served, found = await document(serve)
    requests = checker(found, "CreateResponse")
    good = [
        SEEDS,
        {"input": "x", "tools": [WEATHER, PATCH, CONTAINER], "tool_choice": "auto"},
        {"input": [{"role": "user", "content": "x"}], "text": {"format": {"type": "text"}}},
    ]
    for body in good:
        requests.validate(body)
    answer = (await served.post({"input": "x", "tools": [WEATHER]})).json()
    checker(found, "Response").validate(answer)
    error = (await served.post({})).json()
    checker(found, "Error").validate(error)


@pytest.mark.parametrize("body", [body for body, _, code in BAD if code == "invalid_type"])
async def test_wrong_types_are_wrong_there_too(serve: Serve, body: dict[str, Any]) -> None:
    _, found = await document(serve)
    assert not checker(found, "CreateResponse").is_valid(body)
