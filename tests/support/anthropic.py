"""Requests to ``/v1/messages``, and the checks of what must be true of every answer."""

from __future__ import annotations

import json
from typing import Any

from tests.support.endpoint import Served

VERSION = {"anthropic-version": "2023-06-01"}
TOOL = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "input_schema": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
        "additionalProperties": False,
    },
}
USER = [{"role": "user", "content": "Hi"}]


def body_of(**fields: Any) -> dict[str, Any]:
    return {"model": "default", "max_tokens": 1000, "messages": USER, **fields}


async def post(served: Served, path: str = "", **fields: Any) -> Any:
    """The raw answer; ``path``: below ``/v1/messages``."""
    return await served.post(body_of(**fields), url=f"{served.url}/messages{path}?beta=true")


async def create(served: Served, **fields: Any) -> dict[str, Any]:
    """The message that answers a request, whole, or made of the events of its stream."""
    answer = await post(served, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["request-id"]
    message: dict[str, Any] = fold(answer.text) if fields.get("stream") else answer.json()
    return message


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each with its name; pings are left out."""
    *blocks, rest = text.split("\n\n")
    assert rest == ""
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return [event for event in events if event["type"] != "ping"]


def fold(text: str) -> dict[str, Any]:
    """Build the message from its events, as a client does."""
    start, *events, end = events_of(text)
    assert start["type"] == "message_start" and end == {"type": "message_stop"}, text
    message: dict[str, Any] = start["message"]
    assert message["content"] == [] and message["stop_reason"] is None
    partial = ""
    for event in events[:-1]:
        blocks = message["content"]
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index == len(blocks)
                blocks.append(block)
                partial = ""
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert index == len(blocks) - 1
                kind, name = {
                    "text_delta": ("text", "text"),
                    "thinking_delta": ("thinking", "thinking"),
                    "signature_delta": ("thinking", "signature"),
                    "input_json_delta": ("tool_use", "partial_json"),
                }[delta["type"]]
                assert blocks[-1]["type"].endswith(kind)
                if name == "partial_json":
                    partial += delta[name]
                else:
                    blocks[-1][name] += delta[name]
            case {"type": "content_block_stop", "index": index}:
                assert index == len(blocks) - 1
                if partial:
                    blocks[-1]["input"] = json.loads(partial)
            case _:
                raise AssertionError(event)
    assert events[-1]["type"] == "message_delta"
    return {**message, **events[-1]["delta"], "usage": events[-1]["usage"]}


def anthropic_error(answer: Any, status: int) -> dict[str, str]:
    """The error of a refused request, after checks of its shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["request-id"]
    body = answer.json()
    assert set(body) == {"type", "error"} and body["type"] == "error"
    error: dict[str, str] = body["error"]
    assert set(error) == {"type", "message"} and "Traceback" not in error["message"]
    return error
