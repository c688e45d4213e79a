"""Streams a background response that has ended once more (``GET /v1/responses/{id}?stream=true``)."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from agent import events as ev
from agent.server.errors import invalid
from agent.server.sse import DONE_MESSAGE, EVENT_STREAM_HEADERS, SseEncoder
from agent.server.stored_response import StoredResponse
from agent.store.event_codec import split_line, unpack_lines


def replay_stream(stored: StoredResponse, after: int, encoder: SseEncoder) -> Response:
    """The stored events behind sequence number ``after``. Raises ApiError if there are none."""
    lines = [split_line(line)[1] for line in unpack_lines(stored.events)]
    if lines and '"type":"agent.' not in lines[0]:  # else it was recovered from a journal
        sent = b"".join(encoder.encode_line(line) for line in lines[max(after + 1, 0) :])
    elif stored.response.background:
        sent = b"".join(map(encoder, _events_of_lost_response(stored.response, after)))
    else:
        raise invalid("stream", "Only a background response can be streamed again.")
    return Response(sent + DONE_MESSAGE, headers=EVENT_STREAM_HEADERS)


def _events_of_lost_response(response: ev.Response, after: int) -> Iterator[ev.OfficialEvent]:
    """The events of a response whose process was killed: only its end is known."""
    begun = response.model_copy(update={"status": "in_progress", "error": None})
    if after < 0:
        yield ev.ResponseCreated(sequence_number=0, response=begun)
    if after < 1:
        yield ev.ResponseInProgress(sequence_number=1, response=begun)
    yield ev.ResponseFailed(sequence_number=max(after + 1, 2), response=response)
