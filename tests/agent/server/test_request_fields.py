"""Every field of OpenAI's requests is done or refused, as the table in docs/responses.md says."""

import re
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import httpx2
import pytest
from openai.types.responses import ResponseInputItemParam, ToolParam
from openai.types.responses.response_create_params import (
    BackgroundOptions,
    PromptCacheOptions,
    ResponseCreateParamsNonStreaming,
    StreamOptions,
    ToolChoice,
)
from openai.types.responses.response_includable import ResponseIncludable
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from openai.types.shared_params.reasoning import Reasoning
from typing_extensions import get_type_hints, is_typeddict

from agent.conversation.compaction import encode_summary
from agent.server.http.errors import UNSUPPORTED_FIELDS
from agent.server.input.listed_items import ITEM_FIELDS
from agent.server.input.parsing import MAX_NAMED_PATHS
from agent.server.input.schemas import RequestTool
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
    "context_management": [
        [],
        [{"type": "compaction"}],
        [{"type": "compaction", "compact_threshold": 1000}],
        None,
    ],
    "reasoning.effort": ["none", "minimal", "low", "medium", "high", "xhigh", "max", None],
    "reasoning.summary": ["auto", "concise", "detailed", None],
    "reasoning.generate_summary": ["auto", None],
    "reasoning.context": ["auto", "current_turn", "all_turns", None],
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
    "context_management": [([{"type": "erosion"}], "[0].type"),
                           ([{"type": "compaction", "compact_threshold": 9}],
                            "[0].compact_threshold")],
    "conversation": [({"id": "a", "mood": 1}, ".mood"), (1, "")],
    "image": [({"context_compression": "auto"}, "")],
    "include": [(["nonsense"], "[0]")],
    "input": [([MESSAGE], "[0].content[0].type"),
              ([{"type": "compaction_trigger"}, {"role": "user", "content": "x"}], "[0]")],
    "max_output_tokens": [(15, "")],
    "max_tool_calls": [(0, "")],
    "metadata": [({"a": "b" * 513}, ".a")],
    "moderation": [({"model": "omni-moderation-latest"}, "")],
    "prompt": [({"id": "pmpt_1"}, "")],
    "prompt_cache_options.comparison_response_id": [("resp_1", "")],
    "prompt_cache_options.mode": [("explicit", "")],
    "prompt_cache_options.prewarm": [(True, "")],
    "prompt_cache_options.ttl": [("30m", "")],
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


CALL = {"call_id": "c", "name": "look"}
SEARCH = {"type": "web_search_call", "id": "ws", "status": "completed"}
LISTED = {"id": "mcpl", "server_label": "s", "tools": []}
ITEMS: dict[str, Any] = {
    "message": {"role": "user", "content": "x"},
    "reasoning": {"id": "rs", "summary": []},
    "function_call": {**CALL, "arguments": "{}"},
    "function_call_output": {"call_id": "c", "output": "y"},
    "custom_tool_call": {**CALL, "input": "z"},
    "custom_tool_call_output": {"call_id": "c", "output": "y"},
    "web_search_call": {**SEARCH, "action": {"type": "search", "queries": ["x"]}},
    "file_search_call": {"id": "fs", "status": "completed", "queries": ["x"]},
    "computer_call": {"id": "cu", "call_id": "c", "action": {"type": "screenshot"}},
    "computer_call_output": {"call_id": "c", "output": {"type": "computer_screenshot"}},
    "tool_search_call": {"arguments": {"query": "x"}},
    "tool_search_output": {"tools": [{**WEATHER, "defer_loading": True}]},
    "additional_tools": {"role": "developer", "tools": [WEATHER]},
    "configuration_update": {"reasoning": {"effort": "high"}},
    "compaction": {"encrypted_content": encode_summary("They met.")},
    "image_generation_call": {"id": "ig", "status": "completed", "result": "AAAA"},
    "code_interpreter_call": {"id": "ci", "code": "1", "container_id": "x", "outputs": None},
    "local_shell_call": {"id": "ls", "call_id": "c", "action": {"command": ["ls"]}},
    "local_shell_call_output": {"id": "c", "output": "y"},
    "shell_call": {"call_id": "c", "action": {"commands": ["ls"]}},
    "shell_call_output": {"call_id": "c", "output": [{"stdout": "y", "stderr": ""}]},
    "apply_patch_call": {"call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
    "apply_patch_call_output": {"call_id": "c", "status": "completed"},
    "mcp_list_tools": LISTED,
    "mcp_approval_request": {"id": "mcpr", "server_label": "s", "name": "a", "arguments": "{}"},
    "mcp_approval_response": {"approval_request_id": "mcpr", "approve": False},
    "mcp_call": {"id": "mcp", "server_label": "s", "name": "a", "arguments": "{}", "output": "y"},
    "item_reference": {"id": "missing"},
    "program": {"id": "pr", "call_id": "c", "code": "1", "fingerprint": "f"},
    "program_output": {"id": "po", "call_id": "c", "result": "y", "status": "completed"},
    "compaction_trigger": {},
}
"""An item of each type of OpenAI's requests."""
PRECEDING = {
    "tool_search_output": "tool_search_call",
    "mcp_approval_response": "mcp_approval_request",
}
"""The items that these need before them, as other outputs need a call of their own name."""
REFUSED_ITEMS = {"compaction_trigger": "input[0]", "item_reference": "input[0]"}
"""Those that are refused, and the parameter that is named; nothing has the id of the reference."""
TOOLS: dict[str, Any] = {
    "function": WEATHER,
    "custom": {"name": "patch"},
    "namespace": {"name": "crm", "description": "", "tools": [WEATHER]},
    "mcp": {"server_label": "code_interpreter"},
    "code_interpreter": {"container": {"type": "auto"}},
    "web_search": {},
    "web_search_2025_08_26": {},
    "web_search_preview": {},
    "web_search_preview_2025_03_11": {},
    "tool_search": {},
    "image_generation": {},
    "shell": {"environment": {"type": "local"}},
    "apply_patch": {},
    **dict.fromkeys(
        ("file_search", "computer", "computer_use_preview", "programmatic_tool_calling",
         "local_shell"),
        None,
    ),
}  # fmt: skip
"""A tool of each type, None for those that are refused."""
CHOICES: dict[str, Any] = {
    "function": {"name": "get_weather"},
    "custom": {"name": "patch"},
    "mcp": {"server_label": "code_interpreter"},
    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]},
    "code_interpreter": {},
    **dict.fromkeys(
        ("file_search", "web_search_preview", "web_search_preview_2025_03_11", "computer",
         "computer_use_preview", "computer_use", "image_generation", "programmatic_tool_calling",
         "shell", "apply_patch"),
        None,
    ),
}  # fmt: skip
"""A choice of each type, None for those that are refused: their tools are not here."""
CHOSEN_FROM = [WEATHER, {"type": "custom", "name": "patch"}, CODE]


def members(union: Any) -> dict[str, set[str]]:
    """The members of a union of the SDK's types: their values of ``type``, and their fields."""
    found: dict[str, set[str]] = {}
    for member in get_args(union) if get_origin(union) is Union else [union]:
        if not is_typeddict(member):
            continue
        hints = get_type_hints(member)
        kinds = literals(hints.get("type", Literal["message"])) or {"message"}
        for kind in kinds:
            found.setdefault(kind, set()).update(hints)
    return found


def literals(hint: Any) -> set[str]:
    """The texts that a type allows."""
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {text for inner in get_args(hint) for text in literals(inner)}


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


async def test_every_item_of_openai_is_read_or_refused_by_name(serve: Serve) -> None:
    known = members(ResponseInputItemParam)
    assert known.keys() == ITEMS.keys(), "a new SDK has new items: read or refuse them"
    documented = DOCS.read_text()
    assert [kind for kind in known if f"`{kind}`" not in documented] == []
    served = await serve(HELLO)
    for kind, fields in known.items():
        item = {"type": kind, **ITEMS[kind]}
        before = PRECEDING.get(kind, kind.removesuffix("_output"))
        pair = [{"type": before, **ITEMS[before]}] if before != kind else []
        answer = await served.post({"input": [*pair, item, {"role": "user", "content": "x"}]})
        if kind in REFUSED_ITEMS:
            assert api_error(answer, 400)["param"] == REFUSED_ITEMS[kind]
        else:
            assert answer.status_code == 200, (kind, answer.text)
            assert "agent-ignored" not in answer.headers
        assert fields <= ITEM_FIELDS, kind


async def test_every_tool_of_openai_is_offered_left_out_or_refused_by_name(serve: Serve) -> None:
    known = members(ToolParam)
    assert known.keys() == TOOLS.keys(), "a new SDK has new tools: offer or refuse them"
    documented = DOCS.read_text()
    assert [kind for kind in known if f"`{kind}`" not in documented] == []
    served = await serve(HELLO, tools="python")
    for kind in known:
        answer = await served.post({"input": "x", "tools": [{"type": kind, **(TOOLS[kind] or {})}]})
        if TOOLS[kind] is None:
            error = api_error(answer, 400)
            assert (error["param"], kind in error["message"]) == ("tools[0].type", True)
        else:
            assert answer.status_code == 200, (kind, answer.text)


@pytest.mark.parametrize("kind", ["function", "custom", "namespace", "mcp"])
async def test_every_field_of_a_tool_is_known(kind: str) -> None:
    model = get_args(RequestTool)[0]
    (fields,) = [
        {field.alias or name for name, field in tool.model_fields.items()}
        for tool in (get_args(member)[0] for member in get_args(model))
        if get_args(getattr(tool.model_fields["type"], "annotation", None)) == (kind,)
    ]
    refused = {
        name.removeprefix("tools[].") for name in UNSUPPORTED_FIELDS if name.startswith("tools[].")
    }
    assert members(ToolParam)[kind] <= fields | refused


async def test_every_tool_choice_of_openai_is_done_or_refused_by_name(serve: Serve) -> None:
    known = members(ToolChoice)
    assert known.keys() == CHOICES.keys(), "a new SDK has new choices: do or refuse them"
    served = await serve(HELLO, tools="python")
    for kind in known:
        tools = CHOSEN_FROM
        if kind == "mcp":
            tools = [{"type": "mcp", "server_label": "code_interpreter"}]
        body = {
            "input": "x",
            "tools": tools,
            "tool_choice": {"type": kind, **(CHOICES[kind] or {})},
        }
        answer = await served.post(body)
        if CHOICES[kind] is None:
            assert api_error(answer, 400)["param"] == "tool_choice", kind
        else:
            assert answer.status_code == 200, (kind, answer.text)


async def test_reasoning_context_that_applies_is_in_the_response(serve: Serve) -> None:
    served = await serve(HELLO)
    for context in ("auto", "all_turns"):
        response = check(await served.stream(input="x", reasoning={"context": context}))
        assert response["reasoning"]["context"] == "current_turn"


@pytest.mark.long
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


async def test_lenient_passes_over_items_parts_and_summaries_of_others(serve: Serve) -> None:
    served = await serve(HELLO, server={"lenient": True})
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    items = [
        {"type": "agent_dream", "content": "x"},
        {"type": "compaction", "encrypted_content": "gAAAAABn"},
        {"role": "user", "content": "x", "status": "odd"},
        {"role": "assistant", "content": [thinking, {"type": "output_text", "text": "yes"}]},
        {"type": "compaction_trigger"},
        {"role": "user", "content": [{"type": "input_text", "text": "y"}, {"type": "smell"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABn"},
    ]
    tools = [{"type": "local_shell"}]
    choice = {"type": "local_shell"}
    answer = await served.post({"input": items, "tools": tools, "tool_choice": choice})
    assert answer.status_code == 200, answer.text
    ignored = answer.headers["agent-ignored"].split(", ")
    assert {"input[3].content[0]", "input[5].content[1]"} <= {*ignored}
    assert {"input[0]", "input[2].status", "input[4]", "tools[0]", "tool_choice"} <= {*ignored}
    assert {"input[1]", "input[6]"} <= {*ignored}, "their text cannot be read"
    markup = engine_markup(served)
    assert "There was a summary of earlier messages here" in markup
    assert "<|message|>yes<|end|>" in markup and "<|message|>y<|end|>" in markup
    wrong = await served.post({"input": [{"role": "critic", "content": "x"}]})
    assert "Supported values" in api_error(wrong, 400)["message"], "who speaks is not passed over"


UNSEEN = [IMAGE, {"type": "input_audio", "input_audio": {}}, {"type": "input_file", "file_id": "f"}]


@pytest.mark.parametrize("part", UNSEEN, ids=lambda part: part["type"])
async def test_unseen_part_fails_its_request_and_not_the_conversation(
    serve: Serve, part: dict[str, Any]
) -> None:
    served = await serve(HELLO)
    text = {"type": "input_text", "text": "Look."}
    seen, later = (
        {"role": "user", "content": [text, part]},
        {"role": "user", "content": "Forget it."},
    )
    answered = [seen, {"role": "assistant", "content": "No."}, later]
    open_call = [
        seen,
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "y"},
    ]
    for items in ([seen], [later, seen], [{"role": "assistant", "content": "No."}, seen]):
        answer = await served.post({"input": items})
        where = f"input[{len(items) - 1}].content[1]"
        assert (api_error(answer, 400)["param"] or "").startswith(where)
    for items in ([seen, later], answered, open_call):
        answer = await served.post({"input": items})
        assert answer.status_code == 200, answer.text
        assert "Look.\n[There was a" in engine_markup(served)


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


async def test_lenient_errors_name_what_the_client_sent(serve: Serve) -> None:
    served = await serve(HELLO, server={"lenient": True})
    dream, unknown = {"type": "agent_dream"}, {"type": "function_call_output", "call_id": "nobody"}
    said = {"role": "user", "content": "x"}
    critic = {"role": "critic", "content": "x"}

    def error(answer: httpx2.Response) -> tuple[str, bool]:
        wrong = api_error(answer, 400)
        return wrong["param"], f"'{wrong['param']}'" in wrong["message"]

    items = [dream, said, dream, dream, critic]
    assert error(await served.post({"input": items})) == ("input[4].role", True)
    assert error(await served.post({"input": [*items[:4], {**unknown, "output": "x"}]}))[0] == (
        "input[4].call_id"
    )
    created = await served.post({"items": items}, url=f"{served.url}/conversations")
    assert error(created)[0] == "items[4].role"
    smell = {"type": "smell"}
    wrong = {"role": "user", "content": [smell, {"type": "text", "text": 3}]}
    chat = {"model": "default", "messages": [said, wrong]}
    answer = await served.post(chat, url=f"{served.url}/chat/completions")
    assert error(answer)[0] == "messages[1].content[1]"
