"""Responses that exist: looked up, continued, deleted, cancelled; items that are sent back."""

import asyncio
from typing import Any

import pytest

from agent.conversation.conversation import Conversation, Entry
from agent.conversation.messages import User
from agent.engine.protocol import Request
from agent.events import Response
from agent.server.input.stored_responses import TOKEN_ID_BYTES, ResponseCache
from agent.server.input.token_memo import TokenMemo
from agent.store.records import ServedTurn
from tests.support.endpoint import Serve, api_error, comparable, engine_markup, first_turn
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER, plain_option
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, thought


async def test_response_get_and_delete(serve: Serve) -> None:
    import openai

    served = await serve(HELLO)
    client = served.client()
    created = await client.responses.create(model="default", input="x", metadata={"a": "b"})
    assert await client.responses.retrieve(created.id) == created
    assert created.metadata == {"a": "b"}
    await client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(created.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.delete(created.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        await client.responses.create(model="default", input="y", previous_response_id=created.id)


async def test_response_store_false_is_not_stored(serve: Serve) -> None:
    served = await serve(HELLO)
    created = await served.client().responses.create(model="default", input="x", store=False)
    assert created.store is False
    assert (await served.get(f"/v1/responses/{created.id}")).status_code == 404


async def test_input_items_pages(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    items: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
        {"type": "message", "id": "msg_mine", "role": "user", "content": "c"},
    ]
    created = await client.responses.create(model="default", input=items)
    pages = client.responses.input_items.list(created.id, limit=3, order="asc")
    listed = [item async for item in pages]
    assert [item.role for item in listed] == ["developer", "user", "assistant", "user"]
    assert listed[-1].id == "msg_mine" and len({item.id for item in listed}) == 4
    latest = await client.responses.input_items.list(created.id, limit=1)
    assert [item.id for item in latest.data] == ["msg_mine"] and latest.has_more
    for query in ("limit=0", "limit=x", "order=up", "after=nothing"):
        answer = await served.get(f"/v1/responses/{created.id}/input_items?{query}")
        assert answer.status_code == 400, query


async def test_input_items_have_ids_of_their_own(serve: Serve) -> None:
    served = await serve(HELLO)
    names: list[Any] = ["x", "m", "m", "m", 5, {"a": 1}, "", None]
    items = [{"id": name, "role": "user", "content": str(n)} for n, name in enumerate(names)]
    created = (await served.post({"input": items})).json()
    pages = served.client().responses.input_items.list(created["id"], limit=1, order="asc")
    listed = [item async for item in pages]
    assert [item.content[0].text for item in listed] == [str(n) for n in range(len(names))]
    assert [item.id for item in listed[:2]] == ["x", "m"]
    assert len({item.id for item in listed}) == len(names)


async def test_lenient_server_leaves_out_what_it_names(serve: Serve) -> None:
    """Of a long list, too, where an earlier item that goes moves those behind it."""
    served = await serve(HELLO, server={"lenient": True})
    texts = [f"m{n}" for n in range(13)]
    items: list[Any] = [{"role": "user", "content": text} for text in texts]
    items[9] = items[10] = {"type": "foo_call"}
    answer = await served.post({"input": items})
    ignored = set(answer.headers["agent-ignored"].split(", "))
    assert ignored == {"input[9]", "input[10]"}
    prompt = engine_markup(served)
    assert all(text in prompt for text in (*texts[:9], "m11", "m12"))


async def test_cancel_of_response_that_is_not_in_the_background_is_refused(serve: Serve) -> None:
    served = await serve(LONG)
    client = served.client()
    running = asyncio.create_task(served.stream(input="x"))
    turn = await first_turn(served)
    assert (await client.responses.retrieve(turn.response.id)).status == "in_progress"
    path = f"/{turn.response.id}/cancel"
    error = api_error(await served.post({}, path), 400)
    assert error["param"] == "response_id" and "synchronous" in error["message"]
    turn.stop()
    assert check(await running)["status"] == "cancelled"
    api_error(await served.post({}, path), 400)


async def test_previous_response_continues_conversation(serve: Serve) -> None:
    served = await serve(final("one"), final("two"), final("three"))
    client = served.client()
    first = await client.responses.create(model="default", input="a", instructions="Count.")
    first_prompt = engine_markup(served)
    second = await client.responses.create(
        model="default", input="b", previous_response_id=first.id
    )
    other = await client.responses.create(
        model="default",
        input="b",
        previous_response_id=first.id,
        instructions="Sing.",
        temperature=0.5,
        reasoning={"effort": "high"},
    )
    assert second.output_text == "two" and other.output_text == "three"
    markup = engine_markup(served)
    assert "Count." in first_prompt and "Count." not in markup, "instructions are not carried over"
    assert "Sing." in markup and "Reasoning: high" in markup
    assert other.temperature == 0.5 and other.reasoning and other.reasoning.effort == "high"
    texts = ("user<|message|>a", "final<|message|>one<|end|>", "user<|message|>b")
    positions = [markup.index(text) for text in texts]
    assert positions == sorted(positions) and "two" not in markup, (
        "two ways to go on from one response"
    )


async def test_previous_response_keeps_developer_messages(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    first = await client.responses.create(
        model="default",
        instructions="I.",
        input=[{"role": "system", "content": "S."}, {"role": "user", "content": "a"}],
    )
    assert (
        "# Instructions\n\nI.\n\nS.<|end|>" in engine_markup(served) and first.instructions == "I."
    )
    await client.responses.create(
        model="default",
        previous_response_id=first.id,
        input=[{"role": "developer", "content": "D."}, {"role": "user", "content": "b"}],
    )
    markup = engine_markup(served)
    assert "# Instructions\n\nS.<|end|>" in markup
    assert markup.index("# Instructions\n\nD.<|end|>") > markup.index("Hello there!")


async def test_resent_items_keep_tokens(serve: Serve) -> None:
    """Rendered again, the model's call would read otherwise and all after it be processed again."""
    call_reply = thought("Hm.") + (
        "<|channel|>commentary<|constrain|>json to=functions.get_weather <|message|>"
        '{"place":\n"Oslo"}<|call|>'
    )
    served = await serve(call_reply, final("Cold."), final("Bye."))
    user = {"role": "user", "content": "Oslo?"}
    first = check(await served.stream(input=[user], tools=[WEATHER], store=False))
    before = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    result = {
        "type": "function_call_output",
        "call_id": first["output"][1]["call_id"],
        "output": "-3",
    }
    items = [user, *first["output"], result]
    second = check(await served.stream(input=items, tools=[WEATHER], store=False))
    after = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    assert after[: len(before)] == before
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == len(before)


async def test_resent_server_calls_keep_tokens(serve: Serve) -> None:
    replies = call("plain__echo", text="hi"), final("Hi."), final("Bye.")
    served = await serve(*replies, tools="plain", mcp=(plain_option(),))
    tools = [{"type": "mcp", "server_label": "plain"}]
    user = {"role": "user", "content": "6*7?"}
    first = check(await served.stream(input=[user], tools=tools, store=False))
    before = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    items = [user, *first["output"], {"role": "user", "content": "bye"}]
    check(await served.stream(input=items, tools=tools, store=False))
    after = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
    assert after[: len(before) - 1] == before[:-1], "all but <|return|>, which became <|end|>"


async def test_item_reference_is_resolved(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"), final("Cold."))
    first = check(await served.stream(input="Oslo?", tools=[WEATHER]))
    (item,) = first["output"]
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "-3"}
    items = [{"role": "user", "content": "Oslo?"}, {"id": item["id"]}, result]
    check(await served.stream(input=items, tools=[WEATHER]))
    assert '{"place": "Oslo"}<|call|>' in engine_markup(served)


OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "-3"}
CALL = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"}


async def test_second_output_of_a_call_is_refused(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"), final("Cold."), final("Warm."))
    user = {"role": "user", "content": "Oslo?"}
    error = api_error(await served.post({"input": [user, CALL, OUTPUT, OUTPUT]}), 400)
    assert error["param"] == "input[3].call_id" and "has an output already" in error["message"]
    first = (await served.post({"input": "Oslo?", "tools": [WEATHER]})).json()
    output = {**OUTPUT, "call_id": first["output"][0]["call_id"]}
    second = await served.post({"input": [output], "previous_response_id": first["id"]})
    third = await served.post({"input": [output], "previous_response_id": second.json()["id"]})
    assert api_error(third, 400)["param"] == "input[0].call_id"
    again = await served.post({"input": [output], "previous_response_id": first["id"]})
    assert again.status_code == 200, "another branch of the conversation"


async def test_call_ids_may_be_used_again(serve: Serve) -> None:
    """Clients that count the calls of each turn send an id twice, each with its own output."""
    served = await serve(HELLO)
    user = {"role": "user", "content": "Oslo?"}
    answer = await served.post({"input": [user, CALL, OUTPUT, user, CALL, OUTPUT]})
    assert answer.status_code == 200, answer.text


async def test_outputs_are_counted_after_a_restart(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"), final("Cold."))
    first = (await served.post({"input": "Oslo?", "tools": [WEATHER]})).json()
    output = {**OUTPUT, "call_id": first["output"][0]["call_id"]}
    second = (await served.post({"input": [output], "previous_response_id": first["id"]})).json()
    await served.end()
    served = await serve(final("Cold."))
    third = await served.post({"input": [output], "previous_response_id": second["id"]})
    assert "has an output already" in api_error(third, 400)["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_choice_forces_call(serve: Serve, stream: bool) -> None:
    time_ = {**WEATHER, "name": "get_time"}
    served = await serve('{"place": "Oslo"}<|call|>', "=functions.get_time <|message|>{}<|call|>")
    choice = {"type": "function", "name": "get_weather"}
    body = {"input": "x", "tools": [WEATHER, time_], "tool_choice": choice}
    answer = await (served.stream(**body) if stream else served.post(body))
    response = check(answer) if isinstance(answer, list) else answer.json()
    (item,) = response["output"]
    assert (item["type"], item["name"]) == ("function_call", "get_weather")
    assert item["arguments"] == '{"place": "Oslo"}'
    assert response["tool_choice"] == choice
    assert "to=functions.get_weather <|constrain|>json<|message|>{" in engine_markup(served)
    response = check(await served.stream(**{**body, "tool_choice": "required"}))
    assert [item["name"] for item in response["output"]] == ["get_time"]
    assert response["usage"]["output_tokens"] < 15, "what was demanded is not counted as written"


async def test_tool_choice_forces_first_call_only(serve: Serve) -> None:
    served = await serve("print(1)<|call|>", HELLO, tools="python")
    response = check(
        await served.stream(
            input="x",
            tools=[CODE_INTERPRETER],
            tool_choice={"type": "mcp", "server_label": CODE_INTERPRETER["server_label"]},
        )
    )
    assert [item["type"] for item in response["output"]] == [
        "mcp_list_tools",
        "mcp_call",
        "reasoning",
        "message",
    ]
    assert response["output"][1]["output"] == "1"
    assert (await served.post({"input": "x", "tool_choice": "required"})).status_code == 400


async def test_input_tokens_equal_usage(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    body: Any = {"input": "Oslo?", "tools": [WEATHER], "instructions": "Be brief."}
    count = await client.responses.input_tokens.count(model="default", **body)
    assert not served.turns
    created = await client.responses.create(model="default", **body)
    assert created.usage and created.usage.input_tokens == count.input_tokens > 0


async def test_truncation_auto_summarises_oldest(serve: Serve) -> None:
    served = await serve(HELLO, context=500)
    items = []
    for number in range(20):
        items += [
            {"role": "user", "content": f"question {number} " + "word " * 20},
            {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": f"r{number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
    items.append({"role": "user", "content": "and now?"})
    refused = await served.post({"input": items})
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    truncated = check(await served.stream(input=items, truncation="auto"))
    markup = engine_markup(served)
    assert truncated["truncation"] == "auto" and truncated["usage"]["input_tokens"] < 500
    assert "question 0 " not in markup and "answer 19" in markup and "and now?" in markup
    rest = markup.split("<|start|>user")
    assert rest[0].startswith("<|start|>system") and "functions.f" not in rest[0]
    assert rest[0].endswith("Hello there!<|end|>"), "the summary, as the script has it"
    followed = await served.post(
        {"input": "more " * 260, "truncation": "auto", "previous_response_id": truncated["id"]}
    )
    oldest = next(number for number in range(20) if f"question {number} " in markup)
    assert followed.json()["status"] == "completed"
    assert f"question {oldest} " not in engine_markup(served) and "more more" in engine_markup(
        served
    )
    alone = await served.post({"input": "word " * 600, "truncation": "auto"})
    assert alone.status_code == 400


async def test_truncation_resent_history_is_summarised_once(serve: Serve) -> None:
    served = await serve(HELLO, context=500)
    items: list[dict[str, Any]] = []
    requests = []
    generate = served.runtime.generate

    def record(request: Any) -> Any:
        requests.append(request)
        return generate(request)

    served.runtime.generate = record  # type: ignore[method-assign]
    for number in range(12):
        items.append({"role": "user", "content": f"question {number} " + "word " * 30})
        created = check(await served.stream(input=items, truncation="auto", store=False))
        items += created["output"]
    summaries = len(requests) - 12
    assert 0 < summaries < 5, "what is summarised stays so as the history grows"


@pytest.mark.parametrize(
    ("body", "streamed"),
    [({}, False), ({"stream": True}, True), ({"stop": "x"}, True)],
    ids=["body", "stream", "stop"],
)
async def test_tokens_without_stream_come_together(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], streamed: bool
) -> None:
    """But not where a text ends the generation as soon as it is read."""
    served = await serve(HELLO)
    requests: list[Request] = []
    generate = served.runtime.generate
    monkeypatch.setattr(served.runtime, "generate", lambda r: [requests.append(r), generate(r)][1])
    answer = await served.post({"input": "x", **body})
    assert answer.status_code == 200 and [r.streamed for r in requests] == [streamed]


# --- bounds ---


def stored_response(name: str, tokens: int) -> ServedTurn:
    response = Response(id=name, created_at=0, model="tiny")
    conversation = Conversation("conv", [Entry([0] * tokens)])
    return ServedTurn(response, conversation, {"request_bytes": 0})


async def test_response_cache_is_bounded() -> None:
    cache = ResponseCache(max_responses=3, max_bytes=100 * TOKEN_ID_BYTES)
    for name in "abc":
        cache.add(stored_response(name, 10))
    assert await cache.find("a")
    cache.add(stored_response("d", 10))
    assert not await cache.find("b") and await cache.find("a"), "the one unused for longest goes"
    cache.add(stored_response("e", 85))
    assert [name for name in "abcde" if await cache.find(name)] == ["a", "e"]
    cache.add(stored_response("f", 1000))
    assert [name for name in "aef" if await cache.find(name)] == ["f"], "the latest is always there"


def test_token_memo_is_bounded() -> None:
    memo = TokenMemo(max_tokens=25).of("a model's")
    for name in "abc":
        memo.remember(User(name), Entry([0] * 10))
    assert [name for name in "abc" if memo.recall(User(name))] == ["b", "c"]


def test_token_memo_keeps_vocabularies_apart() -> None:
    memo, message = TokenMemo(), User("a")
    memo.of("a model's").remember(message, Entry([0]))
    assert memo.of("another model's").recall(message) is None
    assert memo.of("a model's").recall(message) == Entry([0])


def test_comparable_drops_ids_and_times() -> None:
    assert comparable({"id": 1, "a": [{"created_at": 2, "b": 3}]}) == {"a": [{"b": 3}]}
