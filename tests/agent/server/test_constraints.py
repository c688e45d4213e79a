"""What a model is held to over HTTP, on the embedded model where it is least sure of itself."""

import json
from typing import Any

import jsonschema
import pytest

from tests.support.endpoint import Serve, Served
from tests.support.invariants import check
from tests.support.scripts import WEATHER

pytestmark = pytest.mark.slow

HOT_SAMPLING = {"temperature": 2.0, "max_output_tokens": 150}
ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 999},
            "b": {"enum": [1, 2, 3]},
            "why": {"type": "string", "maxLength": 8, "pattern": "^[a-z]*$"},
        },
        "required": ["a", "b", "why"],
        "additionalProperties": False,
    },
    "strict": True,
}
CITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}
CITY_FORMAT = {
    "format": {"type": "json_schema", "name": "city", "schema": CITY_SCHEMA, "strict": True}
}


async def respond(served: Served, **body: Any) -> dict[str, Any]:
    return check(await served.stream(**{"input": "Add 2 and 3.", **HOT_SAMPLING, **body}))


def item_types(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


async def test_required_call_arguments_match_schema(serve: Serve) -> None:
    """Noise on all scores makes it write anything that it may, after thinking."""
    served = await serve()
    noise = {str(token): 30 for token in range(400, 1200)}
    for seed in range(8):
        response = await respond(
            served, seed=seed, tools=[ADD], tool_choice="required", logit_bias=noise
        )
        call = response["output"][-1]
        assert call["type"] == "function_call" or response["status"] == "incomplete"
        if call["type"] == "function_call" and call["status"] == "completed":
            jsonschema.validate(json.loads(call["arguments"]), ADD["parameters"])


async def test_tool_choice_is_enforced(serve: Serve) -> None:
    """required, after thinking; a named one, however unsure the model is; none; allowed ones."""
    served = await serve()
    response = await respond(served, temperature=0, tools=[ADD], tool_choice="required")
    assert item_types(response) == ["reasoning", "function_call"]
    jsonschema.validate(json.loads(response["output"][-1]["arguments"]), ADD["parameters"])
    for seed in range(3):
        choice: dict[str, Any] = {"type": "function", "name": "get_weather"}
        response = await respond(served, seed=seed, tools=[ADD, WEATHER], tool_choice=choice)
        assert item_types(response)[-1] == "function_call"
        assert response["output"][-1]["name"] == "get_weather"
        jsonschema.validate(json.loads(response["output"][-1]["arguments"]), WEATHER["parameters"])
    response = await respond(served, temperature=0, tools=[ADD], tool_choice="none")
    assert set(item_types(response)) <= {"reasoning", "message"}
    assert "message" in item_types(response)
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "get_weather"}],
    }
    response = await respond(served, temperature=0, tools=[ADD, WEATHER], tool_choice=choice)
    assert response["output"][-1]["name"] == "get_weather"


@pytest.mark.long
async def test_answer_matches_json_schema(serve: Serve) -> None:
    served = await serve()
    for seed in range(6):
        biases = {str(token): 30 * (seed % 2) for token in range(400, 1200)}
        response = await respond(
            served, input="Is Paris warm?", seed=seed, text=CITY_FORMAT, logit_bias=biases
        )
        if response["status"] == "completed":
            (message,) = [item for item in response["output"] if item["type"] == "message"]
            jsonschema.validate(json.loads(message["content"][0]["text"]), CITY_SCHEMA)

    response = await respond(
        served, input="Is Paris warm?", temperature=0, text={"format": {"type": "json_object"}}
    )
    text = response["output"][-1]["content"][0]["text"]
    assert text.startswith("{")
    if response["status"] == "completed":
        assert isinstance(json.loads(text), dict)
    body = await served.client().chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "Is Paris warm?"}],
        temperature=0,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "city", "schema": CITY_SCHEMA, "strict": True},
        },
    )
    jsonschema.validate(json.loads(body.choices[0].message.content or ""), CITY_SCHEMA)


def nested_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


HOSTILE_SCHEMAS: list[dict[str, Any]] = [
    {"enum": ["a" * 2_000] * 60},
    nested_schema(70),
    {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)b"}}},
    {"$ref": "http://127.0.0.1:9/schema.json", "type": "object"},
    {"type": "object", "properties": {"a": False}, "required": ["a"]},
    {"type": "frobnicate"},
]


async def test_strict_unenforceable_schema_is_refused(serve: Serve) -> None:
    served = await serve()
    for schema in HOSTILE_SCHEMAS:
        await assert_refused(served, schema)


async def assert_refused(served: Served, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    answer = await served.post({"input": "x", "text": {"format": form}})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "text.format.schema"
    assert answer.json()["error"]["code"] == "invalid_json_schema"
    tool = {**ADD, "parameters": schema}
    answer = await served.post({"input": "x", "tools": [tool]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools"
    assert (await served.get("/health")).status_code == 200


async def test_lax_schema_enforces_supported_part(serve: Serve) -> None:
    served = await serve()
    schema = {**CITY_SCHEMA, "not": {"required": ["country"]}}
    form = {"type": "json_schema", "name": "x", "schema": schema}
    response = await respond(served, input="Is Paris warm?", temperature=0, text={"format": form})
    jsonschema.validate(json.loads(response["output"][-1]["content"][0]["text"]), CITY_SCHEMA)
    (notice,) = [event for event in served.turns[-1].log.events if event.type == "agent.notice"]
    assert "cannot be enforced in full" in notice.message and "not" in notice.message
