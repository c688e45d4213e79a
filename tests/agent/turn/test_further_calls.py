"""Several calls of a client's functions in one response of a model that ends at each call."""

from typing import Any

import pytest

from agent.turn.further_calls import MAX_CALLS_IN_A_ROW, MAX_UNDECIDED_TOKENS
from tests.support.endpoint import Serve, Served
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import WEATHER, call, final, preamble, python, raw_call, thought
from tests.support.websocket import open_socket, request_events

OSLO, ROME = call("get_weather", place="Oslo"), call("get_weather", place="Rome")
NESTED = {"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}
REQUEST: dict[str, Any] = {"input": "Oslo, Rome?", "tools": [WEATHER], "parallel_tool_calls": True}


def calls_of(response: dict[str, Any]) -> list[str]:
    assert response["status"] == "completed", response
    return [item["arguments"] for item in response["output"] if item["type"] == "function_call"]


async def respond(served: Served, **fields: Any) -> dict[str, Any]:
    return check(await served.stream(**{**REQUEST, **fields}))


async def test_two_calls_come_in_one_response(serve: Serve) -> None:
    served = await serve(thought("Two.") + OSLO, ROME, final("Both."))
    response = await respond(served)
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["reasoning", "function_call", "function_call"]
    assert calls_of(response) == ['{"place": "Oslo"}', '{"place": "Rome"}']
    ids = {item["call_id"] for item in response["output"] if item["type"] == "function_call"}
    assert len(ids) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"parallel_tool_calls": None},
        {"parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "name": "get_weather"}},
    ],
    ids=str,
)
async def test_one_call_where_several_are_not_wanted(serve: Serve, fields: dict[str, Any]) -> None:
    served = await serve(OSLO, ROME)
    assert len(calls_of(await respond(served, **fields))) == 1


NO_FURTHER_CALL = {
    "answer": final("Done."),
    "reasoning and answer": thought("That is all.") + final("Done."),
    "preamble": preamble("I wait.") + ROME,
    "the same call again": "" + raw_call("functions.get_weather", '{"place":"Oslo"}'),
    "a function that nobody declared": call("get_time"),
    "a tool that runs here": python("print(1)"),
    "the result, invented": "<|start|>functions.get_weather to=assistant<|channel|>commentary",
    "a call that is cut off": '<|channel|>commentary to=functions.get_weather<|message|>{"pl',
    "reasoning": thought("Now Rome.") + ROME,
    "nothing": "<|return|>",
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("written", NO_FURTHER_CALL.values(), ids=NO_FURTHER_CALL)
async def test_anything_but_a_further_call_is_dropped(serve: Serve, written: str) -> None:
    served = await serve(thought("Oslo.") + OSLO, written, final("never read"), tools="python")
    response = await respond(served, tools=[WEATHER, CODE_INTERPRETER])
    kinds = [item["type"] for item in response["output"] if item["type"] != "mcp_list_tools"]
    assert kinds == ["reasoning", "function_call"]
    conversation = served.turns[0].conversation
    assert len([entry for entry in conversation.entries if entry.role == "assistant"]) == 2


async def test_calls_in_a_row_are_limited(serve: Serve) -> None:
    places = [call("get_weather", place=f"place {n}") for n in range(MAX_CALLS_IN_A_ROW + 5)]
    served = await serve(*places)
    assert len(calls_of(await respond(served))) == MAX_CALLS_IN_A_ROW


@pytest.mark.parametrize(
    ("further_tokens", "status"), [(0, "completed"), (3, "completed"), (60, "incomplete")]
)
async def test_limit_of_tokens_counts_for_sent_calls(
    serve: Serve, further_tokens: int, status: str
) -> None:
    """Reached before the further call is certain, it leaves a complete answer; within it, none."""
    script = OSLO, call("get_weather", place="Rome " * 100)
    one = await respond(await serve(*script), parallel_tool_calls=False)
    limit = one["usage"]["output_tokens"] + further_tokens
    response = await respond(await serve(*script), max_output_tokens=limit)
    assert response["status"] == status
    assert response["output"][0]["status"] == "completed"
    sent = 0 if status == "completed" else further_tokens
    assert response["usage"]["output_tokens"] == limit - further_tokens + sent


async def test_search_for_a_further_call_costs_the_client_nothing(serve: Serve) -> None:
    """Its prompt is no further pass, and what is dropped is counted apart: two tokens decide."""
    reasons = thought("We have to wait for the result. " * 10) + final("I wait.")
    one = await respond(await serve(OSLO), parallel_tool_calls=False)
    served = await serve(OSLO, reasons)
    searched = await respond(served)
    assert searched["usage"] == one["usage"]
    assert served.turns[0].usage.auxiliary.output_tokens <= 2
    served = await serve(OSLO, ROME, call("get_weather", place="Bern"), final("x"))
    three = await respond(served)
    assert len(calls_of(three)) == 3
    assert three["usage"]["input_tokens"] == one["usage"]["input_tokens"]
    assert served.turns[0].usage.auxiliary.output_tokens <= MAX_UNDECIDED_TOKENS


async def test_chat_numbers_the_calls(serve: Serve) -> None:
    script = (thought("Two.") + OSLO, ROME, final("Both."))
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Oslo, Rome?"}],
        "tools": [NESTED],
        "parallel_tool_calls": True,
        "model": "default",
    }
    client = (await serve(*script)).client()
    answer = await client.chat.completions.create(**body)
    (choice,) = answer.choices
    written = [one.function.arguments for one in choice.message.tool_calls or ()]  # type: ignore[union-attr]
    assert choice.finish_reason == "tool_calls"
    assert written == ['{"place": "Oslo"}', '{"place": "Rome"}']
    client = (await serve(*script)).client()
    streamed: dict[int, str] = {}
    async for chunk in await client.chat.completions.create(**body, stream=True):
        for part in chunk.choices[0].delta.tool_calls or ():
            assert part.function is not None
            streamed[part.index] = streamed.get(part.index, "") + (part.function.arguments or "")
    assert streamed == dict(enumerate(written))


async def test_websocket_has_both_calls(serve: Serve) -> None:
    served = await serve(OSLO, ROME, final("Both."))
    async with open_socket(served) as client:
        events = await request_events(client, **REQUEST)
    assert len(calls_of(check(events))) == 2


@pytest.mark.parametrize("resent", [False, True])
async def test_results_come_in_the_order_of_their_calls(serve: Serve, resent: bool) -> None:
    served = await serve(OSLO, ROME, final("Wait."), final("Cold, warm."))
    response = await respond(served)
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": text}
        for item, text in zip(response["output"], ("-3", "21"), strict=True)
    ]
    outputs.reverse()
    if resent:
        first_input: list[Any] = [{"role": "user", "content": REQUEST["input"]}]
        follow_up = {**REQUEST, "input": first_input + response["output"] + outputs}
    else:
        follow_up = {**REQUEST, "input": outputs, "previous_response_id": response["id"]}
    assert check(await served.stream(**follow_up))["status"] == "completed"
    encoding = served.runtime.format
    ids = served.turns[-1].conversation.ids()
    text = b"".join(encoding.token_bytes(token) for token in ids).decode()
    places = [text.index(part) for part in ('Oslo"}', 'Rome"}', "|>-3<", "|>21<")]
    assert places == sorted(places)


PROMPTS = ["List src", "Read README.md", "Read main.py", "Read README.md, then read LICENSE."]


def path_function(name: str) -> dict[str, Any]:
    path = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {
        "type": "function",
        "name": name,
        "description": name.replace("_", " "),
        "parameters": path,
    }


FILES = [path_function("read_file"), path_function("list_files")]


@pytest.mark.long
async def test_embedded_model_makes_no_call_twice(serve: Serve) -> None:
    served = await serve()
    for prompt in PROMPTS:
        fields = {"input": prompt, "tools": FILES, "temperature": 0, "max_output_tokens": 400}
        response = check(await served.stream(**fields, parallel_tool_calls=True))
        calls = calls_of(response)
        assert calls and len(calls) == len(set(calls)), prompt


async def test_answering_calls_reuses_the_prefix(serve: Serve) -> None:
    served = await serve()
    prompt = "List src and read README.md."
    common = {"tools": FILES, "temperature": 0, "max_output_tokens": 400}
    first = check(await served.stream(input=prompt, parallel_tool_calls=True, **common))
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "nothing"}
        for item in first["output"]
        if item["type"] == "function_call"
    ]
    assert outputs
    before = len(served.turns[0].conversation.ids())
    second = check(await served.stream(input=outputs, previous_response_id=first["id"], **common))
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= before - 1
