"""A stream that its client comes back to: from the turn while it runs, else as it was kept."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from starlette.responses import Response

from agent import events as ev
from agent.runtime.hub import Log
from agent.server.errors import invalid
from agent.server.sse import DONE, EVENTS, Wire
from agent.store.stored_response import Kept


def packed(log: Log) -> bytes:
    """The official events, a line each."""
    lines = (event.model_dump_json() for event in log.events if isinstance(event, ev.Official))
    return zlib.compress("\n".join(lines).encode())


def replay(kept: Kept, after: int, wire: Wire) -> Response:
    """The events of a response that has ended, from the one behind ``after``. Raises ApiError."""
    if kept.events:
        lines = zlib.decompress(kept.events).decode().split("\n")
        sent = b"".join(wire.frame(line) for line in lines[max(after + 1, 0) :])
    elif kept.response.background:
        sent = b"".join(map(wire, _lost(kept.response, after)))
    else:
        raise invalid("stream", "Only a background response can be streamed again.")
    return Response(sent + DONE, headers=EVENTS)


def _lost(response: ev.Response, after: int) -> Iterator[ev.Official]:
    """Its process ended before it did, and the stream with it: what is left is how it ended."""
    begun = response.model_copy(update={"status": "in_progress", "error": None})
    if after < 0:
        yield ev.ResponseCreated(sequence_number=0, response=begun)
    if after < 1:
        yield ev.ResponseInProgress(sequence_number=1, response=begun)
    yield ev.ResponseFailed(sequence_number=max(after + 1, 2), response=response)
