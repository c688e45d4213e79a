"""Responses over a WebSocket: the events of a stream, a message each, many responses a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent.server.errors import broken
from agent.server.websocket import Connection
from tests.agent.server.test_disconnect import started
from tests.agent.server.test_tool_selection import seen
from tests.support.endpoint import KEY, Serve, Served, plain
from tests.support.invariants import TERMINAL, check
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, thought

EVENT: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


def socket(served: Served, **headers: str) -> connect:
    address = served.url.replace("http", "ws")
    return connect(f"{address}/responses", additional_headers=headers, max_size=None)


async def send(client: ClientConnection, **body: Any) -> None:
    await client.send(json.dumps({"type": "response.create", **body}))


async def receive(client: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(60):
        event: dict[str, Any] = json.loads(await client.recv())
    EVENT.validate_python(event)
    return event


async def answer(client: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    """The events of one response, or the one error."""
    await send(client, **body)
    events = [await receive(client)]
    while events[-1]["type"] not in {*TERMINAL, "error"}:
        events.append(await receive(client))
    return events


def error_of(events: Sequence[dict[str, Any]], status: int) -> dict[str, Any]:
    (event,) = events
    assert event["type"] == "error" and event["status"] == status, event
    error: dict[str, Any] = event["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    return error


async def test_it_is_the_stream(serve: Serve) -> None:
    served = await serve(HELLO)
    streamed = check(await served.stream(input="hello"))
    async with socket(served) as client:
        for _ in range(2):
            assert plain(check(await answer(client, input="hello"))) == plain(streamed)
    assert served.turns[-1].source == "http"
    found = await served.get(f"/v1/responses/{served.turns[-1].response.id}")
    assert found.json()["status"] == "completed", "it is stored like any other"


async def test_openai_python(serve: Serve) -> None:
    served = await serve(
        thought("Weather.") + call("get_weather", place="Oslo"), final("Cold."), api_key=KEY
    )
    tool: Any = WEATHER
    async with served.client().responses.connect() as client:
        await client.response.create(model="default", input="Oslo?", tools=[tool], store=False)
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "response.completed":
            data = await client.recv_bytes()
            events.append(json.loads(data))
            assert client.parse_event(data).type == events[-1]["type"]
        first = check(events)
        result: Any = {
            "type": "function_call_output",
            "call_id": first["output"][1]["call_id"],
            "output": "-3 °C",
        }
        await client.response.create(
            model="default", input=[result], tools=[tool], previous_response_id=first["id"]
        )
        async for event in client:
            if event.type == "response.completed":
                assert event.response.output_text == "Cold."
                break
        await client.response.create(model="nobody", input="x")
        refused = await client.recv()
        assert refused.type == "error" and refused.error.code == "model_not_found"


async def test_openai_python_without_asyncio(serve: Serve) -> None:
    served = await serve(HELLO)

    def use() -> str:
        with served.sync_client().responses.connect() as client:
            client.response.create(model="default", input="x")
            text = ""
            for event in client:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type == "response.completed":
                    return text
        return "the connection ended first"

    assert await asyncio.to_thread(use) == "Hello there!"


async def test_what_is_not_stored_goes_on_over_its_own_connection(serve: Serve) -> None:
    served = await serve(final("one"), final("two"))
    async with socket(served) as client, socket(served) as other:
        first = check(await answer(client, input="a", store=False))
        asked = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
        followed = {"input": "b", "previous_response_id": first["id"], "store": False}
        error = error_of(await answer(other, **followed), 400)
        assert (error["code"], error["param"]) == (
            "previous_response_not_found",
            "previous_response_id",
        )
        second = check(await answer(client, **followed))
        assert second["previous_response_id"] == first["id"]
        spoken = list(served.runtime.engine.spoken)  # type: ignore[attr-defined]
        assert spoken[: len(asked) - 1] == asked[:-1], "the very ids, but for how the answer ended"
        said = [{"role": "user", "content": "a"}, {"id": first["output"][0]["id"]}]
        check(await answer(client, input=said, store=False))
        assert "final<|message|>one<|end|>" in seen(served), "its items can be referred to"
    assert (await served.get(f"/v1/responses/{first['id']}")).status_code == 404


async def test_requests_wait_their_turn(serve: Serve) -> None:
    served = await serve({"markup": HELLO, "delay_ms": 2})
    async with socket(served) as client:
        for text in "abc":
            await send(client, input=text)
        events = [await receive(client)]
        while sum(event["type"] in TERMINAL for event in events) < 3:
            events.append(await receive(client))
    ends = [place for place, event in enumerate(events) if event["type"] in TERMINAL]
    for begin, end in zip([0, *(place + 1 for place in ends)], ends, strict=False):
        assert check(events[begin : end + 1])["status"] == "completed"


async def test_streams_are_answered_side_by_side(serve: Serve) -> None:
    served = await serve(LONG, HELLO)
    async with socket(served) as client:
        await send(client, input="long", stream_id="a")
        assert (await receive(client))["stream_id"] == "a"
        await send(client, input="short", stream_id="b")
        short: list[dict[str, Any]] = []
        while not short or short[-1]["type"] not in TERMINAL:
            if (event := await receive(client)).pop("stream_id") == "b":
                short.append(event)
        assert check(short)["status"] == "completed"
        assert served.turns[0].response.status == "in_progress"


async def test_it_can_be_told_beforehand(serve: Serve) -> None:
    """What Codex does before its first request: no output, and an id to go on from."""
    served = await serve(HELLO)
    async with socket(served) as client:
        told = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "a"}]
        warm = check(await answer(client, input=told, generate=False, store=False))
        assert warm["status"] == "completed" and warm["output"] == []
        assert warm["usage"]["output_tokens"] == 0
        check(await answer(client, input="b", previous_response_id=warm["id"], store=False))
        markup = seen(served)
        assert markup.index("Be brief.") < markup.index("user<|message|>a<|end|>")
        assert "user<|message|>b<|end|>" in markup


async def test_who_leaves_stops_what_runs(serve: Serve) -> None:
    served = await serve(LONG)
    client = await socket(served)
    await send(client, input="x", background=True)
    await send(client, input="y")
    turn = await started(served)
    client.transport.abort()
    async with asyncio.timeout(60):
        assert (await turn.done()).status == "cancelled"
        await served.endpoint.drained()
    assert served.turns == [turn] and not served.endpoint.running


BAD: list[tuple[str | bytes, int, str | None]] = [
    ("", 400, "invalid_json"),
    ("{", 400, "invalid_json"),
    (b"\xff", 400, "invalid_json"),
    ("[]", 400, "invalid_type"),
    ("{}", 400, "invalid_value"),
    ('{"type":"response.cancel"}', 400, "invalid_value"),
    ('{"type":"response.create"}', 400, "missing_required_parameter"),
    ('{"type":"response.create","input":"x","temperature":"hot"}', 400, "invalid_type"),
    ('{"type":"response.create","input":"x","stream_id":1}', 400, "invalid_value"),
    ('{"type":"response.create","input":"x","model":"gpt-9"}', 404, "model_not_found"),
    (json.dumps({"type": "response.create", "input": "x" * 900}), 413, "request_too_large"),
]


async def test_what_is_wrong_is_told_and_the_connection_stays(serve: Serve) -> None:
    served = await serve(HELLO)
    served.endpoint.max_body = 800
    async with socket(served) as client:
        for message, status, code in BAD:
            await client.send(message)
            assert error_of([await receive(client)], status)["code"] == code, message
        assert check(await answer(client, input="x"))["status"] == "completed"


async def test_too_many_and_too_long(serve: Serve) -> None:
    served = await serve(LONG)
    async with socket(served) as client:
        for _ in range(33):
            await send(client, input="x")
        while (event := await receive(client))["type"] != "error":
            pass
        assert error_of([event], 429)["code"] == "rate_limit_exceeded"
    async with socket(served) as client:
        with pytest.raises(ConnectionClosed) as closed:
            await client.send(" " * (64 * 1024 * 1024 + 1))
            await client.recv()
        assert closed.value.rcvd and closed.value.rcvd.code == 1009


async def test_a_fault_of_ours(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = await serve(HELLO)
    monkeypatch.setattr(served.endpoint.memory, "find", lambda name: 1 / 0)
    async with socket(served) as client:
        events = await answer(client, input="x", previous_response_id="y")
        assert "log file" in error_of(events, 500)["message"]
        assert check(await answer(client, input="x"))["status"] == "completed"


async def test_who_has_left_is_no_fault_of_ours(serve: Serve) -> None:
    served = await serve(HELLO)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        if message["type"] == "websocket.send":
            raise OSError("it has left")

    left = WebSocket({"type": "websocket"}, receive, send)
    await left.accept()
    connection = Connection(served.endpoint, left)
    for _ in range(2):  # also where another stream has found that out
        with pytest.raises(WebSocketDisconnect):
            await connection._refuse(broken(), None)


async def test_who_leaves_while_something_is_sent_has_its_response_ended(serve: Serve) -> None:
    served = await serve(LONG)
    told = json.dumps({"type": "response.create", "input": "x"})
    messages = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": told}]
    gone = asyncio.Event()

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await gone.wait()
        return {"type": "websocket.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "websocket.send":
            gone.set()
            raise OSError("it has left")

    left = WebSocket({"type": "websocket"}, receive, send)
    await left.accept()
    await Connection(served.endpoint, left).serve()
    await served.endpoint.drained()
    found = await served.get(f"/v1/responses/{served.turns[-1].response.id}")
    assert found.json()["status"] == "cancelled"


async def test_who_may_connect(serve: Serve) -> None:
    served = await serve(HELLO, api_key=KEY)
    port = served.url.split(":")[2].split("/")[0]
    key = {"authorization": f"Bearer {KEY}"}
    refused: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({**key, "origin": "https://evil.example"}, 403),
        ({**key, "origin": "null"}, 403),
    ]
    for headers, status in refused:
        with pytest.raises(InvalidStatus) as caught:
            await socket(served, **headers)
        assert caught.value.response.status_code == status
        assert json.loads(caught.value.response.body)["error"]["code"]
    async with socket(served, **key, origin=f"http://127.0.0.1:{port}") as client:
        assert check(await answer(client, input="x"))["status"] == "completed"
    # A name that a foreign page made this machine's.
    with pytest.raises(InvalidStatus) as caught:
        await connect(
            f"ws://evil.example:{port}/v1/responses",
            host="127.0.0.1",
            additional_headers=key,
        )
    assert caught.value.response.status_code == 403


async def test_the_end_lets_responses_finish(serve: Serve) -> None:
    served = await serve({"markup": HELLO, "delay_ms": 20})
    async with socket(served) as client:
        await send(client, input="x")
        await send(client, input="y")
        first = [await receive(client)]
        served.server.end()
        while first[-1]["type"] not in TERMINAL:
            first.append(await receive(client))
        assert check(first)["status"] == "completed"
        error_of([await receive(client)], 503)
        with pytest.raises(ConnectionClosed):
            await client.recv()
    async with asyncio.timeout(60):
        await served.serving
