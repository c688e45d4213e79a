"""Clients that send slowly or not at all, and more connections than the server takes."""

import asyncio
import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import h11
import pytest
from websockets.exceptions import ConnectionClosed

from agent.server.http.connections import (
    CLOSE_POLICY,
    CLOSE_TOO_BIG,
    CLOSE_TRY_AGAIN,
    GRACE_SECONDS,
    MAX_FRAGMENTS,
    MIN_BYTES_PER_SECOND,
    Arrival,
    HttpConnection,
    IdentifyingConnection,
)
from tests.support.endpoint import Serve, Served, api_error, first_turn, open_request
from tests.support.invariants import check
from tests.support.scripts import HELLO, LONG, final, hold, thought
from tests.support.waiting import HANG_SECONDS, wait_until
from tests.support.websocket import open_socket, receive_event, request_events, send_request

HEAD = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n"
PARTIAL_FRAME = b"\x81\xfe\x04\x00mask{"
"""The beginning of a client's frame: a text of 1,024 bytes."""


async def connect(served: Served, data: bytes) -> asyncio.StreamReader:
    """Connect, and send the beginning of a request."""
    host, port = served.root.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    reader.writer = writer  # type: ignore[attr-defined]  # a writer that is let go closes
    return reader


def connections(served: Served) -> set[Any]:
    return served.server.server_state.connections


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /health HT",
        HEAD + b"x: ",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" + HEAD,
        HEAD + b'content-length: 9\r\n\r\n{"inp',
        HEAD + b"transfer-encoding: chunked\r\n\r\n4\r\n{  ",
        b"HEAD /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n" + HEAD + b"content-length: 9\r\n\r\n{",
    ],
)
async def test_late_request_is_closed(serve: Serve, data: bytes) -> None:
    served = await serve(HELLO)
    limits = served.server.limits
    limits.head_seconds = limits.stall_seconds = 0.2
    reader = await connect(served, data)
    async with asyncio.timeout(HANG_SECONDS):
        answer = await reader.read()
    *_, head = answer.split(b"HTTP/1.1 ")
    if not data.startswith(b"HEAD"):
        assert head.startswith(b"408 ") and b"did not arrive in time" in head
    assert not connections(served) and served.service.body_budget.used_bytes == 0
    limits.head_seconds = limits.stall_seconds = HANG_SECONDS
    assert (await served.post({"input": "x"})).status_code == 200


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1", b"HEAD / HTTP/1.1", b"GET / HTTP/1.0"])
@pytest.mark.parametrize(
    "headers", [[], [("content-length", "6")], [("x", "transfer-encoding: chunked")]]
)
def test_answers_are_those_of_h11_with_a_request_id(
    head: bytes, headers: list[tuple[str, str]]
) -> None:
    data = b"" if head.startswith(b"HEAD") else b"abc"
    ended = h11.EndOfMessage()
    body = h11.Data(data=data)
    events = [h11.Response(status_code=200, headers=headers), body, h11.Data(data=b""), body, ended]
    written = []
    for connection in (h11.Connection(h11.SERVER), IdentifyingConnection(h11.SERVER)):
        connection.receive_data(head + b"\r\nhost: localhost\r\n\r\n")
        connection.next_event()
        written.append([connection.send(event) or b"" for event in events])
    request_id = rb"(?:x-)?request-id: req_\w+\r\n"
    assert re.search(request_id, written[1][0])
    assert written[0] == [re.sub(request_id, b"", part) for part in written[1]]


def test_arrival_steady_body_is_not_late() -> None:
    arrival, began = Arrival(), time.monotonic()
    assert not arrival.is_late(began + 19, stall_seconds=20)
    assert arrival.is_late(began + 21, stall_seconds=20)
    arrival.add(600 * MIN_BYTES_PER_SECOND)
    assert not arrival.is_late(began + 500, stall_seconds=1000)
    assert arrival.is_late(began + 601 + GRACE_SECONDS, stall_seconds=1000)


async def test_too_many_connections_idlest_make_way(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    served = await serve(hold(HELLO, 5, go))
    served.server.limits.max_connections = 8
    running = asyncio.create_task(served.stream(input="x"))
    await first_turn(served)
    slow = [await connect(served, HEAD) for _ in range(30)]
    for _ in range(3):
        assert (await served.get("/health")).status_code == 200
        assert len(connections(served)) <= 8 * 3 // 2
    await wait_until(lambda: len(connections(served)) <= 8)
    go.touch()
    assert check(await running)["status"] == "completed", "what is answered stays"
    async with asyncio.timeout(HANG_SECONDS):
        assert await slow[0].read() == b""
    assert "8 connections are open" in served.runtime.paths.log_file.read_text()


async def test_too_many_connections_all_answered_newcomer_refused(serve: Serve) -> None:
    served = await serve(LONG)
    served.server.limits.max_connections = 1
    running = await open_request(served, {"input": "x", "stream": True})
    turn = await first_turn(served)
    error = api_error(await served.get("/health"), 503)
    assert "connections" in error["message"] and turn.response.status == "in_progress"
    running.close()
    async with asyncio.timeout(HANG_SECONDS):
        await turn.done()
        while connections(served):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (await served.get("/health")).status_code == 200


@pytest.mark.long
async def test_too_many_connections_client_that_never_reads_makes_way(serve: Serve) -> None:
    served = await serve(thought("a") + final("word " * 20_000), HELLO)
    served.server.limits.max_connections = 1
    stalled = await open_request(served, {"input": "x", "stream": True})
    async with asyncio.timeout(HANG_SECONDS):
        await (await first_turn(served)).done()
        (connection,) = connections(served)
        assert isinstance(connection, HttpConnection)
        while not connection.flow.write_paused:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (await served.get("/health")).status_code == 200
    stalled.close()


async def test_websocket_late_message_is_closed(serve: Serve) -> None:
    served = await serve(HELLO)
    served.server.limits.stall_seconds = 0.2
    async with open_socket(served) as idle, open_socket(served) as client:
        client.transport.write(PARTIAL_FRAME)
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(HANG_SECONDS):
                await client.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == CLOSE_POLICY
        assert check(await request_events(idle, input="x"))["status"] == "completed"


async def test_websocket_many_fragments_are_refused(serve: Serve) -> None:
    served = await serve(HELLO)
    async with open_socket(served) as client:
        client.transport.write(b"\x01\x80mask" + b"\x00\x80mask" * (2 * MAX_FRAGMENTS))
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(HANG_SECONDS):
                await client.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == CLOSE_TOO_BIG


async def test_websocket_unread_messages_together_are_bounded(serve: Serve) -> None:
    served = await serve(LONG)
    budget = served.service.body_budget
    budget.max_bytes = 300_000
    message = json.dumps({"type": "response.create", "input": "x", "mood": "y" * 150_000})
    async with open_socket(served) as waiting, open_socket(served) as partial:
        await send_request(waiting, input="x")
        await receive_event(waiting)
        for _ in range(5):  # the first is being answered, these wait for it
            await waiting.send(message)
        async with asyncio.timeout(HANG_SECONDS):
            with contextlib.suppress(ConnectionClosed):  # or the message is refused
                while json.loads(await waiting.recv()).get("status") != 429:
                    pass
            assert budget.used_bytes <= budget.max_bytes
            frame = b"\x81\xff" + (2**20).to_bytes(8, "big") + b"mask"
            partial.transport.write(frame + b"x" * 400_000)
            with pytest.raises(ConnectionClosed) as closed:
                await partial.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == CLOSE_TRY_AGAIN
    await wait_until(lambda: not budget.used_bytes)


async def test_too_many_websockets_leave_room_for_http(serve: Serve) -> None:
    served = await serve(HELLO)
    served.server.limits.max_connections = 4
    async with open_socket(served), open_socket(served):
        refused = await connect(
            served,
            b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
            b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        async with asyncio.timeout(HANG_SECONDS):
            assert (await refused.readline()).startswith(b"HTTP/1.1 503")
        assert (await served.get("/v1/models")).status_code == 200
