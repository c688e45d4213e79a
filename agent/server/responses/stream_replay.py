"""Streams a background response that has ended once more (``GET /v1/responses/{id}?stream=true``)."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from agent import events as ev
from agent.server.http.errors import invalid
from agent.server.http.live_stream import EVENT_STREAM_HEADERS
from agent.server.input.stored_response import StoredResponse
from agent.server.responses.sse import DONE_MESSAGE, SseEncoder
from agent.store.event_codec import split_line, unpack_lines
from agent.turn.response_builder import terminal_event


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
    """The events of a response of which only the end is known: its process was killed, for example."""
    begun = {"error": None, "incomplete_details": None, "completed_at": None, "usage": None}
    queued = response.model_copy(update={**begun, "output": [], "status": "queued"})
    running = queued.model_copy(update={"status": "in_progress"})
    events: list[ev.OfficialEvent] = [
        ev.ResponseCreated(response=queued),
        ev.ResponseQueued(response=queued),
        ev.ResponseInProgress(response=running),
    ]
    for number, event in enumerate(events):
        if after < number:
            yield event.model_copy(update={"sequence_number": number})
    terminal = terminal_event(response)
    yield terminal.model_copy(update={"sequence_number": max(after + 1, len(events))})
