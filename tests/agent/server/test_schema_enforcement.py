"""What a request says is held to, whatever the model would do, and not only shown in the response.

On the embedded model: test_constraints.py, test_sampling.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agent.server.test_tool_selection import CODE, seen
from tests.support.endpoint import Serve
from tests.support.invariants import check
from tests.support.scripts import WEATHER, call, final, python, thought

TIME = {**WEATHER, "name": "get_time"}


def qwen(*places: str) -> str:
    calls = ({"name": "get_weather", "arguments": {"place": place}} for place in places)
    return "".join(f"<tool_call>{json.dumps(one)}</tool_call>\n" for one in calls) + "<|im_end|>"


@pytest.mark.parametrize("logprobs", [0, 1])
async def test_one_call_at_a_time(serve: Serve, logprobs: int) -> None:
    served = await serve(qwen("Oslo", "Rome"), model="qwen3-4b")
    asked: dict[str, Any] = {"input": "x", "tools": [WEATHER], "top_logprobs": logprobs}
    for parallel, number in ((True, 2), (None, 2), (False, 1)):
        response = check(await served.stream(**asked, parallel_tool_calls=parallel))
        assert [item["type"] for item in response["output"]] == ["function_call"] * number
        assert response["parallel_tool_calls"] is (parallel is not False)
    whole = [turn.response.usage.output_tokens for turn in served.turns if turn.response.usage]
    assert whole[2] < whole[0], "what was not said was not counted"
    result = {
        "type": "function_call_output",
        "call_id": response["output"][0]["call_id"],
        "output": "cold",
    }
    followed = await served.stream(
        input=[result], tools=[WEATHER], previous_response_id=response["id"]
    )
    assert check(followed)["status"] == "completed"


async def test_calls_beyond_their_number_do_not_run(serve: Serve) -> None:
    served = await serve(python("print(1)"), python("print(2)"), final("One."), tools="python")
    response = check(await served.stream(input="x", tools=[CODE], max_tool_calls=1))
    _, ran, not_run, message = response["output"]
    assert ran["output"] == "1" and not_run["status"] == "failed"
    assert "limit" in not_run["error"]["message"] and message["content"][0]["text"] == "One."
    assert response["status"] == "completed"


@pytest.mark.parametrize("most", [16, 25])
async def test_the_limit_of_tokens_is_the_whole_responses(serve: Serve, most: int) -> None:
    """Whether it is reached in the first generation or after a tool has run."""
    served = await serve(
        thought("Compute.") + python("print(6*7)"), final("forty two " * 20), tools="python"
    )
    response = check(await served.stream(input="x", tools=[CODE], max_output_tokens=most))
    assert response["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == most
    assert len(response["output"]) == (3 if most == 16 else 4)


async def test_a_tool_that_was_not_allowed_is_not_called(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"), final("No."))
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    for asked in ({"tool_choice": choice}, {"tool_choice": "none"}):
        response = check(await served.stream(input="x", tools=[WEATHER, TIME], **asked))
        made, message = response["output"]
        assert (made["type"], made["status"]) == ("mcp_call", "failed")
        assert message["content"][0]["text"] == "No."


async def test_a_context_that_is_full_ends_the_answer(serve: Serve) -> None:
    served = await serve(final("word " * 500), context=300)
    response = check(await served.stream(input="x"))
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    usage = response["usage"]
    assert usage["total_tokens"] == 300 and response["output"][0]["status"] == "incomplete"


async def test_effort_and_instructions_are_told(serve: Serve) -> None:
    served = await serve(final("x"))
    for effort, told in (("minimal", "low"), ("medium", "medium"), ("xhigh", "high")):
        body = {"input": "x", "reasoning": {"effort": effort}, "instructions": f"Be {effort}."}
        response = check(await served.stream(**body))
        assert response["reasoning"]["effort"] == told
        assert f"Reasoning: {told}" in seen(served) and f"Be {effort}." in seen(served)
