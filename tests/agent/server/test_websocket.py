"""Responses over a WebSocket: the events of a stream as messages, many responses a connection."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketState
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent.engine.protocol import EngineError, Generation, Request
from agent.server.responses.sse import SseEncoder
from agent.server.responses.websocket import WebSocketConnection
from tests.support.endpoint import API_KEY, Serve, comparable, engine_markup, first_turn
from tests.support.invariants import TERMINAL, check
from tests.support.scripts import HELLO, LONG, WEATHER, call, final, hold, thought
from tests.support.waiting import HANG_SECONDS
from tests.support.websocket import (
    error_event,
    open_socket,
    receive_event,
    request_events,
    send_request,
)


async def test_websocket_events_equal_stream(serve: Serve) -> None:
    served = await serve(HELLO)
    streamed = check(await served.stream(input="hello"))
    async with open_socket(served) as client:
        assert client.response is not None
        assert client.response.headers["x-request-id"].startswith("req_")
        for _ in range(2):
            assert comparable(check(await request_events(client, input="hello"))) == comparable(
                streamed
            )
    assert served.turns[-1].source == "http"
    stored = await served.get(f"/v1/responses/{served.turns[-1].response.id}")
    assert stored.json()["status"] == "completed", "it is stored like any other"


async def test_websocket_openai_python(serve: Serve) -> None:
    served = await serve(
        thought("Weather.") + call("get_weather", place="Oslo"), final("Cold."), api_key=API_KEY
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


async def test_websocket_sync_openai_python(serve: Serve) -> None:
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


async def test_websocket_unstored_response_continues_on_connection(serve: Serve) -> None:
    served = await serve(final("one"), final("two"))
    async with open_socket(served) as client, open_socket(served) as other:
        first = check(await request_events(client, input="a", store=False))
        first_ids = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
        followed = {"input": "b", "previous_response_id": first["id"], "store": False}
        error = error_event(await request_events(other, **followed), 400)
        assert (error["code"], error["param"]) == (
            "previous_response_not_found",
            "previous_response_id",
        )
        second = check(await request_events(client, **followed))
        assert second["previous_response_id"] == first["id"]
        second_ids = list(served.runtime.loaded.engine.answered_ids)  # type: ignore[attr-defined]
        assert second_ids[: len(first_ids) - 1] == first_ids[:-1], (
            "the very ids, but for how the answer ended"
        )
        items = [{"role": "user", "content": "a"}, {"id": first["output"][0]["id"]}]
        check(await request_events(client, input=items, store=False))
        assert "final<|message|>one<|end|>" in engine_markup(served), "its items can be referred to"
    assert (await served.get(f"/v1/responses/{first['id']}")).status_code == 404


async def test_websocket_failed_continuation_evicts_the_unstored_response(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(final("one"))
    async with open_socket(served) as client:

        async def continued(stored: bool, **wrong: Any) -> list[dict[str, Any]]:
            """Continue a response wrongly, then as one should."""
            first = check(await request_events(client, input="a", store=stored))
            follow = {"input": "b", "previous_response_id": first["id"], "store": stored}
            failed = await request_events(client, **follow | wrong)
            assert failed[-1]["type"] in ("error", "response.failed")
            return await request_events(client, **follow)

        for wrong in ({"temperature": "hot"}, {"model": "nobody"}):
            error = error_event(await continued(False, **wrong), 400)
            assert error["code"] == "previous_response_not_found"
            assert check(await continued(True, **wrong))["status"] == "completed"
        generate = served.runtime.generate

        def generate_most(request: Request) -> Generation:
            if "broken" in served.turns[-1].prompt[-1].text:
                raise EngineError("The engine has ended.")
            return generate(request)

        monkeypatch.setattr(served.runtime, "generate", generate_most)
        error = error_event(await continued(False, input="broken"), 400)
        assert error["code"] == "previous_response_not_found"


async def test_websocket_requests_run_in_order(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    async with open_socket(served) as client:
        for text in "abc":
            await send_request(client, input=text)
        events = [await receive_event(client)]
        await (await client.ping())  # answered once what was sent before is read
        assert len(served.turns) == 1, "the others wait for it"
        go.touch()
        while sum(event["type"] in TERMINAL for event in events) < 3:
            events.append(await receive_event(client))
    ends = [index for index, event in enumerate(events) if event["type"] in TERMINAL]
    for begin, end in zip([0, *(index + 1 for index in ends)], ends, strict=False):
        assert check(events[begin : end + 1])["status"] == "completed"
    assert [turn.prompt[-1].text for turn in served.turns] == [*"abc"]


async def test_websocket_stream_ids_run_concurrently(serve: Serve) -> None:
    served = await serve(LONG, HELLO)
    async with open_socket(served) as client:
        await send_request(client, input="long", stream_id="a")
        assert (await receive_event(client))["stream_id"] == "a"
        await send_request(client, input="short", stream_id="b")
        short: list[dict[str, Any]] = []
        while not short or short[-1]["type"] not in TERMINAL:
            if (event := await receive_event(client)).pop("stream_id") == "b":
                short.append(event)
        assert check(short)["status"] == "completed"
        assert served.turns[0].response.status == "in_progress"


async def test_websocket_generate_false_prefills(serve: Serve) -> None:
    """What Codex does before its first request: no output, and an id to go on from."""
    served = await serve(HELLO)
    async with open_socket(served) as client:
        items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "a"}]
        warm = check(await request_events(client, input=items, generate=False, store=False))
        assert warm["status"] == "completed" and warm["output"] == []
        assert warm["usage"]["output_tokens"] == 0
        check(await request_events(client, input="b", previous_response_id=warm["id"], store=False))
        markup = engine_markup(served)
        assert markup.index("Be brief.") < markup.index("user<|message|>a<|end|>")
        assert "user<|message|>b<|end|>" in markup


async def test_websocket_disconnect_cancels(serve: Serve) -> None:
    served = await serve(LONG)
    client = await open_socket(served)
    await send_request(client, input="x", background=True)
    await send_request(client, input="y")
    turn = await first_turn(served)
    client.transport.abort()
    async with asyncio.timeout(HANG_SECONDS):
        assert (await turn.done()).status == "cancelled"
        await served.service.wait_idle()
    assert served.turns == [turn] and not served.service.running


BAD_MESSAGES: list[tuple[str | bytes, int, str | None]] = [
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


async def test_websocket_bad_message_error_connection_stays(serve: Serve) -> None:
    served = await serve(HELLO, server={"max_body_bytes": 800})
    async with open_socket(served) as client:
        for message, status, code in BAD_MESSAGES:
            await client.send(message)
            assert error_event([await receive_event(client)], status)["code"] == code, message
        assert check(await request_events(client, input="x"))["status"] == "completed"


async def test_websocket_too_many_or_too_long_messages(serve: Serve) -> None:
    served = await serve(LONG)
    async with open_socket(served) as client:
        for _ in range(33):
            await send_request(client, input="x")
        while (event := await receive_event(client))["type"] != "error":
            pass
        assert error_event([event], 429)["code"] == "rate_limit_exceeded"
    async with open_socket(served) as client:
        with pytest.raises(ConnectionClosed) as closed:
            await client.send(" " * (64 * 1024 * 1024 + 1))
            await client.recv()
        assert closed.value.rcvd and closed.value.rcvd.code == 1009


async def test_websocket_internal_error_connection_stays(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(HELLO)
    monkeypatch.setattr(served.service.cache, "find", lambda name: 1 / 0)
    async with open_socket(served) as client:
        events = await request_events(client, input="x", previous_response_id="y")
        assert "log file" in error_event(events, 500)["message"]
        assert check(await request_events(client, input="x"))["status"] == "completed"


async def failing_socket(*texts: str) -> WebSocket:
    """A WebSocket over which messages come, while every message sent over it fails."""
    messages = [{"type": "websocket.connect"}]
    messages += [{"type": "websocket.receive", "text": text} for text in texts]
    failed = asyncio.Event()

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await failed.wait()
        return {"type": "websocket.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "websocket.send":
            failed.set()
            raise OSError("the client has disconnected")

    socket = WebSocket({"type": "websocket"}, receive, send)
    await socket.accept()
    return socket


@pytest.mark.parametrize(
    "texts",
    [["{"], [f'{{"type": "response.create", "input": 1, "stream_id": "{name}"}}' for name in "ab"]],
)
async def test_websocket_send_after_disconnect_is_not_logged(
    serve: Serve, texts: list[str]
) -> None:
    """The second stream's error finds that the first one's could not be sent."""
    served = await serve(HELLO)
    socket = await failing_socket(*texts)
    await WebSocketConnection(served.service, SseEncoder(), socket).serve()
    await served.service.wait_idle()
    assert socket.application_state is WebSocketState.DISCONNECTED
    log_file = served.runtime.paths.log_file
    assert not log_file.exists() or "broke" not in log_file.read_text()


async def test_websocket_disconnect_during_send_response_ends(serve: Serve) -> None:
    served = await serve(LONG)
    socket = await failing_socket(json.dumps({"type": "response.create", "input": "x"}))
    await WebSocketConnection(served.service, SseEncoder(), socket).serve()
    await served.service.wait_idle()
    stored = await served.get(f"/v1/responses/{served.turns[-1].response.id}")
    assert stored.json()["status"] == "cancelled"


async def test_websocket_key_and_origin_are_checked(serve: Serve) -> None:
    served = await serve(HELLO, api_key=API_KEY)
    port = served.url.split(":")[2].split("/")[0]
    key = {"authorization": f"Bearer {API_KEY}"}
    refused: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({**key, "origin": "https://evil.example"}, 403),
        ({**key, "origin": "null"}, 403),
    ]
    for headers, status in refused:
        with pytest.raises(InvalidStatus) as caught:
            await open_socket(served, **headers)
        assert caught.value.response.status_code == status
        assert json.loads(caught.value.response.body)["error"]["code"]
    async with open_socket(served, **key, origin=f"http://127.0.0.1:{port}") as client:
        assert check(await request_events(client, input="x"))["status"] == "completed"
    # A name that a foreign page made this machine's.
    with pytest.raises(InvalidStatus) as caught:
        await connect(
            f"ws://evil.example:{port}/v1/responses", host="127.0.0.1", additional_headers=key
        )
    assert caught.value.response.status_code == 403


async def test_websocket_drain_lets_responses_finish(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    async with open_socket(served) as client:
        await send_request(client, input="x")
        await send_request(client, input="y")
        first = [await receive_event(client)]
        await (await client.ping())  # answered once the second request is read
        served.server.drain()
        go.touch()
        while first[-1]["type"] not in TERMINAL:
            first.append(await receive_event(client))
        assert check(first)["status"] == "completed"
        error_event([await receive_event(client)], 503)
        with pytest.raises(ConnectionClosed):
            await client.recv()
    async with asyncio.timeout(HANG_SECONDS):
        await served.serving


async def test_lenient_connection_passes_over_and_logs(serve: Serve) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    body = {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, image]}],
        "mood": 1,
        "reasoning": {"mode": "pro"},
        "tools": [{"type": "time_travel"}],
    }
    strict = await serve(HELLO)
    async with open_socket(strict) as client:
        assert error_event(await request_events(client, **body), 400)["param"] == "reasoning.mode"
        assert check(await request_events(client, input="x"))["status"] == "completed"
    served = await serve(HELLO, server={"lenient": True})
    async with open_socket(served) as client:
        assert check(await request_events(client, **body))["status"] == "completed"
        assert "There was an image here" in engine_markup(served)
        log = served.runtime.paths.log_file.read_text()
        assert "mood, reasoning.mode, tools[0]" in log
        wrong = await request_events(client, input="x", temperature="hot")
        assert error_event(wrong, 400)["param"] == "temperature"


async def test_generate_is_true_or_false(serve: Serve) -> None:
    served = await serve(HELLO)
    async with open_socket(served) as client:
        refused = await request_events(client, input="x", generate="no")
        assert error_event(refused, 400)["param"] == "generate"
        assert check(await request_events(client, input="x", generate=None))["output"]
