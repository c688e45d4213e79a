"""The older endpoint: the same turns, in the shape that older clients read."""

import json
from typing import Any

import pytest

from tests.support.endpoint import Serve, Served, engine_markup, first_turn, open_request
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import (
    HELLO,
    LONG,
    WEATHER,
    call,
    final,
    preamble,
    python,
    raw_call,
    thought,
)

NESTED = {"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}
USER: list[Any] = [{"role": "user", "content": "Oslo?"}]


async def streamed_message(served: Served, **body: Any) -> tuple[dict[str, Any], list[Any]]:
    """The message as a client puts it together, and the chunks."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": {}}
    stream = await served.client().chat.completions.create(
        model="default", stream=True, stream_options={"include_usage": True}, **body
    )
    chunks = [chunk async for chunk in stream]
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        delta = choice.delta.model_dump(exclude_none=True)
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name, "")
        for part in delta.get("tool_calls", ()):
            tool_call = message["tool_calls"].setdefault(part["index"], {"arguments": ""})
            tool_call |= (
                {"id": part["id"], "name": part["function"]["name"]} if "id" in part else {}
            )
            tool_call["arguments"] += part["function"]["arguments"]
    message["finish_reason"] = chunks[-2].choices[0].finish_reason
    return message, chunks


async def test_chat_stream_equals_body(serve: Serve) -> None:
    served = await serve(thought("Hm.") + preamble("First.") + final("Then."))
    message, chunks = await streamed_message(served, messages=USER)
    body = await served.client().chat.completions.create(model="default", messages=USER)
    (choice,) = body.choices
    assert message["content"] == choice.message.content == "First.\n\nThen."
    assert message["reasoning_content"] == "Hm."
    assert choice.message.model_dump()["reasoning_content"] == "Hm."
    assert message["finish_reason"] == choice.finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1 and chunks[0].id.startswith("chatcmpl-")
    assert chunks[-1].choices == [] and chunks[-1].usage and body.usage
    assert chunks[-1].usage.completion_tokens == body.usage.completion_tokens > 0
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens == 2


async def test_chat_repairs_are_in_the_choice_for_strict_clients_too(serve: Serve) -> None:
    """The client of these tests validates what it gets."""
    broken = thought("Hm.") + raw_call("functions.get_weather", '{"place": "Oslo"')
    served = await serve(broken, HELLO, broken)
    _, chunks = await streamed_message(served, messages=USER, tools=[NESTED])
    plain, _ = await streamed_message(served, messages=USER, tools=[NESTED])
    body = await served.client().chat.completions.create(
        model="default", messages=USER, tools=[NESTED]
    )
    (choice,) = body.choices
    call_id = (choice.message.tool_calls or [])[0].id
    assert choice.model_extra == {
        "repairs": [{"rule": "arguments", "text": "", "tool_call_id": call_id}]
    }
    ends = [chunk.choices[0] for chunk in chunks[:-1] if "repairs" in chunk.choices[0].model_extra]
    assert [end.finish_reason for end in ends] == ["tool_calls"]
    (repair,) = ends[0].model_extra["repairs"]
    assert repair["rule"] == "arguments" and repair["tool_call_id"].startswith("call_")
    assert plain["content"] == "Hello there!", "and nothing was mended"


async def test_chat_empty_answers_add_nothing(serve: Serve) -> None:
    served = await serve(final(""), final("SYNC"), final(""), final("SYNC"))
    message, _ = await streamed_message(served, messages=USER)
    body = await served.client().chat.completions.create(model="default", messages=USER)
    assert message["content"] == body.choices[0].message.content == "SYNC"
    served = await serve(final(""), final(""))
    body = await served.client().chat.completions.create(model="default", messages=USER)
    assert body.choices[0].message.content is None


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_chat_resent_reasoning_precedes_its_call(serve: Serve, name: str) -> None:
    """In a tool loop the model reads why it called; of finished turns its reasoning is dropped."""
    served = await serve(final("Cold."), final("Warm."))
    client = served.client()
    function = {"name": "get_weather", "arguments": '{"place": "Oslo"}'}
    messages: list[Any] = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello.", name: "A greeting."},
        *USER,
        {
            "role": "assistant",
            "content": None,
            name: "Look it up.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "-3 °C"},
    ]
    await client.chat.completions.create(model="default", messages=messages, tools=[NESTED])
    reasoning = "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant"
    assert f"{reasoning}<|channel|>commentary to=functions.get_weather" in engine_markup(served)
    assert "A greeting." not in engine_markup(served)
    messages += [{"role": "assistant", "content": "Cold."}, {"role": "user", "content": "Rome?"}]
    await client.chat.completions.create(model="default", messages=messages, tools=[NESTED])
    assert "Look it up." not in engine_markup(served)


async def test_chat_reasoning_has_both_names(serve: Serve) -> None:
    served = await serve(thought("Hm.") + final("Oslo."))
    body = await served.client().chat.completions.create(model="default", messages=USER)
    dumped = body.choices[0].message.model_dump()
    assert dumped["reasoning"] == dumped["reasoning_content"] == "Hm."
    _, chunks = await streamed_message(served, messages=USER)
    deltas = [chunk.choices[0].delta.model_dump() for chunk in chunks[:-1]]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "Hm."
    assert all(delta.get("reasoning") == delta.get("reasoning_content") for delta in deltas)


async def test_chat_function_call_round_trip(serve: Serve) -> None:
    reply = thought("Weather.") + call("get_weather", place="Oslo")
    served = await serve(reply, final("Cold."), reply)
    body = await served.client().chat.completions.create(
        model="default", messages=USER, tools=[NESTED]
    )
    (choice,) = body.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (tool_call,) = choice.message.tool_calls or ()
    assert tool_call.type == "function" and json.loads(tool_call.function.arguments) == {
        "place": "Oslo"
    }
    before = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    assistant = choice.message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": tool_call.id, "content": "-3 °C"}
    answer = await served.client().chat.completions.create(
        model="default", messages=[*USER, assistant, result], tools=[NESTED]
    )
    assert answer.choices[0].message.content == "Cold."
    after = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    assert after[: len(before)] == before, "what the model wrote is kept, to the token"
    message, _ = await streamed_message(served, messages=USER, tools=[NESTED])
    (streamed_call,) = message["tool_calls"].values()
    assert (streamed_call["name"], streamed_call["arguments"]) == (
        "get_weather",
        '{"place": "Oslo"}',
    )
    assert message["finish_reason"] == "tool_calls"


async def test_chat_settings_reach_the_turn(serve: Serve) -> None:
    served = await serve(HELLO)
    await served.client().chat.completions.create(
        model="tiny",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]},
        ],
        temperature=0.5,
        max_completion_tokens=50,
        reasoning_effort="high",
        response_format={"type": "json_object"},
    )
    (turn,) = served.turns
    assert turn.options.max_output_tokens == 50 and turn.options.sampling.temperature == 0.5
    markup = engine_markup(served)
    assert "Be brief." in markup and "Reasoning: high" in markup and "# Response Formats" in markup
    assert "<|message|>a\nb<|end|>" in markup
    assert turn.response.store is False


async def test_chat_token_limit_and_forced_call(serve: Serve) -> None:
    served = await serve(final("one two three four"), '{"place": "Oslo"}<|call|>')
    client = served.client()
    cut = await client.chat.completions.create(model="default", messages=USER, max_tokens=5)
    assert cut.choices[0].finish_reason == "length"
    demanded = await client.chat.completions.create(
        model="default",
        messages=USER,
        tools=[NESTED],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    )
    assert demanded.choices[0].message.tool_calls


async def test_chat_mcp_tool_runs_here(serve: Serve) -> None:
    served = await serve(python("print(6*7)"), final("42"), tools="python")
    answer = await served.client().chat.completions.create(
        model="default", messages=USER, tools=[CODE_INTERPRETER]
    )
    assert answer.choices[0].message.content == "42"


async def test_chat_bad_requests_name_the_parameter(serve: Serve) -> None:
    import openai

    served = await serve(HELLO, context=400)
    client = served.client()
    refused: list[tuple[dict[str, Any], str | None]] = [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "y"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "word " * 500}]}, "messages"),
    ]
    for body, param in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="default", **body)
        assert caught.value.param == param, body
    assert not served.turns


async def test_chat_turn_fails_midway_error_chunk(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    served = await serve(HELLO)
    await served.runtime.ready()
    monkeypatch.setattr(served.runtime.format, "parser", lambda recipients: 1 / 0)
    with pytest.raises(openai.APIError, match="log file"):
        await streamed_message(served, messages=USER)


async def test_chat_disconnect_cancels(serve: Serve) -> None:
    served = await serve(LONG)
    body = {"messages": USER, "stream": True}
    leaving = await open_request(served, body, path="/v1/chat/completions")
    turn = await first_turn(served)
    leaving.close()
    assert (await turn.done()).status == "cancelled"
