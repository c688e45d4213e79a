"""Fields of chat completions: each does what it says, or is refused by its name."""

import json
import re
from typing import Any

import jsonschema
import openai
import pytest

from tests.agent.server.test_chat_completions import NESTED, USER, streamed_message
from tests.support.endpoint import Serve, Served, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import HELLO, call, final, preamble, raw_call, thought

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CUSTOM = {"type": "custom", "custom": {"name": "apply_patch", "description": "Edit files."}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def choice_of(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def assistant_call(name: str, number: int = 1) -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


async def complete(served: Served, **body: Any) -> Any:
    body = {"model": "default", "messages": USER, **body}
    return await served.client().chat.completions.create(**body)


# --- refused ---

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ["x" * 1001]}, "stop"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"moderation": {"model": "x"}}, "moderation"),
    ({"service_tier": "gold"}, "service_tier"),
    ({"prompt_cache_options": {"mode": "explicit"}}, "prompt_cache_options.mode"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"verbosity": "loud"}, "verbosity"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"metadata": {"a": "x" * 513}}, "metadata.a"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -2}, "max_completion_tokens"),
    ({"top_k": -2}, "top_k"),
    ({"seed": "x"}, "seed"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    (
        {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]},
        "messages[0].function_call",
    ),
    ({"tools": [NESTED], "tool_choice": {"type": "function"}}, "tool_choice.function"),
    ({"tools": [NESTED], "tool_choice": choice_of("other")}, "tool_choice"),
    (
        {
            "tools": [NESTED],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [choice_of("other")]},
            },
        },
        "tool_choice.allowed_tools.tools[0]",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
    ),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    ({"messages": [{"role": "assistant", "audio": {"id": "x"}}]}, "messages[0].audio"),
    ({"messages": [{"role": "function", "name": "f", "content": "1"}]}, "messages[0].role"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}]},
        "messages[0].tool_calls[0].function",
    ),
]


async def test_chat_refused_fields_are_named(serve: Serve) -> None:
    served = await serve(HELLO)
    for body, param in REFUSED:
        answer = await served.post({"messages": USER, **body}, url=f"{served.url}/chat/completions")
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] == param, (body, error)
        assert error["type"] == "invalid_request_error" and error["message"].endswith("."), error
    assert not served.turns


@pytest.mark.parametrize("stream", [False, True])
async def test_lenient_chat_passes_over_and_names_what_it_does_not_have(
    serve: Serve, stream: bool
) -> None:
    served = await serve(HELLO, server={"lenient": True})
    thinking = {"type": "thinking", "thinking": "Hm."}
    messages = [
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}], "audio": {}},
        {"role": "user", "content": [IMAGE, {"type": "text", "text": "Look."}], "name": "Ada"},
    ]
    body = {
        "messages": messages,
        "stream": stream,
        "reasoning_effort": "ultra",
        "service_tier": "gold",
        "modalities": ["text", "smell"],
        "audio": {"voice": "alloy"},
        "web_search_options": {"user_location": {}},
        "tools": [NESTED, {"type": "time_travel"}],
        "tool_choice": {"type": "time_travel"},
    }
    answer = await served.post(body, url=f"{served.url}/chat/completions")
    assert answer.status_code == 200, answer.text
    assert set(answer.headers["agent-ignored"].split(", ")) == {
        "audio", "messages[0].audio", "messages[0].content[0]", "messages[1].content[0]",
        "modalities[1]", "reasoning_effort", "service_tier", "tool_choice", "tools[1]", "tools[2]",
        "web_search_options", "web_search_options.user_location",
    }  # fmt: skip
    markup = engine_markup(served)
    assert "[There was an image here; this model cannot see images.]\nAda: Look." in markup
    assert "<|message|>Yes.<|end|>" in markup
    answer = await served.post(
        {"messages": [{"role": "critic", "content": "x"}]}, url=f"{served.url}/chat/completions"
    )
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages[0].role"


async def test_image_fails_its_request_and_not_the_conversation(serve: Serve) -> None:
    served = await serve(HELLO)
    url = f"{served.url}/chat/completions"
    seen = {"role": "user", "content": [{"type": "text", "text": "Look."}, IMAGE]}
    later = {"role": "user", "content": "Forget it."}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "y"}
    for messages in (
        [seen, later],
        [seen, {"role": "assistant", "content": "No."}, later],
        [seen, assistant_call("look"), result],
    ):
        answer = await served.post({"messages": messages}, url=url)
        assert answer.status_code == 200, answer.text
        assert "Look.\n[There was an image here" in engine_markup(served)
    for messages in ([later, seen], [{"role": "system", "content": [IMAGE]}, later]):
        answer = await served.post({"messages": messages}, url=url)
        assert answer.status_code == 400, messages


async def test_chat_image_is_refused_in_a_sentence(serve: Serve) -> None:
    served = await serve(HELLO)
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]
    with pytest.raises(openai.BadRequestError, match="this model cannot see images"):
        await complete(served, messages=messages)


# --- what makes no difference ---


async def test_chat_fields_without_effect_are_accepted(serve: Serve) -> None:
    served = await serve(HELLO)
    body = await complete(
        served,
        store=True,
        user="me",
        safety_identifier="me",
        prompt_cache_key="key",
        modalities=["text"],
        service_tier="flex",
        metadata={"run": "7"},
        verbosity="medium",
        stop="",
        response_format={"type": "text"},
        tool_choice="none",
        seed=-5,
    )
    assert body.service_tier == "default" and body.metadata == {"run": "7"}
    assert body.system_fingerprint.startswith("fp_")
    assert served.turns[0].options.sampling.seed == 2**32 - 5


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "field",
    [
        {"stream_options": {"include_usage": True}},
        {"logprobs": False, "top_logprobs": 0},
        {"prediction": {"type": "content", "content": "x"}},
        {"modalities": []},
        {"max_tokens": -1},
        {"max_completion_tokens": -1},
        {"top_k": -1},
        {"function_call": "auto"},
        {"prompt_cache_retention": "in-memory"},
    ],
    ids=lambda field: next(iter(field)),
)
async def test_chat_habits_of_clients_are_accepted(serve: Serve, field: dict[str, Any]) -> None:
    body = await complete(await serve(HELLO), extra_body=field)
    assert body.choices[0].finish_reason == "stop"


async def test_chat_empty_functions_leave_tools_alone(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"))
    body = await complete(served, tools=[NESTED], functions=[])
    assert [one.function.name for one in body.choices[0].message.tool_calls] == ["get_weather"]


async def test_chat_parts_named_as_in_responses_are_text(serve: Serve) -> None:
    served = await serve(HELLO)
    parts = {
        "user": {"type": "input_text", "text": "one"},
        "assistant": {"type": "output_text", "text": "two"},
    }
    messages = [{"role": role, "content": [part]} for role, part in parts.items()]
    await complete(served, messages=[*messages, *USER])
    assert "<|message|>one<|end|>" in (markup := engine_markup(served))
    assert "<|message|>two<|end|>" in markup


# --- stop ---


@pytest.mark.parametrize("stop", ["three", ["never", " three"]])
@pytest.mark.parametrize("in_preamble", [False, True])
async def test_chat_stop_ends_the_content(serve: Serve, stop: Any, in_preamble: bool) -> None:
    """Reasoning may have the text; after a preamble that has it comes nothing more."""
    counted = "one two three four"
    messages = [preamble(counted), final(counted)] if in_preamble else [final(counted)]
    served = await serve(thought(counted) + "".join(messages))
    body = await complete(served, stop=stop)
    (choice,) = body.choices
    expected = "one two " if stop == "three" else "one two"
    assert choice.message.content == expected and choice.finish_reason == "stop"
    assert choice.message.model_dump()["reasoning"] == "one two three four"
    message, _ = await streamed_message(served, messages=USER, stop=stop)
    assert message["content"] == expected and message["finish_reason"] == "stop"
    for turn in served.turns:
        assert check([json.loads(event.model_dump_json()) for event in turn.log.events])


async def test_chat_stopped_answer_sent_back_is_read_as_sent(serve: Serve) -> None:
    served = await serve(final("one two STOPPED there"), final("Yes."))
    first = await complete(served, stop="STOP")
    assert first.choices[0].message.content == "one two "
    answer = {"role": "assistant", "content": first.choices[0].message.content}
    await complete(served, messages=[*USER, answer, {"role": "user", "content": "Go on."}])
    assert "<|message|>one two <|end|>" in engine_markup(served)


@pytest.mark.long
async def test_chat_stop_within_schema(serve: Serve) -> None:
    """The embedded model writes a schema's JSON: it ends before the text."""
    served = await serve()
    properties = {"name": {"enum": ["abc"]}}
    schema = {"type": "object", "properties": properties, "required": ["name"]}
    # Else it depends on the prompt's date whether the model goes on with other properties.
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    whole = await complete(served, response_format=form, temperature=0, reasoning_effort="low")
    assert json.loads(whole.choices[0].message.content) == {"name": "abc"}
    cut = await complete(
        served, response_format=form, temperature=0, reasoning_effort="low", stop="bc"
    )
    assert cut.choices[0].message.content == whole.choices[0].message.content.partition("bc")[0]
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens < whole.usage.completion_tokens


async def test_chat_stop_with_logprobs(serve: Serve) -> None:
    served = await serve()
    settings: dict[str, Any] = {"temperature": 0, "logprobs": True, "messages": HELLO_USER}
    whole = await complete(served, **settings)
    text = whole.choices[0].message.content
    stop = whole.choices[0].logprobs.content[3].token
    cut = await complete(served, stop=stop, **settings)
    tokens = [token.token for token in cut.choices[0].logprobs.content]
    assert "".join(tokens) == cut.choices[0].message.content == text.partition(stop)[0]
    assert served.runtime.loaded and served.runtime.loaded.engine.unfinished == 0


HELLO_USER: list[Any] = [{"role": "user", "content": "Hello!"}]

# --- n ---


@pytest.mark.long
async def test_chat_choices_of_the_embedded_model(serve: Serve) -> None:
    served = await serve()
    unsure: list[Any] = [{"role": "user", "content": "What can you do?"}]
    settings: dict[str, Any] = {"messages": unsure, "n": 3, "seed": 1, "temperature": 1.5}
    body = await complete(served, **settings)
    texts = [choice.message.content for choice in body.choices]
    assert [choice.index for choice in body.choices] == [0, 1, 2] and len(set(texts)) > 1
    one = await complete(served, **{**settings, "n": 1})
    assert body.usage.prompt_tokens == one.usage.prompt_tokens
    assert body.usage.completion_tokens > one.usage.completion_tokens
    assert [turn.options.sampling.seed for turn in served.turns] == [1, 2, 3, 1]


async def test_chat_choices_stream_equals_body(serve: Serve) -> None:
    replies = [thought(text) + final(text.upper()) for text in ("one", "two", "three")]
    served = await serve(*replies)
    body = await complete(served, n=3)
    texts = [choice.message.content for choice in body.choices]
    assert texts == ["ONE", "TWO", "THREE"]
    streamed = {0: "", 1: "", 2: ""}
    reasons = {}
    stream = await complete(served, stream=True, stream_options={"include_usage": True}, n=3)
    chunks = [chunk async for chunk in stream]
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        streamed[choice.index] += choice.delta.content or ""
        reasons[choice.index] = choice.finish_reason
        assert chunk.usage is None
    assert list(streamed.values()) == texts and set(reasons.values()) == {"stop"}
    last = chunks[-1]
    assert last.choices == [] and last.usage.completion_tokens == body.usage.completion_tokens


async def test_chat_chunks_of_all_choices_have_one_id(serve: Serve) -> None:
    served = await serve(HELLO, HELLO)
    stream = await served.client().chat.completions.create(
        model="default", messages=USER, n=2, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1


async def test_chat_disconnect_stops_every_choice(serve: Serve) -> None:
    from tests.support.endpoint import open_request
    from tests.support.scripts import LONG

    served = await serve(LONG, LONG)
    body = {"messages": USER, "n": 2, "stream": True}
    leaving = await open_request(served, body, path="/v1/chat/completions")
    while len(served.turns) < 2:
        await served.get("/health")
    leaving.close()
    for turn in served.turns:
        assert (await turn.done()).status == "cancelled"


# --- tools ---


async def test_chat_tool_type_that_is_no_text_is_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    for kind in (["function"], {"a": 1}, 1):
        tools = [{"type": kind, "function": {"name": "f"}}]
        answer = await served.post(
            {"messages": USER, "tools": tools}, url=f"{served.url}/chat/completions"
        )
        assert api_error(answer, 400)["param"] == "tools[0].type"


async def test_chat_older_functions_are_refused_with_the_name_of_the_newer(serve: Serve) -> None:
    served = await serve(HELLO)
    body = {"messages": USER, "functions": [{"name": "f"}]}
    error = api_error(await served.post(body, url=f"{served.url}/chat/completions"), 400)
    assert error["message"] == "The older form of 'tools' is not supported by this server."


async def test_chat_custom_tool_round_trip(serve: Serve) -> None:
    served = await serve(raw_call("functions.apply_patch", "*** Begin Patch"), final("Done."))
    asked = await complete(served, tools=[CUSTOM])
    (tool_call,) = asked.choices[0].message.tool_calls
    assert (tool_call.type, tool_call.custom.input) == ("custom", "*** Begin Patch")
    answer = asked.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": tool_call.id, "content": "ok"}
    told = await complete(served, messages=[*USER, answer, result], tools=[CUSTOM])
    assert told.choices[0].message.content == "Done."


@pytest.mark.parametrize(
    ("tool_choice", "declared", "must"),
    [
        ("none", set(), "none"),
        ("auto", {"get_weather", "other"}, "may"),
        ("required", {"get_weather", "other"}, "must"),
        (choice_of("other"), {"other"}, "must"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NESTED]}},
            {"get_weather"},
            "may",
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [choice_of("other")]},
            },
            {"other"},
            "must",
        ),
    ],
)
async def test_chat_tool_choice_forms(
    serve: Serve, tool_choice: Any, declared: set[str], must: str
) -> None:
    served = await serve(HELLO)
    tools = [NESTED, {"type": "function", "function": {"name": "other"}}]
    await complete(served, tools=tools, tool_choice=tool_choice)
    options = served.turns[0].options
    assert {f.name for f in options.functions} == declared and options.tool_choice == must


async def test_chat_embedded_model_obeys_named_choice(serve: Serve) -> None:
    served = await serve()
    tools = [NESTED, {"type": "function", "function": {"name": "other", "parameters": SCHEMA}}]
    body = await complete(served, tools=tools, tool_choice=choice_of("other"), temperature=0)
    (tool_call,) = body.choices[0].message.tool_calls
    assert tool_call.function.name == "other"
    jsonschema.validate(json.loads(tool_call.function.arguments), SCHEMA)


# --- messages ---


async def test_chat_odd_messages_are_read(serve: Serve) -> None:
    served = await serve(HELLO)
    messages: list[Any] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "name": "Ada", "content": "Weather?"},
        {**assistant_call("get_weather"), "refusal": None, "content": ""},
        assistant_call("get_time", 2),
        {"role": "tool", "tool_call_id": "call_2", "name": "get_time", "content": "12:00"},
        {
            "role": "tool",
            "tool_call_id": "call_1",
            "content": [{"type": "text", "text": "cold"}, {"type": "text", "text": "wet"}],
        },
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
        {"role": "user", "name": "Bob", "content": [{"type": "text", "text": "Why?"}]},
        {"role": "assistant"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": ""},
    ]
    await complete(served, messages=messages)
    markup = engine_markup(served)
    for expected in (
        "Be brief.",
        "<|start|>user<|message|>Ada: Weather?<|end|>",
        "<|start|>functions.get_time to=assistant<|channel|>commentary<|message|>12:00<|end|>",
        "<|message|>cold\nwet<|end|>",
        "<|channel|>final<|message|>I cannot.<|end|>",
        "<|start|>user<|message|>Bob: Why?<|end|>",
        "Be kind.",
    ):
        assert expected in markup, expected


async def test_chat_results_are_read_in_the_order_of_their_calls(serve: Serve) -> None:
    """Two calls of one function: only the order tells whose result it is."""
    served = await serve(HELLO)
    calls = [assistant_call("get_weather", number)["tool_calls"][0] for number in (1, 2, 3)]
    results = [
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number}"}
        for number in (3, 1, 2)
    ]
    asked = [*USER, {"role": "assistant", "tool_calls": calls}, *results]
    again = [{"role": "assistant", "tool_calls": [calls[1], calls[0]]}, results[1], results[2]]
    await complete(served, messages=[*asked, *again], tools=[NESTED])
    assert re.findall(r"result \d", engine_markup(served)) == [
        f"result {number}" for number in (1, 2, 3, 2, 1)
    ]


async def test_chat_image_of_a_tool_becomes_a_sentence(serve: Serve) -> None:
    served = await serve(HELLO)
    parts = [{"type": "text", "text": "Screenshot:"}, IMAGE, {"type": "file", "file": {}}]
    result = {"role": "tool", "tool_call_id": "call_1", "content": parts}
    await complete(served, messages=[*USER, assistant_call("get_weather"), result])
    assert "Screenshot:\n[There was an image here; " in (markup := engine_markup(served))
    assert "[There was a file here; " in markup
