"""``defer_loading`` and ``tool_search``: the model finds deferred tools, and calls what it found."""

from typing import Any

from tests.support.endpoint import Serve, engine_markup
from tests.support.hosts import server_option
from tests.support.invariants import check
from tests.support.scripts import WEATHER, call, final

SEARCH = {"type": "tool_search"}
USER = {"role": "user", "content": "Weather in Oslo?"}
DEFERRED = {**WEATHER, "defer_loading": True}
LOOK = {"type": "function", "name": "look", "description": "Look up a customer.", "parameters": {}}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "",
    "tools": [{**LOOK, "defer_loading": True}],
}
FIND, ASK = call("tool_search", query="weather"), call("get_weather", place="Oslo")


async def test_deferred_function_is_searched_and_called(serve: Serve) -> None:
    from openai.types.responses import ResponseToolSearchCall, ResponseToolSearchOutputItem

    served = await serve(FIND, ASK, final("Cold."))
    tools = [DEFERRED, CRM, SEARCH]
    first = check(await served.stream(input=[USER], tools=tools))
    search, matches, called = first["output"]
    ResponseToolSearchCall.model_validate(search, strict=True)
    ResponseToolSearchOutputItem.model_validate(matches)
    assert (search["type"], search["execution"], search["status"]) == (
        "tool_search_call", "server", "completed"
    )  # fmt: skip
    assert (search["arguments"], search["call_id"]) == ({"query": "weather"}, None)
    assert [tool["name"] for tool in matches["tools"]] == ["get_weather"]
    assert matches["tools"][0]["parameters"] == WEATHER["parameters"]
    assert (called["type"], called["name"]) == ("function_call", "get_weather")
    assert [tool["type"] for tool in first["tools"]] == ["function", "namespace", "tool_search"]
    assert first["tools"][0]["defer_loading"] is True
    prompt = engine_markup(served)
    header = prompt.partition("<|start|>user")[0]
    assert "type tool_search = " in header and "crm (1)" in header
    assert "type get_weather" not in header and "type crm__look" not in header
    assert "type get_weather = (_: {" in prompt and "crm__look" not in prompt

    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "-3"}
    for items, more in (
        ([result], {"previous_response_id": first["id"]}),
        ([USER, *first["output"], result], {}),  # as a client that keeps nothing here sends it
    ):
        served.turns.clear()
        check(await served.stream(input=items, tools=tools, **more))
        assert engine_markup(served).startswith(prompt.rpartition("<|start|>assistant")[0])


async def test_tools_of_a_server_are_deferred(serve: Serve) -> None:
    matches, counted = (
        call("tool_search", query="count apples"),
        call("many__count_apples", place="x"),
    )
    served = await serve(
        matches, counted, final("7"), tools="many", mcp=[server_option("many", "9")]
    )
    many = {"type": "mcp", "server_label": "many", "require_approval": "never"}
    response = check(
        await served.stream(input="x", tools=[{**many, "defer_loading": True}, SEARCH])
    )
    listed, search, output, counted_item, _ = response["output"]
    assert (listed["type"], search["type"]) == ("mcp_list_tools", "tool_search_call")
    (tools,) = output["tools"]
    assert (tools["server_label"], len(tools["allowed_tools"])) == ("many", 5)
    assert counted_item["output"] == "count_apples at x: 7"


async def test_deferral_needs_a_search_of_this_server(serve: Serve) -> None:
    served = await serve(final("ok"))
    client = {**SEARCH, "execution": "client"}
    for tools, param in (
        ([DEFERRED], "tools[0].defer_loading"),
        ([client, DEFERRED], "tools[1].defer_loading"),
        ([CRM], "tools[0].tools[0].defer_loading"),
    ):
        refused = await served.post({"input": "x", "tools": tools})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == param
        assert "tool_search" in refused.json()["error"]["message"]
    answer = await served.post({"input": "x", "tools": [WEATHER, SEARCH]})
    assert answer.headers["agent-ignored"] == "tools[1]", "nothing to search"


async def test_search_that_the_client_runs(serve: Serve) -> None:
    found = call("functions.tool_search", words=["weather"])
    served = await serve(found, call("functions.get_weather", city="Oslo"), final("ok"))
    words = {"type": "array", "items": {"type": "string"}}
    parameters = {"type": "object", "properties": {"words": words}, "required": ["words"]}
    search = {"type": "tool_search", "execution": "client", "parameters": parameters}
    search |= {"description": "Finds apps."}
    events = await served.stream(input="x", tools=[search])
    response = check(events)
    (item,) = response["output"]
    assert (item["type"], item["execution"]) == ("tool_search_call", "client")
    assert (item["arguments"], item["status"]) == ({"words": ["weather"]}, "completed")
    assert response["tools"] == [search]
    assert "// Finds apps.\ntype tool_search = (_: {\nwords: string[]," in engine_markup(served)
    output = {"type": "tool_search_output", "call_id": item["call_id"], "execution": "client"}
    output |= {"status": "completed", "tools": [WEATHER]}
    for history in (
        {"previous_response_id": response["id"], "input": [output]},
        {"input": [{"role": "user", "content": "x"}, item, output]},
    ):
        response = check(await served.stream(tools=[search], **history))
        assert response["output"][-1]["type"] in ("function_call", "message")
        assert "Found: get_weather." in engine_markup(served)
        assert "type get_weather = " in engine_markup(served)


async def test_search_that_the_client_runs_is_deleted_with_its_output(serve: Serve) -> None:
    from openai.types.responses import ResponseToolSearchCall

    served = await serve(call("tool_search", query="weather"), final("Cold."), final("ok"))
    client = served.client()
    conversation = (await client.conversations.create()).id
    tools: Any = [{"type": "tool_search", "execution": "client"}]
    body: Any = {"conversation": conversation, "tools": tools}
    first = await client.responses.create(input="x", **body)
    (made,) = first.output
    assert isinstance(made, ResponseToolSearchCall) and made.call_id is not None
    found = {"call_id": made.call_id, "execution": "client", "tools": [WEATHER]}
    assert (
        await client.responses.create(input=[{"type": "tool_search_output", **found}], **body)
    ).output_text == "Cold."
    await client.conversations.items.delete(made.id, conversation_id=conversation)
    page = await client.conversations.items.list(conversation, limit=100)
    assert {item.type for item in page.data} == {"message"}
    assert (await client.responses.create(input="y", **body)).output_text == "ok"
    assert "weather" not in engine_markup(served).lower()


async def test_search_that_the_client_runs_can_be_chosen(serve: Serve) -> None:
    served = await serve(call("tool_search", query="x"), final("ok"))
    search = {"type": "tool_search", "execution": "client"}
    allowed: dict[str, Any] = {"type": "allowed_tools", "mode": "auto", "tools": [search]}
    body = {"input": "x", "tools": [WEATHER, search]}
    response = check(await served.stream(**body, tool_choice=allowed))
    assert response["output"][-1]["arguments"] == {"query": "x"}
    assert "get_weather" not in engine_markup(served)
    allowed["tools"] = [{"type": "function", "name": "get_weather"}]
    check(await served.stream(**body, tool_choice=allowed))
    assert "tool_search" not in engine_markup(served)
    wrong = await served.post({"input": "x", "tools": [{**search, "parameters": []}]})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tools[0].parameters")


async def test_choice_holds_for_deferred_tools(serve: Serve) -> None:
    served = await serve(FIND, final("ok"), final("ok"))
    allowed: dict[str, Any] = {"type": "allowed_tools", "mode": "auto"}
    allowed["tools"] = [{"type": "function", "name": "get_weather"}, SEARCH]
    tools = [DEFERRED, CRM, SEARCH]
    response = check(await served.stream(input="x", tools=tools, tool_choice=allowed))
    assert response["output"][1]["tools"][0]["name"] == "get_weather"
    assert "crm" not in engine_markup(served)
    check(await served.stream(input="x", tools=tools, tool_choice="none"))
    assert "tool_search" not in engine_markup(served)
