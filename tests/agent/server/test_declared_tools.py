"""Tools and settings that come as input items hold from there on."""

from typing import Any

import pytest

from agent.server.input.declared_tools import MAX_ADDED_TOOLS
from tests.support.endpoint import Serve, Served, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import HELLO, WEATHER, call, final
from tests.support.websocket import open_socket, request_events

USER = {"role": "user", "content": "Weather in Oslo?"}
ASK = call("get_weather", place="Oslo")
INNER = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
PATCH = {"type": "custom", "name": "patch"}


def added(*tools: Any) -> dict[str, Any]:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def namespace(*tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": "crm", "description": "", "tools": list(tools)}


def searched(*tools: Any) -> list[dict[str, Any]]:
    found = {"type": "tool_search_output", "call_id": "s", "tools": list(tools)}
    return [{"type": "tool_search_call", "call_id": "s", "arguments": {"query": "x"}}, found]


async def declared(served: Served, *items: Any, **body: Any) -> list[str]:
    """The names of the functions in the prompt of a request."""
    check(await served.stream(input=[*items, USER], **body))
    return [function.model_name for function in served.turns[-1].options.functions]


async def test_additional_tools_are_called_and_hold_for_what_continues(serve: Serve) -> None:
    served = await serve(ASK, final("Cold."), ASK)
    items = [added(WEATHER), {"role": "developer", "content": "Be brief."}, USER]
    first = check(await served.stream(input=items))
    (item,) = first["output"]
    assert (item["type"], item["name"]) == ("function_call", "get_weather")
    assert first["tools"] == [], "the request's own"
    assert "# Instructions\n\nBe brief." in engine_markup(served), "still before all other items"
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "-3"}
    second = check(await served.stream(input=[output], previous_response_id=first["id"]))
    third = check(await served.stream(input="Again?", previous_response_id=second["id"]))
    assert third["output"][0]["name"] == "get_weather"


async def test_additional_tools_of_a_conversation_hold(serve: Serve) -> None:
    served = await serve(HELLO, ASK)
    url = f"{served.url}/conversations"
    name = (await served.post({"items": [added(WEATHER)]}, url=url)).json()["id"]
    check(await served.stream(input="Hello.", conversation=name))
    response = check(await served.stream(input="Weather?", conversation=name))
    assert response["output"][0]["name"] == "get_weather"


async def test_later_tool_of_a_name_is_meant_and_namespaces_grow(serve: Serve) -> None:
    served = await serve(HELLO)
    newer = {**WEATHER, "description": "Newer."}
    names = await declared(served, added(WEATHER), added(newer), tools=[WEATHER])
    assert names == ["get_weather"] and "Newer." in engine_markup(served)
    items = [*searched(namespace({**INNER, "defer_loading": True})), *searched(namespace(PATCH))]
    assert await declared(served, *items) == ["crm__look", "crm__patch"]
    assert "Found: crm__look." in engine_markup(served)
    others: list[Any] = [{"type": "computer"}, {"type": "mcp", "server_label": "x"}, "nonsense"]
    items = searched(*others, {**INNER, "a": 1})
    assert await declared(served, *items) == ["look"], "what can be called from here"


async def test_custom_tool_in_a_namespace_is_called(serve: Serve) -> None:
    served = await serve("<|channel|>commentary to=functions.crm__patch <|message|>*** a<|call|>")
    response = check(await served.stream(input="x", tools=[namespace(INNER, PATCH)]))
    (item,) = response["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("custom_tool_call", "crm", "patch")
    assert item["input"] == "*** a"


async def test_additional_tools_are_refused_by_their_place(serve: Serve) -> None:
    served = await serve(HELLO)
    many = [{**INNER, "name": f"f{number}"} for number in range(MAX_ADDED_TOOLS + 1)]
    connector = {"type": "mcp", "server_label": "x", "connector_id": "connector_gmail"}
    for tools, param in (
        ([WEATHER, {"type": "computer"}], "input[0].tools[1].type"),
        ([{**INNER, "output_schema": {}}], "input[0].tools[0].output_schema"),
        ([connector], "input[0].tools[0].connector_id"),
        ([namespace(*many)], "input"),
        ([{**INNER, "parameters": {"a": [0] * 20_000}}], "input"),
    ):
        answer = await served.post({"input": [added(*tools), USER]})
        assert api_error(answer, 400)["param"] == param


async def test_servers_secrets_are_not_listed(serve: Serve) -> None:
    served = await serve(HELLO)
    server = {
        "type": "mcp",
        "server_label": "x",
        "server_url": "http://u:p@127.0.0.1:9/secret",
        "authorization": "secret",
        "headers": {"a": "secret"},
    }
    url = f"{served.url}/conversations"
    created = (await served.post({"items": [added(server)]}, url=url)).json()
    listed = await served.get(f"/v1/conversations/{created['id']}/items")
    assert "secret" not in listed.text and "http://127.0.0.1:9" in listed.text
    made = await served.post({"input": [USER], "conversation": created["id"]})
    assert made.status_code == 200, "a later request has no server"
    assert b"u:p@" not in served.runtime.paths.store.read_bytes()


@pytest.mark.parametrize("continues", ["response", "conversation"])
async def test_configuration_update_holds_until_the_next(serve: Serve, continues: str) -> None:
    served = await serve(HELLO, HELLO, final('{"a": 1}'))
    update = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    form = {"type": "json_schema", "name": "f", "schema": {"type": "object"}}
    body: dict[str, Any] = {"reasoning": {"effort": "low"}}
    if continues == "conversation":
        url = f"{served.url}/conversations"
        body["conversation"] = (await served.post({}, url=url)).json()["id"]
    first = check(await served.stream(input=[update, USER], **body))
    assert first["reasoning"]["effort"] == "high"
    if continues == "response":
        body["previous_response_id"] = first["id"]
    second = check(await served.stream(input=[USER], **body))
    assert second["reasoning"]["effort"] == "high" and "Reasoning: high" in engine_markup(served)
    if continues == "response":
        body["previous_response_id"] = second["id"]
    later = {"type": "configuration_update", "text": {"format": form}}
    third = check(await served.stream(input=[later, USER], **body))
    assert third["text"]["format"]["name"] == "f"


async def test_additional_tools_over_a_websocket_hold_unstored(serve: Serve) -> None:
    served = await serve(ASK, final("Cold."), ASK)
    async with open_socket(served) as client:

        async def answer(**body: Any) -> dict[str, Any]:
            return check(await request_events(client, store=False, **body))

        first = await answer(input=[added(WEATHER), USER])
        call_id = first["output"][0]["call_id"]
        output = {"type": "function_call_output", "call_id": call_id, "output": "-3"}
        second = await answer(input=[output], previous_response_id=first["id"])
        third = await answer(input="?", previous_response_id=second["id"])
    assert third["output"][0]["name"] == "get_weather"


async def test_added_tools_and_settings_survive_a_restart(serve: Serve) -> None:
    served = await serve(HELLO)
    form = {"type": "json_schema", "name": "f", "schema": {"type": "object"}, "strict": False}
    update = {
        "type": "configuration_update",
        "reasoning": {"effort": "high"},
        "text": {"format": form},
    }
    tools = added(WEATHER, namespace(INNER, PATCH))
    first = check(await served.stream(input=[tools, USER]))
    second = check(await served.stream(input=[update, USER], previous_response_id=first["id"]))
    await served.end()
    served = await serve(final('{"a": 1}'))
    third = check(await served.stream(input="Again.", previous_response_id=second["id"]))
    assert third["reasoning"]["effort"] == "high" and third["text"]["format"]["name"] == "f"
    names = [function.model_name for function in served.turns[-1].options.functions]
    assert names == ["get_weather", "crm__look", "crm__patch"]


async def test_namespace_of_all_functions_adds_nothing_to_their_names(serve: Serve) -> None:
    served = await serve("<|channel|>commentary to=functions.patch <|message|>*** a<|call|>", HELLO)
    tools = [{**namespace(PATCH), "name": "functions"}]
    response = check(await served.stream(input=[added(*tools), USER]))
    (item,) = response["output"]
    assert (item["namespace"], item["name"]) == ("functions", "patch")
    output = {"type": "custom_tool_call_output", "call_id": item["call_id"]}
    items = [added(*tools), USER, item, {**output, "output": "wait"}, {**output, "output": "done"}]
    check(await served.stream(input=items))
    read = "<|start|>functions.patch to=assistant<|channel|>commentary<|message|>"
    assert f"{read}wait<|end|>{read}done<|end|>" in engine_markup(served), (
        "a notice, and the output"
    )
