"""Limits and choices of a request are enforced, whatever the model would do.

On the embedded model: test_constraints.py, test_sampling.py.
"""

import json
from typing import Any

import pytest

from agent import events as ev
from agent.formats.markup.default_templates import TEMPLATES
from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import WEATHER, call, final, python, thought

TIME = {**WEATHER, "name": "get_time"}


def qwen_calls(*cities: str) -> str:
    calls = ({"name": "get_weather", "arguments": {"place": city}} for city in cities)
    return (
        "".join(f"<tool_call>{json.dumps(tool_call)}</tool_call>\n" for tool_call in calls)
        + "<|im_end|>"
    )


@pytest.mark.parametrize("logprobs", [0, 1])
async def test_parallel_tool_calls_false_ends_at_first_call(serve: Serve, logprobs: int) -> None:
    served = await serve(qwen_calls("Oslo", "Rome"), model="qwen3-4b")
    body: dict[str, Any] = {"input": "x", "tools": [WEATHER], "top_logprobs": logprobs}
    for parallel, number in ((True, 2), (None, 2), (False, 1)):
        response = check(await served.stream(**body, parallel_tool_calls=parallel))
        assert [item["type"] for item in response["output"]] == ["function_call"] * number
        assert response["parallel_tool_calls"] is (parallel is not False)
    output_tokens = [
        turn.response.usage.output_tokens for turn in served.turns if turn.response.usage
    ]
    assert output_tokens[2] < output_tokens[0], "what was not said was not counted"
    result = {
        "type": "function_call_output",
        "call_id": response["output"][0]["call_id"],
        "output": "cold",
    }
    followed = await served.stream(
        input=[result], tools=[WEATHER], previous_response_id=response["id"]
    )
    assert check(followed)["status"] == "completed"


async def test_max_tool_calls_further_calls_are_ignored(serve: Serve) -> None:
    served = await serve(python("print(1)"), python("print(2)"), final("One."), tools="python")
    response = check(await served.stream(input="x", tools=[CODE_INTERPRETER], max_tool_calls=1))
    _, ran, message = response["output"]
    assert ran["output"] == "1" and message["content"][0]["text"] == "One."
    assert response["status"] == "completed"
    assert "the limit of tool calls for this answer is used up" in engine_markup(served)
    (repair,) = [e for e in served.turns[0].log.events if isinstance(e, ev.AgentRepair)]
    assert repair.rule == "call_over_limit" and "print(2)" in repair.text


@pytest.mark.parametrize("limit", [16, 25])
async def test_max_output_tokens_counts_all_generations(serve: Serve, limit: int) -> None:
    """Whether it is reached in the first generation or after a tool has run."""
    served = await serve(
        thought("Compute.") + python("print(6*7)"), final("forty two " * 20), tools="python"
    )
    response = check(
        await served.stream(input="x", tools=[CODE_INTERPRETER], max_output_tokens=limit)
    )
    assert response["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == limit
    assert len(response["output"]) == (3 if limit == 16 else 4)


async def test_allowed_tools_other_call_is_no_item(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"), final("No."))
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    for chosen in ({"tool_choice": choice}, {"tool_choice": "none"}):
        response = check(await served.stream(input="x", tools=[WEATHER, TIME], **chosen))
        (message,) = response["output"]
        assert message["content"][0]["text"] == "No."


async def test_context_full_ends_answer(serve: Serve) -> None:
    served = await serve(final("word " * 500), context=300)
    response = check(await served.stream(input="x"))
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    usage = response["usage"]
    assert usage["total_tokens"] == 300 and response["output"][0]["status"] == "incomplete"


async def test_effort_and_instructions_reach_prompt(serve: Serve) -> None:
    served = await serve(final("x"))
    for effort, prompt_effort in (("minimal", "low"), ("medium", "medium"), ("xhigh", "high")):
        body = {"input": "x", "reasoning": {"effort": effort}, "instructions": f"Be {effort}."}
        response = check(await served.stream(**body))
        assert response["reasoning"]["effort"] == prompt_effort
        assert f"Reasoning: {prompt_effort}" in engine_markup(
            served
        ) and f"Be {effort}." in engine_markup(served)


SWITCH = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("low", False), ("high", True)])
async def test_effort_low_turns_a_switch_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, effort: str, thinks: bool
) -> None:
    monkeypatch.setitem(TEMPLATES, "qwen3", SWITCH)
    served = await serve("x<|im_end|>", model="qwen3-4b")
    response = check(await served.stream(input="hi", reasoning={"effort": effort}))
    assert response["reasoning"]["effort"] == ("high" if thinks else "low")
    form, engine = served.runtime.format, served.runtime.loaded.engine  # type: ignore[union-attr]
    read = b"".join(map(form.token_bytes, engine.answered_ids)).decode()  # type: ignore[union-attr]
    assert ("</think>" in read) is not thinks


async def test_effort_without_control_is_refused_and_null(serve: Serve) -> None:
    served = await serve("x<|im_end|>", model="qwen3-4b")
    for body in ({}, {"reasoning": {"effort": "medium"}}, {"reasoning": {"effort": None}}):
        assert check(await served.stream(input="x", **body))["reasoning"]["effort"] is None
    error = api_error(await served.post({"input": "x", "reasoning": {"effort": "high"}}), 400)
    assert error["param"] == "reasoning.effort"
    assert error["message"] == "The model 'qwen3-4b' has no reasoning effort that can be set."


async def test_lenient_server_passes_over_effort_without_control(serve: Serve) -> None:
    served = await serve("x<|im_end|>", model="qwen3-4b", server={"lenient": True})
    answer = await served.post({"input": "x", "reasoning": {"effort": "high"}})
    assert answer.status_code == 200 and answer.headers["agent-ignored"] == "reasoning.effort"
    assert answer.json()["reasoning"]["effort"] is None
    body = {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "high"}
    answer = await served.post(body, url=f"{served.url}/chat/completions")
    assert answer.status_code == 200 and answer.headers["agent-ignored"] == "reasoning_effort"


UNFIT = "'Oslo' is not of type 'integer'"
FORM = {"name": "n", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}


async def test_lax_answer_that_does_not_fit_is_named(serve: Serve) -> None:
    """Nothing holds a script to the schema, as nothing holds a model to what no grammar expresses."""
    served = await serve(final('{"n": "Oslo"}'), final('{"n": "Oslo"}'), final('{"n": 3}'))
    form: dict[str, Any] = {"format": {"type": "json_schema", **FORM}}
    response = check(await served.stream(input="x", text=form))
    assert response["status"] == "completed"
    repair = {"rule": "answer_unfit", "text": f"n: {UNFIT}", "item_id": response["output"][0]["id"]}
    assert response["repairs"] == [repair]
    body = await served.client().chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": "x"}],
        response_format={"type": "json_schema", "json_schema": FORM},  # type: ignore[typeddict-item]
    )
    (choice,) = body.choices
    assert choice.finish_reason == "stop" and choice.message.content == '{"n": "Oslo"}'
    assert choice.model_extra == {"repairs": [{"rule": "answer_unfit", "text": f"n: {UNFIT}"}]}
    assert "repairs" not in (await served.post({"input": "x", "text": form})).json()


async def test_json_object_that_is_none_is_named(serve: Serve) -> None:
    served = await serve(final("[1]"), final("Hello."))
    for why in ("[1] is not of type 'object'", "it is not JSON"):
        body = await served.post({"input": "x", "text": {"format": {"type": "json_object"}}})
        (repair,) = body.json()["repairs"]
        assert repair["rule"] == "answer_unfit" and repair["text"].startswith(why)


@pytest.mark.parametrize("stream", [False, True])
async def test_strict_answer_that_does_not_fit_fails(serve: Serve, stream: bool) -> None:
    served = await serve(final('{"n": "Oslo"}'), final('{"n": "Oslo"}'))
    form = {"format": {"type": "json_schema", **FORM, "strict": True}}
    if stream:
        failed = check(await served.stream(input="x", text=form))
        error = failed["error"]
        assert failed["status"] == "failed" and failed["output"][0]["type"] == "message"
    else:
        error = api_error(await served.post({"input": "x", "text": form}), 500)
    assert error["code"] == "server_error" and UNFIT in error["message"]


async def test_strict_arguments_that_do_not_fit_are_named(serve: Serve) -> None:
    markup = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    unfit, fit = (markup.replace("{}", text) for text in ('{"n": "Oslo"}', '{"n": 3}'))
    served = await serve(unfit, unfit, fit, unfit)
    parameters = {**FORM["schema"], "required": ["n"], "additionalProperties": False}
    function: dict[str, Any] = {"name": "f", "parameters": parameters, "strict": True}
    response = check(await served.stream(input="x", tools=[{"type": "function", **function}]))
    (call,) = response["output"]
    assert (call["status"], call["arguments"]) == ("completed", '{"n": "Oslo"}')
    repair = {"rule": "arguments_unfit", "text": f"n: {UNFIT}", "item_id": call["id"]}
    assert response["repairs"] == [repair]
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
    chat["tools"] = [{"type": "function", "function": function}]
    body = await served.client().chat.completions.create(model="default", **chat)
    (choice,) = body.choices
    assert choice.model_extra and choice.model_extra["repairs"][0]["rule"] == "arguments_unfit"
    for strict in (True, False):
        tool = {"type": "function", **function, "strict": strict}
        assert "repairs" not in (await served.post({"input": "x", "tools": [tool]})).json()
