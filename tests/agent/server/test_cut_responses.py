"""What a response that was cut off leaves to its client, and to others."""

from __future__ import annotations

from typing import Any

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
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "another client"},
        {
            "type": "function_call",
            "call_id": "c",
            "name": "get_weather",
            "arguments": item["arguments"],
        },
        {"type": "function_call_output", "call_id": "c", "output": "cold"},
    ]
    check(await served.stream(input=history, tools=[WEATHER]))
    assert '{"place": 1}<|call|>' in engine_markup(served)
