"""Clients that go away, servers that are asked to end."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from starlette.types import Message

from agent.errors import UserError
from agent.server.auth import is_loopback
from agent.server.parsing import parse
from agent.server.serve import address, listen, serve_in
from agent.server.sse import EventStream
from agent.turn.loop import Turn
from agent.turn.options import Options
from tests.support.endpoint import Serve, Served, events_of
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, final, python, thought

CODE = {"type": "mcp", "server_label": "code_interpreter"}


async def connect(
    served: Served, body: dict[str, object], path: str = "/v1/responses"
) -> asyncio.StreamWriter:
    """A client that sent its request and never reads."""
    host, port = served.root.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    return writer


async def started(served: Served) -> Turn:
    """The first turn, as soon as its first token is there."""
    async with asyncio.timeout(60):
        begun = asyncio.get_running_loop().create_future()
        served.runtime.hub.listen(lambda turn: begun.done() or begun.set_result(turn))
        turn: Turn = served.turns[0] if served.turns else await begun
        async for batch in turn.log.follow():
            if any(event.type == "response.reasoning_text.delta" for event in batch):
                break
    return turn


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_cancels_its_response(serve: Serve, stream: bool) -> None:
    served = await serve(LONG)
    leaving = await connect(served, {"input": "x", "stream": stream})
    turn = await started(served)
    leaving.close()
    async with asyncio.timeout(60):
        response = await turn.done()
    assert response.status == "cancelled"
    check([event.model_dump(mode="json") for event in turn.log.events])
    async with asyncio.timeout(60):
        while served.endpoint.running:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_request_that_is_given_up_has_its_response_ended(serve: Serve) -> None:
    served = await serve(LONG)
    turn = await served.endpoint.begin(parse(b'{"input": "x"}'))
    begun = asyncio.Event()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("it never leaves")

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            begun.set()

    stream = EventStream(turn, served.endpoint, served.endpoint.wire)
    sending = asyncio.create_task(stream({"type": "http"}, receive, send))
    async with asyncio.timeout(60):
        await begun.wait()
    while not sending.done():  # as often as the server likes
        sending.cancel()
        await asyncio.sleep(0)
    await served.endpoint.drained()
    found = await served.get(f"/v1/responses/{turn.response.id}")
    assert found.json()["status"] == "cancelled"


async def test_others_go_on_when_one_leaves(serve: Serve) -> None:
    served = await serve({"markup": HELLO, "delay_ms": 20})
    leaving = await connect(served, {"input": "x", "stream": True})
    await started(served)
    other = asyncio.create_task(served.stream(input="y"))
    leaving.close()
    assert check(await other)["status"] == "completed"


async def test_leaving_stops_a_tool_too(serve: Serve) -> None:
    code = "import time\ntime.sleep(60)"
    served = await serve(thought("a") + python(code), final("never"), tools="python")
    leaving = await connect(served, {"input": "x", "stream": True, "tools": [CODE]})
    turn = await started(served)
    async with asyncio.timeout(60):
        async for batch in turn.log.follow():
            if any(event.type == "response.mcp_call_arguments.done" for event in batch):
                break
        leaving.close()
        response = await turn.done()
    assert response.status == "cancelled"
    assert response.output[-1].status == "failed"  # type: ignore[union-attr]


async def test_a_client_that_never_reads_holds_up_nobody(serve: Serve) -> None:
    served = await serve(thought("a") + final("word " * 20_000), HELLO)
    stalled = await connect(served, {"input": "x", "stream": True})
    turn = await started(served)
    async with asyncio.timeout(60):
        assert (await turn.done()).status == "completed"
        assert check(await served.stream(input="y"))["status"] == "completed"
    stalled.close()


async def test_the_end_lets_responses_finish(serve: Serve) -> None:
    served = await serve({"markup": HELLO, "delay_ms": 20})
    running = asyncio.create_task(served.post({"input": "x", "stream": True}))
    await started(served)
    served.server.end()
    response = check(events_of((await running).text))
    assert response["status"] == "completed"
    async with asyncio.timeout(60):
        await served.serving
    with pytest.raises(OSError):
        await connect(served, {"input": "x"})


async def test_asked_twice_it_ends_at_once_and_says_so(serve: Serve) -> None:
    served = await serve(LONG)
    running = asyncio.create_task(served.post({"input": "x", "stream": True}))
    await started(served)
    served.server.end()
    served.server.end()
    async with asyncio.timeout(60):
        response = check(events_of((await running).text))
        await served.serving
    assert response["status"] == "cancelled"


async def test_beside_an_app(serve: Serve) -> None:
    """In another program's loop, on its runtime, whose tools stay its own."""
    served = await serve(LONG, tools="python")
    listener = listen("127.0.0.1", 0, None)
    beside = asyncio.create_task(serve_in(served.runtime, Options(), listener))
    url = f"{address(listener)}/responses"
    async with httpx2.AsyncClient(timeout=60) as http:
        refused = await http.post(url, json={"input": "x", "tools": [CODE]})
        assert refused.json()["error"]["code"] == "mcp_server_not_found"
        running = asyncio.create_task(http.post(url, json={"input": "x", "stream": True}))
        await started(served)
        beside.cancel()
        assert check(events_of((await running).text))["status"] == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await beside
    assert (await served.post({"input": "x", "max_output_tokens": 3})).status_code == 200


def test_other_machines_need_a_key() -> None:
    with pytest.raises(UserError, match="--api-key"):
        listen("0.0.0.0", 0, None)
    listen("0.0.0.0", 0, "key").close()
    listen("localhost", 0, None).close()
    with listen("127.0.0.1", 0, None) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}"):
            listen("127.0.0.1", port, None)
    with pytest.raises(UserError, match="Cannot listen"):
        listen("127.0.0.1", 70_000, None)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1", "[::1]"]
)
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "example.com", "localhost.evil.example", "10.0.0.1"]
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
