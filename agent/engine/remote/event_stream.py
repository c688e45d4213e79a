"""Reads server-sent events, by section 9.2 of the HTML specification
(https://html.spec.whatwg.org/multipage/server-sent-events.html).

An event is a block of lines ``field: value`` that ends with an empty line; several ``data`` lines
are one text of several lines, and lines that begin with a colon are comments (a proxy's
keep-alive)::

    : ping
    data: {"tokens":       ->  StreamEvent("message", '{"tokens":\n[7]}')
    data: [7]}

By hand, as httpx2's EventSource drops llama-server's field ``error`` (used until September 2025,
https://github.com/ggml-org/llama.cpp/pull/16109) and refuses a stream without its content type, which
some proxies do not pass on; and ``aiter_lines`` also splits at U+2028, which JSON may contain.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StreamEvent(NamedTuple):
    """One event."""

    type: str
    """Its ``event`` field, ``message`` without one; ``error`` for llama-server's ``error``."""
    data: str


async def read_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[StreamEvent]:
    """Yield the events of a stream of bytes that is cut anywhere; an unfinished last one is dropped."""
    event_type, data = "", list[str]()
    async for line in _read_lines(chunks):
        if not line:
            if data:
                yield StreamEvent(event_type or "message", "\n".join(data))
            event_type, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                data.append(value)
            case "event":
                event_type = value
            case "error":
                event_type = "error"
                data.append(value)
            case _:
                pass  # "" of a comment, id and retry of a reconnection that does not happen


async def _read_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Yield the finished lines, without their ends: LF, CR or CR LF."""
    rest, ended_with_cr, is_first = b"", False, True
    async for chunk in chunks:
        if not chunk:
            continue
        if ended_with_cr:
            chunk = chunk.removeprefix(b"\n")  # the other half of a CR LF
        ended_with_cr = chunk.endswith(b"\r")
        *lines, rest = _LINE_END.split(rest + chunk)
        for line in lines:
            if is_first:
                line, is_first = line.removeprefix(_BYTE_ORDER_MARK), False
            yield line.decode("utf-8", "replace")
