"""Requests with very long texts: others are answered meanwhile, and what cannot fit is refused."""

import asyncio
from typing import Any

import pytest

from agent.conversation.conversation import Conversation
from agent.conversation.messages import ToolCallMessage, User
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.tokenizer_text import CHUNK_CHARS
from agent.server.http.errors import ApiError
from agent.server.input.parsing import MAX_ITEMS, MAX_SCHEMA_VALUES
from agent.server.input.token_memo import TokenMemo, pretokenise
from agent.server.responses import request_planner
from tests.support.endpoint import Serve, api_error, http_client
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, WEATHER, final

WORDS = "Words of all kinds, 1234 figures. "


async def test_pretokenise_yields_and_keeps_ids(serve: Serve) -> None:
    served = await serve(HELLO)
    await served.runtime.ready()
    format = served.runtime.format
    text = WORDS * (20 * CHUNK_CHARS // len(WORDS))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    messages = [User(text), ToolCallMessage("f", text), User("short")]
    pretokenised = await pretokenise(format, messages, None, TokenMemo())
    working.cancel()
    assert turns >= 20, "after every few milliseconds it was someone else's turn"
    assert pretokenised == messages
    conversation, expected = Conversation("a"), Conversation("b")
    for message, before in zip(pretokenised, messages, strict=True):
        conversation.add(format, message)
        expected.add(format, before)
    assert conversation.ids() == expected.ids()


async def test_long_history_others_proceed_meanwhile(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(LONG, final("ok"))
    turns_of_others: list[int] = []
    add = request_planner.add_resent_messages

    async def observed(*arguments: Any) -> Any:
        adding, turns = asyncio.ensure_future(add(*arguments)), 0
        while not adding.done():
            await asyncio.sleep(0)
            turns += 1
        turns_of_others.append(turns)
        return adding.result()

    async with served.client().responses.stream(model="default", input="x") as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        monkeypatch.setattr(request_planner, "add_resent_messages", observed)
        history = [{"role": role, "content": "x"} for role in ("user", "assistant")] * 2400
        answer = await served.post({"input": [*history, {"role": "user", "content": "y"}]})
        assert answer.json()["status"] == "completed" and served.turns[0].response.output == []
    assert turns_of_others[0] > 10


@pytest.mark.parametrize("param", ["input", "parts", "tools"])
async def test_too_many_items_are_refused(serve: Serve, param: str) -> None:
    served = await serve(HELLO)
    part = {"type": "input_text", "text": "x"}
    body: dict[str, Any] = {
        "input": {"input": [{"role": "user", "content": "x"}] * (MAX_ITEMS["input"] + 1)},
        "parts": {"input": [{"role": "user", "content": [part] * MAX_ITEMS["input"]}]},
        "tools": {"input": "x", "tools": [WEATHER] * (MAX_ITEMS["tools"] + 1)},
    }[param]
    error = api_error(await served.post(body), 400)
    assert error["code"] == "array_above_max_length"
    assert (
        f"at most {MAX_ITEMS['tools' if param == 'tools' else 'input']:} items" in error["message"]
    )
    assert error["param"] == param.replace("parts", "input")
    chat = {"messages": [{"role": "user", "content": "x"}], **body}
    if param != "tools":
        chat = {"messages": body["input"]}
    async with http_client() as http:
        refused = api_error(await http.post(f"{served.url}/chat/completions", json=chat), 400)
    assert refused["code"] == error["code"]


async def test_too_large_schemas_are_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    schema = {"type": "object", "properties": {"a": {"enum": [[]] * MAX_SCHEMA_VALUES}}}
    error = api_error(
        await served.post({"input": "x", "tools": [{**WEATHER, "parameters": schema}]}), 400
    )
    assert (error["param"], error["code"]) == ("tools", "array_above_max_length")


@pytest.mark.long
async def test_text_over_context_is_refused_early(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO, context=2000)
    await served.runtime.ready()
    read: list[int] = []
    encode = HarmonyFormat.encode_text

    def counted(format: HarmonyFormat, text: str) -> list[int]:
        read.append(len(text))
        return encode(format, text)

    monkeypatch.setattr(HarmonyFormat, "encode_text", counted)
    with pytest.raises(ApiError, match="more than 2000 tokens"):
        await pretokenise(served.runtime.format, [User(WORDS * 50_000)], 2000, TokenMemo())
    assert sum(read) < 3 * CHUNK_CHARS
    long = {"role": "user", "content": WORDS * 5000}
    bodies = (
        {"input": WORDS * 50_000},
        {"input": [long] * 10},
        {"input": [{"role": "user", "content": WORDS * 20}] * 3000},
        {"input": "x", "instructions": WORDS * 50_000},
        {"input": "x", "tools": [{**WEATHER, "description": WORDS * 5000}]},
        {"input": "x", "tools": [{**WEATHER, "parameters": {"title": WORDS * 50_000}}]},
    )
    for body in bodies:
        read.clear()
        error = api_error(await served.post(body), 400)
        assert error["code"] == "context_length_exceeded"
        assert sum(read) < 6 * CHUNK_CHARS
    assert check(await served.stream(input="x"))["status"] == "completed"
