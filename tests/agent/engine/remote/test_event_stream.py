"""Server-sent events, by section 9.2 of the HTML specification."""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from agent.engine.remote.event_stream import StreamEvent, read_events


async def chunked(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def parse(data: bytes) -> list[StreamEvent]:
    """Parse a stream in one piece, and assert that cuts anywhere change nothing."""
    events = [event async for event in read_events(chunked(data, max(len(data), 1)))]
    for size in (1, 2, 3, 7):
        assert [event async for event in read_events(chunked(data, size))] == events
    return events


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_read_events_line_ends(end: bytes) -> None:
    data = b"data: 1%sdata: 2%s%sdata: 3%s%s".replace(b"%s", end)
    assert await parse(data) == [StreamEvent("message", "1\n2"), StreamEvent("message", "3")]


async def test_read_events_multi_line_data_is_one_text() -> None:
    (event,) = await parse(b'data: {"tokens":\ndata: [7],\ndata:"content": "x"}\n\n')
    assert json.loads(event.data) == {"tokens": [7], "content": "x"}


async def test_read_events_ignores_comments_and_other_fields() -> None:
    data = b": ping\n\nid: 7\nretry: 10\n: more\ndata: a\nunknown: b\nbare\n\n:\n\n"
    assert await parse(data) == [StreamEvent("message", "a")]


async def test_read_events_specification_examples() -> None:
    """The examples of section 9.2.6: an unfinished event is dropped, one space is removed."""
    assert await parse(
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second\n\ndata:  third"
    ) == [
        StreamEvent("message", "first event"),
        StreamEvent("message", "second"),
    ]
    assert await parse(b"data\n\ndata\ndata\n\ndata:") == [
        StreamEvent("message", ""),
        StreamEvent("message", "\n"),
    ]
    assert await parse(b"data:test\n\ndata: test\n\ndata:  test\n\n") == [
        StreamEvent("message", "test"),
        StreamEvent("message", "test"),
        StreamEvent("message", " test"),
    ]


async def test_read_events_type_belongs_to_one_event() -> None:
    data = b"event: ping\ndata: 1\n\nevent: lost\n\ndata: 2\n\n"
    assert await parse(data) == [StreamEvent("ping", "1"), StreamEvent("message", "2")]


async def test_read_events_error_field_of_llama_server() -> None:
    data = b'error: {"message": "context"}\n\ndata: [DONE]\n\n'
    assert await parse(data) == [
        StreamEvent("error", '{"message": "context"}'),
        StreamEvent("message", "[DONE]"),
    ]


async def test_read_events_byte_order_mark_is_removed() -> None:
    assert await parse(b"\xef\xbb\xbfdata: a\n\n") == [StreamEvent("message", "a")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0c", "\x1e"])
async def test_read_events_other_line_separators_are_text(separator: str) -> None:
    """JSON may contain them, but httpx2's aiter_lines splits there."""
    data = f"data: a{separator}b\n\n".encode()
    assert await parse(data) == [StreamEvent("message", f"a{separator}b")]


@pytest.mark.parametrize(
    "data",
    [
        b"data: 1\r\ndata: 2\r\n\r\n",
        b": ping\n\nevent: x\ndata: a\ndata:  b\n\n",
        b"data\n\ndata: \xe2\x80\xa8\n\ndata: cut",
    ],
)
async def test_read_events_equals_httpx2(data: bytes) -> None:
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        stream=httpx2.ByteStream(data),
        request=httpx2.Request("GET", "http://localhost"),
    )
    expected = [
        StreamEvent(event.event, event.data) async for event in httpx2.EventSource(response)
    ]
    assert await parse(data) == expected
