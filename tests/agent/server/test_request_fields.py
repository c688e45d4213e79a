"""Every field of OpenAI's requests is done or refused, as the table in docs/responses.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.responses.response_create_params import (
    BackgroundOptions,
    PromptCacheOptions,
    ResponseCreateParamsNonStreaming,
    StreamOptions,
)
from openai.types.responses.response_includable import ResponseIncludable
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from openai.types.shared_params.reasoning import Reasoning

from agent.server.field_rules import MAX_NAMED_PATHS
from tests.support.endpoint import Serve, api_error, engine_markup
from tests.support.invariants import check
from tests.support.scripts import HELLO, WEATHER

DOCS = Path(__file__).parents[3] / "docs" / "responses.md"
NESTED: dict[str, Any] = {
    "reasoning": Reasoning,
    "text": ResponseTextConfigParam,
    "stream_options": StreamOptions,
    "background_options": BackgroundOptions,
    "prompt_cache_options": PromptCacheOptions,
}
"""Fields whose own fields have rows of their own."""
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
MESSAGE = {"role": "user", "content": [IMAGE]}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
SCHEMA = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
ACCEPTED: dict[str, list[Any]] = {
    "model": ["default", None],
    "input": ["x", [{"role": "user", "content": "x"}]],
    "instructions": ["Be brief.", None],
    "previous_response_id": [None],
    "tools": [[], [WEATHER], [{"type": "web_search"}, {"type": "tool_search"}]],
    "tool_choice": ["auto", "none"],
    "parallel_tool_calls": [True, False, None],
    "max_output_tokens": [16, -1, None],
    "max_tool_calls": [1, None],
    "context_management": [[], None],
    "reasoning.effort": ["none", "minimal", "low", "medium", "high", "xhigh", "max", None],
    "reasoning.summary": ["auto", "concise", "detailed", None],
    "reasoning.generate_summary": ["auto", None],
    "reasoning.context": ["auto", "current_turn", None],
    "reasoning.mode": ["standard"],
    "text.format": [{"type": "text"}, SCHEMA],
    "text.verbosity": ["low", "medium", "high", None],
    "temperature": [0, 1.5],
    "top_p": [0.5],
    "top_logprobs": [0, 5],
    "truncation": ["auto", "disabled"],
    "metadata": [{"a": "b"}, {}, None],
    "store": [True, False],
    "stream": [False],
    "stream_options.include_obfuscation": [False, True],
    "background": [False],
    "background_options.completion_window": ["soonest"],
    "service_tier": ["auto", "default", "flex", "scale", "priority", "fast", "ultrafast", None],
    "prompt_cache_key": ["a"],
    "prompt_cache_retention": ["in_memory", "24h"],
    "prompt_cache_options.mode": ["implicit"],
    "safety_identifier": ["a"],
    "user": ["a"],
    "include": [
        [],
        ["reasoning.encrypted_content", "message.output_text.logprobs"],
        ["web_search_call.action.sources", "code_interpreter_call.outputs"],
        [*get_args(ResponseIncludable)],
    ],
}
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "access_programs": [({"cyber": "standard"}, "")],
    "background_options.completion_window": [("2h", "")],
    "background_options.continuation_id": [("a", "")],
    "background": [("yes", "")],
    "context_management": [([{"type": "compaction"}], "")],
    "conversation": [({"id": "a", "mood": 1}, ".mood"), (1, "")],
    "image": [({"context_compression": "auto"}, "")],
    "include": [(["nonsense"], "[0]")],
    "input": [([MESSAGE], "[0].content[0].type"), ([{"type": "computer_call"}], "[0]")],
    "max_output_tokens": [(15, "")],
    "max_tool_calls": [(0, "")],
    "metadata": [({"a": "b" * 513}, ".a")],
    "moderation": [({"model": "omni-moderation-latest"}, "")],
    "prompt": [({"id": "pmpt_1"}, "")],
    "prompt_cache_options.comparison_response_id": [("resp_1", "")],
    "prompt_cache_options.mode": [("explicit", "")],
    "prompt_cache_options.prewarm": [(True, "")],
    "prompt_cache_options.ttl": [("30m", "")],
    "reasoning.context": [("all_turns", "")],
    "reasoning.mode": [("pro", "")],
    "stream_options.include_obfuscation": [("no", "")],
    "text.format": [({**SCHEMA, "mood": 1}, ".mood")],
    "tools": [
        ([{"type": "computer_use_preview"}], "[0].type"),
        ([{"type": "local_shell"}], "[0].type"),
        ([{"type": "file_search", "vector_store_ids": ["a"]}], "[0].type"),
        ([{**WEATHER, "defer_loading": True}], "[0].defer_loading"),
        ([{**WEATHER, "mood": 1}], "[0].mood"),
        ([{"type": "mcp", "server_label": "a", "connector_id": "connector_gmail"}],
         "[0].connector_id"),
        ([{**CODE, "container": {"type": "auto", "file_ids": ["a"]}}], "[0].container.file_ids"),
        ([{**CODE, "container": {"type": "auto", "memory_limit": "4g"}}],
         "[0].container.memory_limit"),
    ],
    "top_logprobs": [(21, "")],
    "truncation": [("middle", "")],
}  # fmt: skip


def body_with(field: str, value: Any) -> dict[str, Any]:
    """A request that has the value at a field's path."""
    name, _, inner = field.partition(".")
    return {"input": "x", name: {inner: value} if inner else value}


def test_every_field_of_openai_is_tested_and_in_the_table() -> None:
    fields = {
        f"{name}.{inner}" if inner else name
        for name in ResponseCreateParamsNonStreaming.__annotations__
        for inner in (NESTED[name].__annotations__ if name in NESTED else [""])
    }
    assert fields == ACCEPTED.keys() | REFUSED.keys()
    rows = re.findall(r"^\| (`.*?) \| ", DOCS.read_text(), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert fields <= documented


async def test_accepted_values_are_accepted(serve: Serve) -> None:
    served = await serve(HELLO, tools="python")
    for field, values in ACCEPTED.items():
        for value in values:
            answer = await served.post(body_with(field, value))
            assert answer.status_code == 200, (field, value, answer.text)


async def test_other_values_are_refused_with_the_parameter(serve: Serve) -> None:
    served = await serve(HELLO, tools="python")
    for field, values in REFUSED.items():
        for value, path in values:
            answer = await served.post(body_with(field, value))
            error = api_error(answer, 400)
            assert error["param"] == field + path, (field, value, error)
    assert not served.turns, "nothing was begun"


async def test_minus_one_is_no_limit(serve: Serve) -> None:
    served = await serve(HELLO)
    for body in ({"max_output_tokens": -1, "top_k": -1}, {"max_output_tokens": None}):
        answer = (await served.post({"input": "x", **body})).json()
        assert answer["max_output_tokens"] is None
    assert served.turns[0].options.sampling.top_k == 0
    for value in (-2, True, -1.0, "-1"):
        error = api_error(await served.post({"input": "x", "max_output_tokens": value}), 400)
        assert error["param"] == "max_output_tokens"


async def test_null_asks_for_nothing(serve: Serve) -> None:
    served = await serve(HELLO)
    body = dict.fromkeys(field.partition(".")[0] for field in REFUSED)
    answer = await served.post({**body, "input": "x", "reasoning": {"mood": None}})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("stream", [False, True])
async def test_lenient_passes_over_and_names_what_it_does_not_have(
    serve: Serve, stream: bool
) -> None:
    served = await serve(HELLO, server={"lenient": True})
    body = {
        "input": [{**MESSAGE, "mood": "good"}],
        "reasoning": {"mode": "pro", "effort": "low", "nope": 1},
        "include": ["everything", "reasoning.encrypted_content", "more"],
        "tools": [{**WEATHER, "output_schema": {}}, {"type": "time_travel"}],
        "tool_choice": {"type": "function", "name": "get_weather", "odd": 1},
        "service_tier": "slow",
        "max_output_tokens": 3,
        "moderation": {"model": "m"},
        "ünicode\n": 1,
        "stream": stream,
    }
    answer = await served.post(body)
    assert answer.status_code == 200, answer.text
    assert set(answer.headers["agent-ignored"].split(", ")) == {
        "?", "input[0].mood", "include[0]", "include[2]", "moderation", "reasoning.mode",
        "reasoning.nope", "service_tier", "tool_choice.odd", "tools[0].output_schema", "tools[1]",
    }  # fmt: skip
    assert "There was an image here" in engine_markup(served)
    assert served.turns[0].options.encrypted_reasoning
    wrong = await served.post({**body, "temperature": "hot"})
    assert api_error(wrong, 400)["param"] == "temperature", "what is wrong is refused"


async def test_header_names_item_fields_that_are_not_read(serve: Serve) -> None:
    served = await serve(HELLO)
    item = {"role": "user", "content": [{"type": "input_text", "text": "x", "mood": 1}], "a": 1}
    answer = await served.post({"input": [item]})
    assert answer.headers["agent-ignored"] == "input[0].a, input[0].content[0].mood"
    many = {"role": "user", "content": "x"} | {f"f{n}": 1 for n in range(50)}
    named = (await served.post({"input": [many]})).headers["agent-ignored"].split(", ")
    assert len(named) == MAX_NAMED_PATHS + 1 and named[-1] == "..."
    plain = await served.post({"input": [{"role": "user", "content": "x", "status": "completed"}]})
    assert "agent-ignored" not in plain.headers


async def test_image_in_a_function_output_leaves_a_text(serve: Serve) -> None:
    served = await serve(HELLO)
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [IMAGE]}
    check(await served.stream(input=[{"role": "user", "content": "x"}, call, output]))
    assert "There was an image here" in engine_markup(served)


async def test_verbosity_is_in_the_prompt(serve: Serve) -> None:
    served = await serve(HELLO)
    prompts = {}
    for verbosity in ("low", "medium", "high"):
        response = check(await served.stream(input="x", text={"verbosity": verbosity}))
        assert response["text"]["verbosity"] == verbosity
        prompts[verbosity] = engine_markup(served)
    assert "as briefly as you can" in prompts["low"] and "in detail" in prompts["high"]
    assert "Verbosity" not in prompts["medium"]


async def test_prompt_cache_retention_in_memory_keeps_nothing_on_disk(serve: Serve) -> None:
    served = await serve(HELLO)
    response = check(await served.stream(input="x", prompt_cache_retention="in_memory", user="me"))
    assert (response["prompt_cache_retention"], response["user"]) == ("in_memory", "me")
    assert served.turns[0].options.private
    await served.stream(input="x", prompt_cache_retention="24h")
    assert not served.turns[1].options.private


async def test_warm_up_of_codex_is_accepted(serve: Serve) -> None:
    served = await serve(HELLO)
    answer = await served.post({"model": "default", "input": "", "max_output_tokens": 1})
    assert answer.status_code == 200, answer.text


async def test_web_search_options_are_refused_where_there_is_a_browser(serve: Serve) -> None:
    served = await serve(HELLO, tools="browser")
    search = {"type": "web_search", "user_location": None, "filters": {}}
    done = await served.post({"input": "x", "tools": [{**search, "search_context_size": "medium"}]})
    assert done.status_code == 200, done.text
    options = {
        "user_location": {"type": "approximate", "city": "Oslo"},
        "filters": {"allowed_domains": ["a.no"]},
    }
    for name, value in options.items():
        answer = await served.post({"input": "x", "tools": [{**search, name: value}]})
        assert api_error(answer, 400)["param"] == f"tools[0].{name}"
