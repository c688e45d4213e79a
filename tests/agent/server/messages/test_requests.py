"""Fields of ``/v1/messages``: each does what it says, is refused by its name, or passed over by it."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.http.errors import ApiError
from agent.server.http.options import ServerOptions
from agent.server.input.token_memo import TokenMemo
from agent.server.messages.requests import MessagesRequest, MessagesTranslation
from tests.support.anthropic import TOOL, USER, anthropic_error, body_of, create, post
from tests.support.endpoint import Serve, engine_markup
from tests.support.pdf import pdf
from tests.support.scripts import HELLO, call, final, raw_call, thought

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
USED = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"place": "Oslo"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1"}


def message_of(*blocks: dict[str, Any] | str, role: str = "user") -> dict[str, Any]:
    parts = [
        {"type": "text", "text": block} if isinstance(block, str) else block for block in blocks
    ]
    return {"role": role, "content": parts}


def after_call(*blocks: Any, thinking: Any = ()) -> list[dict[str, Any]]:
    return [*USER, message_of(*thinking, USED, role="assistant"), message_of(*blocks)]


# --- refused ---

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [message_of({"type": "text"})]}, "messages[0].content[0].text"),
    ({"messages": [message_of("x", IMAGE)]}, "messages[0].content[1]"),
    ({"messages": [message_of({"type": "smell"})]}, "messages[0].content[0]"),
    (
        {"messages": [message_of({"type": "document", "source": {"type": "url", "url": "a"}})]},
        "messages[0].content[0].source",
    ),
    ({"messages": [*USER, message_of(RESULT)]}, "messages[1].content[0]"),
    ({"messages": [message_of({"type": "tool_result"})]}, "messages[0].content[0].tool_use_id"),
    (
        {"messages": [*USER, message_of({"type": "tool_use"}, role="assistant")]},
        "messages[1].content[0].id",
    ),
    (
        {"messages": [*USER, message_of({"type": "mcp_tool_result"}, role="assistant")]},
        "messages[1].content[0].tool_use_id",
    ),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"top_k": -2}, "top_k"),
    ({"system": 5}, "system"),
    ({"thinking": {"type": "deep"}}, "thinking.type"),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
        "output_config.format.schema",
    ),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": ["a", "b", "c", "d", "e"]}, "stop_sequences"),
    ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
    ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
    (
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}, {"input_schema": {}}]},
        "tools[1]",
    ),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "tools[0].type"),
    ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "mcp_servers"),
    ({"mcp_servers": [{"name": "nobody"}]}, "mcp_servers[0]"),
    (
        {"tools": [{"type": "mcp_toolset", "configs": {"a": {"enabled": False}}}]},
        "tools[0].configs.a",
    ),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"container": "container_1"}, "container"),
]


async def test_messages_refused_fields_are_named(serve: Serve) -> None:
    served = await serve(HELLO)
    for body, param in REFUSED:
        error = anthropic_error(await post(served, **body), 400)
        assert error["type"] == "invalid_request_error"
        assert param in error["message"], (body, error)
    assert not served.turns


async def test_messages_lenient_server_passes_over_what_it_lacks(serve: Serve) -> None:
    served = await serve(HELLO, server={"lenient": True})
    tools = [{"type": "bash_20250124", "name": "bash"}, TOOL]
    answer = await post(
        served,
        messages=[message_of("x", IMAGE, {"type": "smell"})],
        tools=tools,
        container="c",
        betas=["x"],
    )
    assert answer.status_code == 200, answer.text
    ignored = set(answer.headers["agent-ignored"].split(", "))
    assert {"messages[0].content[1]", "messages[0].content[2]", "tools[0]", "betas"} <= ignored
    assert "There was an image here" in engine_markup(served)


async def test_messages_system_without_text_is_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    for block in ({"type": "image"}, {"type": "text"}):
        system = [{"type": "text", "text": "a"}, block]
        assert (
            "system[1].text" in anthropic_error(await post(served, system=system), 400)["message"]
        )


@pytest.mark.parametrize(
    ("prefix", "stop", "reply", "text", "reason"),
    [
        ("```json", "```", '\n{"a": 1}\n```\nbye', '\n{"a": 1}\n', "stop_sequence"),
        ("```json", "json\n", "\nx", "\nx", "end_turn"),
        ("Hello END", "END", " of END it", " of ", "stop_sequence"),
    ],
)
async def test_messages_stop_sequences_are_those_of_what_is_generated(
    serve: Serve, prefix: str, stop: str, reply: str, text: str, reason: str
) -> None:
    served = await serve(f"{reply}<|return|>")
    messages = [*USER, {"role": "assistant", "content": prefix}]
    message = await create(served, messages=messages, stop_sequences=[stop])
    assert (message["content"][-1]["text"], message["stop_reason"]) == (text, reason)
    assert (await served.get("/health")).json()["running"] == 0


async def test_messages_unknown_fields_are_named_in_the_header(serve: Serve) -> None:
    served = await serve(HELLO)
    editing = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    answer = await post(served, context_management=editing, service_tier="auto", metadata={})
    assert answer.headers["agent-ignored"] == "context_management"


# --- done ---


async def test_messages_system_text_blocks_and_messages(serve: Serve) -> None:
    served = await serve(HELLO)
    blocks = [
        {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in "AB"
    ]
    messages = [*USER, {"role": "system", "content": "Agents: none."}]
    await create(served, system=blocks, messages=messages)
    prompt = engine_markup(served)
    assert "# Instructions\n\nA\n\nB" in prompt
    assert "<|start|>developer<|message|># Instructions\n\nAgents: none.<|end|>" in prompt
    assert prompt.index("Hi<|end|>") < prompt.index("Agents: none.")
    await create(served, system="Be brief.")
    assert "# Instructions\n\nBe brief." in engine_markup(served)


@pytest.mark.parametrize(
    ("thinking", "budget"),
    [
        ({"type": "enabled", "budget_tokens": 5000}, 5000),
        ({"type": "disabled"}, 0),
        ({"type": "adaptive"}, None),
        (None, None),
    ],
)
async def test_messages_thinking_is_the_budget(serve: Serve, thinking: Any, budget: Any) -> None:
    served = await serve(HELLO)
    await create(served, thinking=thinking, output_config={"effort": "xhigh"})
    options = served.turns[-1].options
    assert (options.max_reasoning_tokens, options.effort) == (budget, "high")


async def test_messages_thinking_stays_in_a_tool_loop(serve: Serve) -> None:
    served = await serve(HELLO)
    ours = {"type": "thinking", "thinking": "", "signature": ""}
    served_thought = await serve(thought("I look.") + call("get_weather", place="Oslo"))
    first = await create(served_thought, tools=[TOOL])
    ours = {**first["content"][0], "thinking": ""}  # omitted: the signature has it
    foreign = {"type": "redacted_thinking", "data": "EoYBCkgIAxABGAIi"}
    unsigned = {"type": "thinking", "thinking": "By hand."}
    messages = after_call({**RESULT, "content": "cold"}, thinking=(ours, foreign, unsigned))
    answer = await post(served, messages=messages, tools=[TOOL])
    assert answer.status_code == 200, answer.text
    assert answer.headers["agent-ignored"] == "messages[1].content[1]"
    prompt = engine_markup(served)
    for text in ("I look.", "By hand."):
        assert f"<|channel|>analysis<|message|>{text}<|end|>" in prompt


async def test_messages_results_of_all_forms(serve: Serve) -> None:
    served = await serve(HELLO)
    for content, text in [
        ("cold", "cold"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([IMAGE], "[There was an image here; this model cannot see images.]"),
        (None, ""),
    ]:
        await create(served, messages=after_call({**RESULT, "content": content}), tools=[TOOL])
        assert f"to=assistant<|channel|>commentary<|message|>{text}<|end|>" in engine_markup(served)
    failed = {**RESULT, "content": "no such place", "is_error": True}
    await create(served, messages=after_call(failed, "Try again."), tools=[TOOL])
    prompt = engine_markup(served)
    assert "<|message|>Error: no such place<|end|><|start|>user<|message|>Try again." in prompt


async def test_messages_documents_are_read(serve: Serve) -> None:
    served = await serve(HELLO)
    data = base64.b64encode(pdf("frogs in a pond")).decode()
    document = {"type": "base64", "media_type": "application/pdf", "data": data}
    text = {"type": "text", "media_type": "text/plain", "data": "toads"}
    await create(
        served,
        messages=[
            message_of(
                {"type": "document", "source": document, "title": "a.pdf"},
                {"type": "document", "source": text, "title": "b.txt"},
                {
                    "type": "search_result",
                    "source": "x",
                    "title": "T",
                    "content": [{"type": "text", "text": "newts"}],
                },
            )
        ],
    )
    prompt = engine_markup(served)
    assert all(word in prompt for word in ("frogs in a pond", "toads", "newts"))


async def test_messages_arguments_follow_the_schema_unless_openai_says_otherwise(
    serve: Serve,
) -> None:
    """A bridge that sends ``strict: false`` does not ask for arguments that do not fit."""
    served = await serve(call("get_weather", place="Oslo"))
    for strict in (None, False, True):
        await create(served, tools=[{**TOOL, "strict": strict}])
        (function,) = served.turns[-1].options.functions
        assert function.constrained and function.strict is bool(strict)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ("may", True)),
        ({"type": "any", "disable_parallel_tool_use": True}, ("must", False)),
        ({"type": "tool", "name": "get_weather"}, ("must", True)),
        ({"type": "none"}, ("none", True)),
    ],
)
async def test_messages_tool_choice(serve: Serve, choice: Any, expected: Any) -> None:
    served = await serve(raw_call("functions.get_weather", '{"place": "Oslo"}'))
    await create(served, tools=[TOOL], tool_choice=choice)
    options = served.turns[-1].options
    assert (options.tool_choice, options.parallel_tool_calls) == expected


async def test_messages_answer_has_the_form(serve: Serve) -> None:
    served = await serve(final('{"a": 1}'))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}
    message = await create(served, output_config={"format": form})
    assert json.loads(message["content"][-1]["text"]) == {"a": 1}
    assert served.turns[-1].options.answer_form is not None


async def test_messages_history_of_server_tools(serve: Serve) -> None:
    """Of Anthropic's own servers, in a session that continues here."""
    served = await serve(HELLO)
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_result", "url": "http://a", "title": "A", "encrypted_content": ""}
    results = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [found]}
    shell = {"type": "server_tool_use", "id": "s2", "name": "bash_code_execution", "input": {}}
    output = {"stdout": "frogs", "stderr": "", "return_code": 0, "type": "bash_result"}
    ran = {"type": "bash_code_execution_tool_result", "tool_use_id": "s2", "content": output}
    blocks = message_of(search, results, shell, ran, "Done.", role="assistant")
    await create(served, messages=[*USER, blocks, *USER])
    assert "bash_code_execution" in engine_markup(served) and "frogs" in engine_markup(served)


# --- anything ---

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "role", "content", "name", "id", "input", "source", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image", "document",
                              "search_result", "mcp_tool_use", "mcp_tool_result", "x"])},
    optional={
        name: ANY | st.just("toolu_1")
        for name in ("text", "thinking", "signature", "data", "source", "title", "id", "name",
                     "server_name", "input", "tool_use_id", "content", "is_error")
    },
)  # fmt: skip
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system"]),
            "content": st.lists(BLOCKS, max_size=3) | ANY,
        }
    ),
    max_size=3,
)


@given(
    st.fixed_dictionaries(
        {"messages": MESSAGES | ANY},
        optional=dict.fromkeys({*MessagesRequest.model_fields} - {"messages"}, ANY),
    ),
    st.booleans(),
)
@settings(max_examples=400)
def test_translation_of_anything_is_a_request_or_400(body: dict[str, Any], lenient: bool) -> None:
    options = ServerOptions(lenient=lenient)
    service: Any = SimpleNamespace(token_memo=TokenMemo(), exposed_servers=(), options=options)
    try:
        translation = MessagesTranslation(body, service)
    except ApiError as error:
        assert error.status == 400 and error.param is not None
    else:
        assert translation.request.input is not None


@pytest.mark.parametrize("field", [*MessagesRequest.model_fields])
async def test_messages_wrong_types_are_refused_by_name(serve: Serve, field: str) -> None:
    served = await serve(HELLO)
    for value in (5, -1.5, "x", True, [], [5], {}, {"type": 5}, [{"type": 5}], [{}], {"x": [None]}):
        answer = await served.post({**body_of(), field: value}, url=f"{served.url}/messages")
        if answer.status_code != 200:
            status = answer.status_code
            assert status in (400, 404) and field in anthropic_error(answer, status)["message"]
