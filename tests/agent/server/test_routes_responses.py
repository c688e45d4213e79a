"""Responses that exist: looked up, gone on from, deleted, cancelled; items that come back."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from agent.conversation.conversation import Entry, User
from agent.events import Response
from agent.server.input_items import History
from agent.server.response_cache import Memo, Memory
from agent.store.stored_response import TOKEN_BYTES, Kept
from tests.agent.server.test_disconnect import started
from tests.agent.server.test_tool_selection import CODE, seen
from tests.support.endpoint import Serve, plain
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, python, thought


async def test_get_and_delete(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    made = await client.responses.create(model="default", input="x", metadata={"a": "b"})
    assert await client.responses.retrieve(made.id) == made
    assert made.metadata == {"a": "b"}
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.delete(made.id)
    with pytest.raises(openai.BadRequestError, match="not found"):
        await client.responses.create(model="default", input="y", previous_response_id=made.id)


async def test_store_false_keeps_nothing(serve: Serve) -> None:
    served = await serve(HELLO)
    made = await served.client().responses.create(model="default", input="x", store=False)
    assert made.store is False
    assert (await served.get(f"/v1/responses/{made.id}")).status_code == 404


async def test_input_items(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    items: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
        {"type": "message", "id": "msg_mine", "role": "user", "content": "c"},
    ]
    made = await client.responses.create(model="default", input=items)
    pages = client.responses.input_items.list(made.id, limit=3, order="asc")
    found = [item async for item in pages]
    assert [item.role for item in found] == ["developer", "user", "assistant", "user"]
    assert found[-1].id == "msg_mine" and len({item.id for item in found}) == 4
    latest = await client.responses.input_items.list(made.id, limit=1)
    assert [item.id for item in latest.data] == ["msg_mine"] and latest.has_more
    for query in ("limit=0", "limit=x", "order=up", "after=nothing"):
        answer = await served.get(f"/v1/responses/{made.id}/input_items?{query}")
        assert answer.status_code == 400, query


async def test_cancel(serve: Serve) -> None:
    served = await serve(LONG)
    client = served.client()
    running = asyncio.create_task(served.stream(input="x"))
    turn = await started(served)
    running_now = await client.responses.retrieve(turn.response.id)
    assert running_now.status == "in_progress"
    cancelled = await client.responses.cancel(turn.response.id)
    assert cancelled.status == "cancelled"
    assert check(await running)["status"] == "cancelled"
    assert (await client.responses.cancel(turn.response.id)).status == "cancelled"


async def test_a_conversation_goes_on(serve: Serve) -> None:
    served = await serve(final("one"), final("two"), final("three"))
    client = served.client()
    first = await client.responses.create(model="default", input="a", instructions="Count.")
    asked = seen(served)
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
    markup = seen(served)
    assert "Count." in asked and "Count." not in markup, "instructions are not carried over"
    assert "Sing." in markup and "Reasoning: high" in markup
    assert other.temperature == 0.5 and other.reasoning and other.reasoning.effort == "high"
    said = ("user<|message|>a", "final<|message|>one<|end|>", "user<|message|>b")
    places = [markup.index(text) for text in said]
    assert places == sorted(places) and "two" not in markup, "two ways to go on from one response"


async def test_developers_messages_are_carried_over(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    first = await client.responses.create(
        model="default",
        instructions="I.",
        input=[{"role": "system", "content": "S."}, {"role": "user", "content": "a"}],
    )
    assert "# Instructions\n\nI.\n\nS.<|end|>" in seen(served) and first.instructions == "I."
    await client.responses.create(
        model="default",
        previous_response_id=first.id,
        input=[{"role": "developer", "content": "D."}, {"role": "user", "content": "b"}],
    )
    markup = seen(served)
    assert "# Instructions\n\nS.<|end|>" in markup
    assert markup.index("# Instructions\n\nD.<|end|>") > markup.index("Hello there!")


async def test_resent_items_are_the_very_tokens(serve: Serve) -> None:
    """Rendered again, the model's call would read otherwise and all after it be processed anew."""
    asked = thought("Hm.") + (
        "<|channel|>commentary<|constrain|>json to=functions.get_weather <|message|>"
        '{"place":\n"Oslo"}<|call|>'
    )
    served = await serve(asked, final("Cold."), final("Bye."))
    user = {"role": "user", "content": "Oslo?"}
    first = check(await served.stream(input=[user], tools=[WEATHER], store=False))
    before = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    result = {
        "type": "function_call_output",
        "call_id": first["output"][1]["call_id"],
        "output": "-3",
    }
    items = [user, *first["output"], result]
    second = check(await served.stream(input=items, tools=[WEATHER], store=False))
    after = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    assert after[: len(before)] == before
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == len(before)


async def test_resent_calls_of_ours_are_the_very_tokens(serve: Serve) -> None:
    served = await serve(python("print(6*7)"), final("42"), final("Bye."), tools="python")
    user = {"role": "user", "content": "6*7?"}
    first = check(await served.stream(input=[user], tools=[CODE], store=False))
    before = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    items = [user, *first["output"], {"role": "user", "content": "bye"}]
    check(await served.stream(input=items, tools=[CODE], store=False))
    after = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
    assert after[: len(before) - 1] == before[:-1], "all but <|return|>, which became <|end|>"


async def test_references(serve: Serve) -> None:
    served = await serve(call("get_weather", place="Oslo"), final("Cold."))
    first = check(await served.stream(input="Oslo?", tools=[WEATHER]))
    (item,) = first["output"]
    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "-3"}
    items = [{"role": "user", "content": "Oslo?"}, {"id": item["id"]}, result]
    check(await served.stream(input=items, tools=[WEATHER]))
    assert '{"place": "Oslo"}<|call|>' in seen(served)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_demanded_call_is_made(serve: Serve, stream: bool) -> None:
    time_ = {**WEATHER, "name": "get_time"}
    served = await serve('{"place": "Oslo"}<|call|>', "=functions.get_time <|message|>{}<|call|>")
    one = {"type": "function", "name": "get_weather"}
    body = {"input": "x", "tools": [WEATHER, time_], "tool_choice": one}
    answer = await (served.stream(**body) if stream else served.post(body))
    response = check(answer) if isinstance(answer, list) else answer.json()
    (item,) = response["output"]
    assert (item["type"], item["name"]) == ("function_call", "get_weather")
    assert item["arguments"] == '{"place": "Oslo"}'
    assert response["tool_choice"] == one
    assert "to=functions.get_weather <|constrain|>json<|message|>{" in seen(served)
    response = check(await served.stream(**{**body, "tool_choice": "required"}))
    assert [item["name"] for item in response["output"]] == ["get_time"]
    assert response["usage"]["output_tokens"] < 15, "what was demanded is not counted as written"


async def test_a_call_is_demanded_once(serve: Serve) -> None:
    served = await serve("print(1)<|call|>", HELLO, tools="python")
    response = check(
        await served.stream(
            input="x",
            tools=[CODE],
            tool_choice={"type": "mcp", "server_label": CODE["server_label"]},
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


async def test_input_tokens(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    asked: Any = {"input": "Oslo?", "tools": [WEATHER], "instructions": "Be brief."}
    count = await client.responses.input_tokens.count(model="default", **asked)
    assert not served.turns
    made = await client.responses.create(model="default", **asked)
    assert made.usage and made.usage.input_tokens == count.input_tokens > 0


async def test_truncation_summarises_the_oldest(serve: Serve) -> None:
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
    made = check(await served.stream(input=items, truncation="auto"))
    markup = seen(served)
    assert made["truncation"] == "auto" and made["usage"]["input_tokens"] < 500
    assert "question 0 " not in markup and "answer 19" in markup and "and now?" in markup
    rest = markup.split("<|start|>user")
    assert rest[0].startswith("<|start|>system") and "functions.f" not in rest[0]
    assert rest[0].endswith("Hello there!<|end|>"), "the summary, as the script has it"
    followed = await served.post(
        {"input": "more " * 260, "truncation": "auto", "previous_response_id": made["id"]}
    )
    oldest = next(number for number in range(20) if f"question {number} " in markup)
    assert followed.json()["status"] == "completed"
    assert f"question {oldest} " not in seen(served) and "more more" in seen(served)
    alone = await served.post({"input": "word " * 600, "truncation": "auto"})
    assert alone.status_code == 400


async def test_a_resent_history_is_summarised_once(serve: Serve) -> None:
    served = await serve(HELLO, context=500)
    items: list[dict[str, Any]] = []
    asked = []
    generate = served.runtime.generate

    def record(request: Any) -> Any:
        asked.append(request)
        return generate(request)

    served.runtime.generate = record  # type: ignore[method-assign]
    for number in range(12):
        items.append({"role": "user", "content": f"question {number} " + "word " * 30})
        made = check(await served.stream(input=items, truncation="auto", store=False))
        items += made["output"]
    summaries = len(asked) - 12
    assert 0 < summaries < 5, "what is summarised stays so as the history grows"


# --- bounds ---


def kept(name: str, tokens: int) -> Kept:
    response = Response(id=name, created_at=0, model="tiny")
    return Kept(response, (Entry([0] * tokens),), History())


def test_the_memory_is_bounded() -> None:
    memory = Memory(most=3, most_bytes=100 * TOKEN_BYTES)
    for name in "abc":
        memory.keep(kept(name, 10))
    assert memory.find("a")
    memory.keep(kept("d", 10))
    assert not memory.find("b") and memory.find("a"), "the one unused for longest goes"
    memory.keep(kept("e", 85))
    assert [name for name in "abcde" if memory.find(name)] == ["a", "e"]
    memory.keep(kept("f", 1000))
    assert [name for name in "aef" if memory.find(name)] == ["f"], "the latest is always there"


def test_the_memo_is_bounded() -> None:
    memo = Memo(most_tokens=25)
    for name in "abc":
        entry = Entry([0] * 10, item=name)
        memo.learn({name: User(name)}, (entry,))
    assert [name for name in "abc" if memo.recall(User(name))] == ["b", "c"]
    memo.use("another model's")
    assert not any(memo.recall(User(name)) for name in "abc")


def test_plain() -> None:
    assert plain({"id": 1, "a": [{"created_at": 2, "b": 3}]}) == {"a": [{"b": 3}]}
