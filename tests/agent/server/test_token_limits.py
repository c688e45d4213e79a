"""Requests with very long texts: others are answered meanwhile, and what cannot fit is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.conversation.conversation import Called, Conversation, User
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.tokenizer_text import PART
from agent.server import planner
from agent.server.errors import ApiError
from agent.server.parsing import MOST
from agent.server.response_cache import Memo
from agent.server.token_limits import tokenised
from tests.agent.server.test_errors import error_of
from tests.support.endpoint import Serve, plain_http
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, WEATHER, final

WORDS = "Words of all kinds, 1234 figures. "


async def test_others_go_on_meanwhile_and_the_ids_are_the_same(serve: Serve) -> None:
    served = await serve(HELLO)
    await served.runtime.ready()
    form = served.runtime.format
    text = WORDS * (20 * PART // len(WORDS))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    messages = [User(text), Called("f", text), User("short")]
    known = await tokenised(form, messages, None, Memo())
    working.cancel()
    assert turns >= 20, "after every few milliseconds it was somebody else's turn"
    assert known == messages
    one, same = Conversation("a"), Conversation("b")
    for message, before in zip(known, messages, strict=True):
        one.add(form, message)
        same.add(form, before)
    assert one.ids() == same.ids()


async def test_a_stream_goes_on_while_a_long_history_is_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(LONG, final("ok"))
    grown: list[int] = []
    into = planner._into

    async def watched(*given: Any, **options: Any) -> Any:
        events = served.turns[0].log.events
        before = len(events)
        messages = await into(*given, **options)
        grown.append(len(events) - before)
        return messages

    async with served.client().responses.stream(model="default", input="x") as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        monkeypatch.setattr(planner, "_into", watched)
        history = [{"role": role, "content": "x"} for role in ("user", "assistant")] * 4000
        answer = await served.post({"input": [*history, {"role": "user", "content": "y"}]})
        assert answer.json()["status"] == "completed" and served.turns[0].response.output == []
    assert grown[0] > 0


@pytest.mark.parametrize("param", ["input", "parts", "tools"])
async def test_more_items_than_anybody_needs(serve: Serve, param: str) -> None:
    served = await serve(HELLO)
    part = {"type": "input_text", "text": "x"}
    body: dict[str, Any] = {
        "input": {"input": [{"role": "user", "content": "x"}] * 200_000},
        "parts": {"input": [{"role": "user", "content": [part] * MOST}]},
        "tools": {"input": "x", "tools": [WEATHER] * (MOST + 1)},
    }[param]
    error = error_of(await served.post(body), 400)
    assert error["code"] == "array_above_max_length" and str(MOST) in error["message"]
    assert error["param"] == param.replace("parts", "input")
    chat = {"messages": [{"role": "user", "content": "x"}], **body}
    if param != "tools":
        chat = {"messages": body["input"]}
    async with plain_http() as http:
        refused = error_of(await http.post(f"{served.url}/chat/completions", json=chat), 400)
    assert refused["code"] == error["code"]


async def test_it_is_refused_as_soon_as_that_is_known(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO, context=2000)
    await served.runtime.ready()
    read: list[int] = []
    plain = HarmonyFormat.plain

    def counted(form: HarmonyFormat, text: str) -> list[int]:
        read.append(len(text))
        return plain(form, text)

    monkeypatch.setattr(HarmonyFormat, "plain", counted)
    with pytest.raises(ApiError, match="more than 2000 tokens"):
        await tokenised(served.runtime.format, [User(WORDS * 50_000)], 2000, Memo())
    assert sum(read) < 3 * PART
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
        error = error_of(await served.post(body), 400)
        assert error["code"] == "context_length_exceeded"
        assert sum(read) < 6 * PART
    assert check(await served.stream(input="x"))["status"] == "completed"
