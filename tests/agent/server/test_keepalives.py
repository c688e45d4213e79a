"""A stream is never silent for long: while a model loads, a prompt is read, or a tool runs."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.server.http.errors import ApiError
from tests.support.endpoint import Serve, Served, events_of, http_client
from tests.support.invariants import check
from tests.support.scripts import HELLO, hold
from tests.support.waiting import HANG_SECONDS
from tests.support.websocket import open_socket, send_request

QUICK = {"keepalive_seconds": 0.05}
COMMENT = ": keepalive"


async def blocks(served: Served, path: str, body: dict[str, Any]) -> AsyncIterator[str]:
    """What a stream sends, block by block."""
    async with (
        http_client() as http,
        http.stream("POST", f"{served.url}{path}", json={**body, "stream": True}) as answer,
    ):
        assert answer.status_code == 200
        text = ""
        async for chunk in answer.aiter_text():
            text += chunk
            *complete, text = text.split("\n\n")
            for block in complete:
                yield block


def is_keepalive(block: str) -> bool:
    return block == COMMENT or block.startswith("event: keepalive\n")


async def read_until_silent(served: Served, go: Path, path: str, body: dict[str, Any]) -> list[str]:
    """All blocks of a stream that stops writing until two signs of life came."""
    read: list[str] = []
    async with asyncio.timeout(HANG_SECONDS):
        async for block in blocks(served, path, body):
            read.append(block)
            if sum(map(is_keepalive, read)) == 2:
                go.touch()
    assert sum(map(is_keepalive, read)) >= 2
    return read


@pytest.mark.parametrize("after", [0, 5], ids=["before the first token", "in the answer"])
async def test_responses_stream_sends_keepalive_events(
    serve: Serve, tmp_path: Path, after: int
) -> None:
    served = await serve(hold(HELLO, after, tmp_path / "go"), server=QUICK)
    read = await read_until_silent(served, tmp_path / "go", "/responses", {"input": "x"})
    events = events_of("\n\n".join([*read, ""]))
    last = 0
    for event in events:
        if event["type"] == "keepalive":
            assert event == {"type": "keepalive", "sequence_number": last}
        else:
            last = event["sequence_number"]
    check([event for event in events if event["type"] != "keepalive"])


async def test_keepalives_are_not_stored(serve: Serve, tmp_path: Path) -> None:
    served = await serve(hold(HELLO, 5, tmp_path / "go"), server=QUICK)
    body = {"input": "x", "background": True}
    read = await read_until_silent(served, tmp_path / "go", "/responses", body)
    sent = events_of("\n\n".join([*read, ""]))
    name = next(event for event in sent if event["type"] == "response.created")["response"]["id"]
    replayed = events_of((await served.get(f"/v1/responses/{name}?stream=true")).text)
    assert replayed == [event for event in sent if event["type"] != "keepalive"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 2}),
        ("/completions", {"prompt": "x", "model": "default"}),
    ],
)
async def test_older_apis_send_comments(
    serve: Serve, tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    served = await serve(hold(HELLO, 3, tmp_path / "go"), server=QUICK)
    read = await read_until_silent(served, tmp_path / "go", path, body)
    assert COMMENT in read and read[-1] == "data: [DONE]"


async def test_websocket_sends_keepalive_events(serve: Serve, tmp_path: Path) -> None:
    served = await serve(hold(HELLO, 5, tmp_path / "go"), server=QUICK)
    kinds: list[str] = []
    async with open_socket(served) as client, asyncio.timeout(HANG_SECONDS):
        await send_request(client, input="x", stream_id="a")
        while "response.completed" not in kinds:
            event = json.loads(await client.recv())
            assert event["stream_id"] == "a"
            kinds.append(event["type"])
            if kinds.count("keepalive") == 2:
                (tmp_path / "go").touch()
    assert kinds.count("keepalive") >= 2


def delay_begin(served: Served, go: asyncio.Event, error: ApiError | None = None) -> None:
    """Let requests wait for ``go`` before they begin, as for a model that is loaded."""
    begin = served.service.begin

    async def delayed(*arguments: Any, **options: Any) -> Any:
        await go.wait()
        if error is not None:
            raise error
        return await begin(*arguments, **options)

    served.service.begin = delayed  # type: ignore[method-assign]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": "x"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
async def test_stream_lives_while_its_model_loads(
    serve: Serve, path: str, body: dict[str, Any], fails: bool
) -> None:
    served, go, read = await serve(HELLO, server=QUICK), asyncio.Event(), list[str]()
    error = ApiError(503, "The model is gone.", code="server_error")
    delay_begin(served, go, error if fails else None)
    async with asyncio.timeout(HANG_SECONDS):
        async for block in blocks(served, path, body):
            read.append(block)
            if len(read) == 2:
                assert all(map(is_keepalive, read))
                go.set()
    assert read[-1] == "data: [DONE]"
    assert ("The model is gone." in read[-2]) is fails


async def test_error_before_the_first_sign_of_life_is_an_http_error(serve: Serve) -> None:
    served, go = await serve(HELLO), asyncio.Event()
    go.set()
    delay_begin(served, go, ApiError(503, "The model is gone.", code="server_error"))
    answer = await served.post({"input": "x", "stream": True})
    assert answer.status_code == 503 and "The model is gone." in answer.text
