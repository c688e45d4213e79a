"""What a response that was cut off leaves to its client, and to others."""

from typing import Any

import pytest

from tests.support.endpoint import Serve, engine_markup
from tests.support.invariants import check
from tests.support.scripts import WEATHER, call, final

OSLO = call("get_weather", place="Oslo")
TOOLS = {"tools": [WEATHER], "parallel_tool_calls": True}


async def test_complete_call_of_a_cut_response_has_one_result(serve: Serve) -> None:
    served = await serve(OSLO, call("get_weather", place="Rome " * 100), final("Cold."))
    first = check(await served.stream(input="x", max_output_tokens=60, **TOOLS))
    statuses = [(item["type"], item["status"]) for item in first["output"]]
    assert first["status"] == "incomplete"
    assert statuses == [("function_call", "completed"), ("function_call", "incomplete")]
    output = {
        "type": "function_call_output",
        "call_id": first["output"][0]["call_id"],
        "output": "minus three",
    }
    check(await served.stream(input=[output], previous_response_id=first["id"], **TOOLS))
    markup = engine_markup(served)
    assert markup.count("to=assistant") == 1 and "minus three" in markup
    assert "Error" not in markup


async def test_cut_call_is_nobody_elses_complete_one(serve: Serve) -> None:
    """Its text is that of a complete call, once its brackets are closed."""
    cut = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"place": 1'
    served = await serve(cut, final("Cold."))
    first = check(await served.stream(input="x", tools=[WEATHER]))
    (item,) = (item for item in first["output"] if item["type"] == "function_call")
    assert (item["status"], item["arguments"]) == ("incomplete", '{"place": 1}')
    again = {**OSLO_CALL, "arguments": item["arguments"]}
    check(await served.stream(input=resent(again), tools=[WEATHER]))
    assert '{"place": 1}<|call|>' in engine_markup(served)


CALL_HEADERS = [
    "<|channel|>commentary to=functions.get_weather <|constrain|>json",
    "<|channel|>commentary to=functions.get_weather<|constrain|>json",
    "<|channel|>commentary to=functions.get_weather <|constrain|> json",
    "<|channel|>commentary to=functions.get_weather json",
    "<|channel|>commentary to=functions.get_weather code",
    "<|channel|>commentary to=functions.get_weather",
    "<|channel|>commentary to=get_weather <|constrain|>json",
    "<|channel|>commentary functions.get_weather <|constrain|>json",
    "<|channel|>commentary <|constrain|>json to=functions.get_weather",
    "<|channel|>commentary <|constrain|>functions.get_weather",
    "<|channel|>commentary to=functions.get_weather..commentary json",
    "<|channel|>commentary to=assistant<|channel|>commentary to=functions.get_weather json",
    "<|channel|>analysis to=functions.get_weather <|constrain|>json",
    "<|channel|>analysis to=functions.get_weather code",
    "<|channel|>analysis to=functions.get_weather",
    "<|channel|>functions.get_weather",
    " to=functions.get_weather<|channel|>commentary <|constrain|>json",
    " to=functions.get_weather<|channel|>commentary json",
    " to=functions.get_weather<|channel|>commentary",
    " to=functions.get_weather<|channel|>analysis json",
    " to=functions.get_weather code<|channel|>analysis",
    " to=functions.get_weather <|constrain|>json",
]
"""The headers with which gpt-oss writes calls."""
OSLO_CALL = {"type": "function_call", "name": "get_weather", "arguments": '{"place": "Oslo"}'}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("header", CALL_HEADERS)
async def test_header_of_a_call_is_no_other_clients_rendering(serve: Serve, header: str) -> None:
    served = await serve(f'{header}<|message|>{{"place": "Oslo"}}<|call|>', final("Cold."))
    first = check(await served.stream(input="x", tools=[WEATHER]))
    (item,) = (item for item in first["output"] if item["type"] == "function_call")
    assert item | OSLO_CALL == item and item["status"] == "completed"
    check(await served.stream(input=resent(OSLO_CALL), tools=[WEATHER]))
    assert engine_markup(served).count(OSLO) == 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "markup",
    [
        final("Cold."),
        "<|channel|>final <|constrain|>json<|message|>Cold.<|return|>",
        "<|channel|>final json<|message|>Cold.<|return|>",
        "<|channel|>final<|message|>Cold.<|end|>",
        "<|channel|>finalCold.<|return|>",
        "<|channel|>commentary<|channel|>final<|message|>Cold.<|return|>",
        "finalCold.<|return|>",
        "Cold.<|return|>",
    ],
)
async def test_header_of_an_answer_is_no_other_clients_rendering(serve: Serve, markup: str) -> None:
    served = await serve(markup, final("Warm."))
    first = check(await served.stream(input="x"))
    (item,) = first["output"]
    assert item["content"][0]["text"] == "Cold."
    answer = {"type": "message", "role": "assistant", "content": "Cold.", "phase": "final_answer"}
    check(await served.stream(input=resent(answer)))
    assert "<|start|>assistant<|channel|>final<|message|>Cold.<|end|>" in engine_markup(served)


def resent(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Another client's history that ends with the item, and with its result if it is a call."""
    history = [{"role": "user", "content": "another client"}, item]
    if item["type"] == "message":
        return [*history, {"role": "user", "content": "And now?"}]
    history[1] = item | {"call_id": "c"}
    return [*history, {"type": "function_call_output", "call_id": "c", "output": "cold"}]


CUT = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"place":"Os<|call|>'
ASK = {"model": "default", "messages": [{"role": "user", "content": "x"}]}
FUNCTION = {"type": "function", "function": {"name": "get_weather", "strict": False}}


async def test_streamed_chat_ends_at_a_call_that_is_cut_off(serve: Serve) -> None:
    """Its chunks were sent: another call of the same answer would come beside it."""
    served = await serve(CUT, OSLO)
    client = served.client()
    body: dict[str, Any] = {**ASK, "tools": [FUNCTION]}
    stream = await client.chat.completions.create(**body, stream=True)
    chunks = [chunk.choices[0] async for chunk in stream if chunk.choices]
    calls = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert {call.index for call in calls} == {0} and chunks[-1].finish_reason == "length"
    choice = (await (await serve(CUT, OSLO)).client().chat.completions.create(**body)).choices[0]
    assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls or ()) == 1


async def test_cut_input_of_a_custom_tool_is_no_call(serve: Serve) -> None:
    custom = '<|channel|>commentary to=functions.patch <|constrain|>json<|message|>{"input":"abc'
    whole = custom + 'def"}<|call|>'
    served = await serve(custom + "<|call|>", whole)
    tool = {"type": "custom", "name": "patch"}
    response = check(await served.stream(input="x", tools=[tool]))
    assert [(item["input"], item.get("status")) for item in response["output"]] == [
        ('{"input":"abc', "incomplete"),
        ("abcdef", None),
    ]
    assert "cut off" in engine_markup(served)


async def test_streamed_arguments_are_those_of_the_item(serve: Serve) -> None:
    header = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    for text in (" \n", '{"a":1}}', "null", "print(1)", "{'a':1}", '```json\n{"a":1}\n```'):
        served = await serve(f"{header}{text}<|call|>")
        tool = {"type": "function", "name": "get_weather", "strict": False, "parameters": None}
        events = await served.stream(input="x", tools=[tool])
        (item,) = check(events)["output"]
        deltas = [e["delta"] for e in events if e["type"].endswith("arguments.delta")]
        assert "".join(deltas) == item["arguments"]
