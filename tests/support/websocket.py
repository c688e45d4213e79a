"""A client of the WebSocket ``/v1/responses``; every event is checked against OpenAI's types."""

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect

from tests.support.endpoint import Served
from tests.support.invariants import TERMINAL
from tests.support.waiting import HANG_SECONDS


@cache
def server_event() -> TypeAdapter[Any]:
    """OpenAI's type of all events; loading it takes a second."""
    from openai.types.responses.responses_server_event import ResponsesServerEvent

    return TypeAdapter(ResponsesServerEvent)


def open_socket(served: Served, **headers: str) -> connect:
    """Connect: ``async with open_socket(served) as client``."""
    address = served.url.replace("http", "ws")
    return connect(f"{address}/responses", additional_headers=headers, max_size=None)


async def send_request(client: ClientConnection, **body: Any) -> None:
    """Send a ``response.create`` message."""
    await client.send(json.dumps({"type": "response.create", **body}))


async def receive_event(client: ClientConnection) -> dict[str, Any]:
    """The next event but for signs of life, validated."""
    event: dict[str, Any] = {"type": "keepalive"}
    async with asyncio.timeout(HANG_SECONDS):
        while event["type"] == "keepalive":
            event = json.loads(await client.recv())
    server_event().validate_python(event)
    return event


async def request_events(client: ClientConnection, **body: Any) -> list[dict[str, Any]]:
    """Send a request; the events of its response, or its error."""
    await send_request(client, **body)
    events = [await receive_event(client)]
    while events[-1]["type"] not in {*TERMINAL, "error"}:
        events.append(await receive_event(client))
    return events


def error_event(events: Sequence[dict[str, Any]], status: int) -> dict[str, Any]:
    """The error of a refused request, which is its only event."""
    (event,) = events
    assert event["type"] == "error" and event["status"] == status, event
    error: dict[str, Any] = event["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    return error
