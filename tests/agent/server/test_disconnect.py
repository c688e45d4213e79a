"""Clients that go away, servers that are asked to end."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from starlette.types import Message

from agent.errors import UserError
from agent.server.http.access import is_loopback
from agent.server.http.options import ServerOptions
from agent.server.input.parsing import parse_request
from agent.server.responses.sse import EventStream, SseEncoder
from agent.server.serve import base_url, listen, serve_in
from agent.turn.loop import Turn
from agent.turn.options import TurnOptions
from tests.support.endpoint import Serve, events_of, first_turn, open_request
from tests.support.invariants import check
from tests.support.requests import CODE_INTERPRETER
from tests.support.scripts import HELLO, LONG, final, hold, python, thought
from tests.support.waiting import HANG_SECONDS, wait_until


@pytest.mark.parametrize("stream", [True, False])
async def test_disconnect_cancels_response(serve: Serve, stream: bool) -> None:
    served = await serve(LONG)
    leaving = await open_request(served, {"input": "x", "stream": stream})
    turn = await first_turn(served)
    leaving.close()
    async with asyncio.timeout(HANG_SECONDS):
        response = await turn.done()
    assert response.status == "cancelled"
    check([event.model_dump(mode="json") for event in turn.log.events])
    await wait_until(lambda: not served.service.running)


async def test_request_task_cancelled_response_ends(serve: Serve) -> None:
    served = await serve(LONG)
    turn = await served.service.begin(parse_request(b'{"input": "x"}'))
    started = asyncio.Event()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("it never leaves")

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            started.set()

    async def begin() -> list[Turn]:
        return [turn]

    stream = EventStream(begin(), served.service, SseEncoder())
    sending = asyncio.create_task(stream({"type": "http"}, receive, send))
    async with asyncio.timeout(HANG_SECONDS):
        await started.wait()
    while not sending.done():  # as often as the server likes
        sending.cancel()
        await asyncio.sleep(0)
    await served.service.wait_idle()
    stored = await served.get(f"/v1/responses/{turn.response.id}")
    assert stored.json()["status"] == "cancelled"


def writes_reasoning(turn: Turn) -> bool:
    """Whether the first text of a turn is there."""
    return any(event.type == "response.reasoning_text.delta" for event in turn.log.events)


async def test_disconnect_leaves_other_responses(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(LONG, hold(HELLO, 5, go))
    leaving = await open_request(served, {"input": "x", "stream": True})
    turn = await first_turn(served)
    other = asyncio.create_task(served.stream(input="y"))
    await wait_until(lambda: len(served.turns) == 2 and writes_reasoning(served.turns[1]))
    leaving.close()
    async with asyncio.timeout(HANG_SECONDS):
        assert (await turn.done()).status == "cancelled"
    go.touch()
    assert check(await other)["status"] == "completed"


async def test_disconnect_stops_running_tool(serve: Serve) -> None:
    code = "import time\ntime.sleep(600)"
    served = await serve(thought("a") + python(code), final("never"), tools="python")
    leaving = await open_request(
        served, {"input": "x", "stream": True, "tools": [CODE_INTERPRETER]}
    )
    turn = await first_turn(served)
    async with asyncio.timeout(HANG_SECONDS):
        async for batch in turn.log.follow():
            if any(event.type == "response.mcp_call_arguments.done" for event in batch):
                break
        leaving.close()
        response = await turn.done()
    assert response.status == "cancelled"
    assert response.output[-1].status == "failed"  # type: ignore[union-attr]


async def test_client_never_reads_others_proceed(serve: Serve) -> None:
    served = await serve(thought("a") + final("word " * 20_000), HELLO)
    stalled = await open_request(served, {"input": "x", "stream": True})
    turn = await first_turn(served)
    async with asyncio.timeout(HANG_SECONDS):
        assert (await turn.done()).status == "completed"
        assert check(await served.stream(input="y"))["status"] == "completed"
    stalled.close()


async def test_drain_lets_responses_finish(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    running = asyncio.create_task(served.post({"input": "x", "stream": True}))
    await first_turn(served)
    served.server.drain()
    go.touch()
    response = check(events_of((await running).text))
    assert response["status"] == "completed"
    async with asyncio.timeout(HANG_SECONDS):
        await served.serving
    with pytest.raises(OSError):
        await open_request(served, {"input": "x"})


async def test_drain_twice_cancels_responses(serve: Serve) -> None:
    served = await serve(LONG)
    running = asyncio.create_task(served.post({"input": "x", "stream": True}))
    await first_turn(served)
    served.server.drain()
    served.server.drain()
    async with asyncio.timeout(HANG_SECONDS):
        response = check(events_of((await running).text))
        await served.serving
    assert response["status"] == "cancelled"


async def test_serve_in_shares_runtime_not_tools(serve: Serve) -> None:
    """In another program's loop, on its runtime, whose tools stay its own."""
    served = await serve(LONG, tools="python")
    listener = listen("127.0.0.1", 0, None)
    beside = asyncio.create_task(serve_in(served.runtime, TurnOptions(), listener, ServerOptions()))
    url = f"{base_url(listener)}/responses"
    async with httpx2.AsyncClient(timeout=HANG_SECONDS) as http:
        refused = await http.post(url, json={"input": "x", "tools": [CODE_INTERPRETER]})
        assert refused.json()["error"]["code"] == "mcp_server_not_found"
        running = asyncio.create_task(http.post(url, json={"input": "x", "stream": True}))
        await first_turn(served)
        beside.cancel()
        assert check(events_of((await running).text))["status"] == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await beside
    assert (await served.post({"input": "x", "max_output_tokens": 16})).status_code == 200


def test_listen_beyond_loopback_needs_key() -> None:
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
def test_is_loopback_true(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "example.com", "localhost.evil.example", "10.0.0.1"]
)
def test_is_loopback_false(host: str) -> None:
    assert not is_loopback(host)
