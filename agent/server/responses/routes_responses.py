"""``/v1/responses`` over HTTP: https://platform.openai.com/docs/api-reference/responses. A
compaction is a summary that a client sends instead of its history."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent import events as ev
from agent.conversation.compaction import LATEST_TURNS_SHARE, encode_summary
from agent.server.http.clients import current_client
from agent.server.http.endpoints import endpoint
from agent.server.http.errors import ApiError, invalid, missing, unsupported
from agent.server.http.json_response import JsonResponse
from agent.server.http.list_page import included, list_page
from agent.server.http.request_body import read_body
from agent.server.input.listed_items import list_input
from agent.server.input.parsing import ignored_header, parse_request
from agent.server.input.schemas import CreateResponse
from agent.server.input.stored_responses import with_encrypted_reasoning
from agent.server.input.turn_options import INCLUDE_REASONING
from agent.server.responses.answer_schemas import (
    CompactedResponse,
    DeletedResponse,
    InputTokenCount,
    ItemPage,
)
from agent.server.responses.conversations import storing
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import (
    DONE_MESSAGE,
    EVENT_STREAM_HEADERS,
    EventStream,
    SseEncoder,
    final_response,
)
from agent.store.event_codec import split_line, unpack_lines
from agent.store.records import ServedTurn
from agent.turn.jobs import SummaryJob
from agent.turn.loop import Turn
from agent.turn.response_builder import terminal_event
from agent.util.ids import new_id


class ResponseRoutes:
    """The routes below ``/v1/responses``, without that for WebSockets."""

    def __init__(self, service: ResponseService, encoder: SseEncoder) -> None:
        self._service, self._encoder = service, encoder

    @endpoint("POST", "/v1/responses", ev.Response, stream=ev.OfficialEvent, body=CreateResponse)
    async def create(self, request: Request) -> Response:
        """POST /v1/responses: create a response, streamed or not."""
        service, wanted = self._service, await self._read(request)
        if wanted.stream:
            begun, is_lasting = service.begin_all([wanted]), bool(wanted.background)
            return EventStream(begun, service, self._encoder, outlives_client=is_lasting)
        turn = await service.begin(wanted)
        plan = service.running[turn]
        if plan.background:
            created = (event for event in turn.log.events if isinstance(event, ev.ResponseCreated))
            return _response_body(next(created).response, ignored_header(plan.ignored))
        return await final_response(
            request, [turn], service, lambda ended: ended[0].model_dump_json().encode()
        )

    @endpoint("POST", "/v1/responses/input_tokens", InputTokenCount, body=CreateResponse)
    async def input_tokens(self, request: Request) -> Response:
        """POST /v1/responses/input_tokens: how long the prompt would be; nothing is begun."""
        wanted = await self._read(request)
        tokens = len(await self._service.prompt_ids(wanted))
        count = {"object": "response.input_tokens", "input_tokens": tokens}
        return JsonResponse(count, headers=ignored_header(wanted.origin.ignored))

    @endpoint("POST", "/v1/responses/compact", CompactedResponse, body=CreateResponse)
    async def compact(self, request: Request) -> Response:
        """POST /v1/responses/compact: summarise a history; never streamed."""
        service, wanted = self._service, await self._read(request)
        if "model" not in wanted.model_fields_set:  # null is allowed
            raise missing("model")
        if wanted.conversation is not None and wanted.origin.refuses_unseen:
            feature = "Compacting a conversation (send its items as 'input')"
            raise unsupported("conversation", feature)
        # A history that is too long to answer is what one compacts.
        changes: dict[str, Any] = {"truncation": "auto", "store": False, "stream": False}
        changes |= {"background": False, "conversation": None}
        if wanted.input is None and wanted.previous_response_id:
            changes["input"] = []
        wanted = wanted.model_copy(update=changes)
        job = SummaryJob()
        turn = await service.begin(wanted, job)
        new = list_input(wanted.origin.sent_input) if wanted.input else ()
        items = [*await _input_history(service, wanted.previous_response_id), *new]

        def shape(ended: Sequence[ev.Response]) -> bytes:
            return _compaction_json(ended[0], job.text, items, turn)

        return await final_response(request, [turn], service, shape)

    @endpoint("GET", "/v1/responses/{id}", ev.Response, stream=ev.OfficialEvent)
    async def get(self, request: Request) -> Response:
        """GET /v1/responses/{id}: as it is now, or (``stream=true``) its events from the beginning
        or behind ``starting_after``, those to come too."""
        wanted = included(request.query_params)
        if _wants_stream(request):
            return await self._stream(request)
        response = await self._find(request)
        if INCLUDE_REASONING in wanted:
            response = with_encrypted_reasoning(response)
        return _response_body(response)

    async def _stream(self, request: Request) -> Response:
        response_id, number = request.path_params["id"], request.query_params.get("starting_after")
        if number is not None and not (number.isdecimal() and len(number) < 10):
            raise invalid("starting_after", "'starting_after' must be the number of an event.")
        after = -1 if number is None else int(number)
        if (turn := self._running(response_id)) is not None:
            begun = asyncio.sleep(0, [turn])
            return EventStream(
                begun, self._service, self._encoder, after=after, outlives_client=True
            )
        return _replay_stream(await self._stored(response_id), after, self._encoder)

    @endpoint("DELETE", "/v1/responses/{id}", DeletedResponse)
    async def delete(self, request: Request) -> Response:
        """DELETE /v1/responses/{id}: delete a response; a running one continues but is not stored."""
        response_id = request.path_params["id"]
        turn = self._running(response_id)
        with storing():
            if turn is not None:
                await self._service.forget(turn)
            deleted = await self._service.cache.delete(response_id)
        if not deleted and turn is None:
            raise _not_existing(response_id)
        return JsonResponse({"id": response_id, "object": "response", "deleted": True})

    @endpoint("POST", "/v1/responses/{id}/cancel", ev.Response)
    async def cancel(self, request: Request) -> Response:
        """POST /v1/responses/{id}/cancel: cancel a background response; one that has ended stays as it
        is."""
        response = await self._find(request)
        if not response.background:
            message = "Cannot cancel a synchronous response: only one with 'background': true."
            raise invalid("response_id", message)
        if (turn := self._running(response.id)) is not None:
            turn.stop()
            response = await turn.done()
        return _response_body(response)

    @endpoint("POST", "/v1/responses/{id}/answer", ev.Response)
    async def answer(self, request: Request) -> Response:
        """POST /v1/responses/{id}/answer: end the reasoning of a running response, which then answers;
        the response as it is now."""
        response = await self._find(request)
        if (turn := self._running(response.id)) is None or not turn.answer_now():
            state = "has ended" if turn is None else "does not reason or is answering already"
            raise invalid("response_id", f"Response with id '{response.id}' {state}.")
        return _response_body(response)

    @endpoint("GET", "/v1/responses/{id}/input_items", ItemPage)
    async def input_items(self, request: Request) -> Response:
        """GET /v1/responses/{id}/input_items, the latest first unless ``order=asc``."""
        included(request.query_params)
        stored = await self._stored(request.path_params["id"])
        return JsonResponse(list_page(stored.served["inputs"], request.query_params))

    async def _read(self, request: Request) -> CreateResponse:
        service = self._service
        body = await read_body(request, service.body_budget)
        return parse_request(body, lenient=service.options.lenient)

    def _running(self, response_id: str) -> Turn | None:
        running, owns = self._service.running.items(), current_client().owns
        found = (
            turn
            for turn, plan in running
            if turn.response.id == response_id and not plan.deleted and owns(plan.client.name)
        )
        return next(found, None)

    async def _find(self, request: Request) -> ev.Response:
        response_id = request.path_params["id"]
        if (turn := self._running(response_id)) is not None:
            return turn.response.model_copy(update={"output": turn.items})
        return (await self._stored(response_id)).response

    async def _stored(self, response_id: str) -> ServedTurn:
        if (stored := await self._service.cache.find(response_id)) is None:
            raise _not_existing(response_id)
        return stored


def _wants_stream(request: Request) -> bool:
    """Whether the query asks for events. Raises ApiError for values that say nothing."""
    query = request.query_params
    match query.get("stream", "false").lower():
        case "true" | "1":
            return True
        case "false" | "0":
            if "starting_after" in query:
                raise invalid("starting_after", "'starting_after' needs 'stream=true'.")
            return False
    raise invalid("stream", "'stream' must be true or false.")


def _replay_stream(stored: ServedTurn, after: int, encoder: SseEncoder) -> Response:
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


def _response_body(response: ev.Response, headers: Mapping[str, str] | None = None) -> Response:
    return Response(response.model_dump_json(), media_type="application/json", headers=headers)


def _not_existing(response_id: str) -> ApiError:
    message = f"Response with id '{response_id[:80]}' not found."
    return ApiError(404, message, code="response_not_found")


async def _input_history(service: ResponseService, previous: str | None) -> list[dict[str, Any]]:
    """Return the input items of a response and of those that it continues, the oldest first."""
    inputs: list[Sequence[dict[str, Any]]] = []
    while previous and (stored := await service.cache.find(previous)) is not None:
        inputs.append(stored.served["inputs"])
        previous = stored.response.previous_response_id
    return [item for items in reversed(inputs) for item in items]


def _compaction_json(
    response: ev.Response, summary: str, items: list[dict[str, Any]], turn: Turn
) -> bytes:
    """The body of the answer. Raises ApiError if there is no summary."""
    if response.status != "completed" or response.usage is None:
        raise ApiError(499, "The compaction was stopped.", code="cancelled")
    token = encode_summary(summary)
    compaction = {"id": new_id("cmp"), "type": "compaction", "encrypted_content": token}
    answer = JsonResponse(
        {
            "id": response.id,
            "object": "response.compaction",
            "created_at": response.created_at,
            "output": [*_latest_user_messages(items, turn), compaction],
            "usage": response.usage.model_dump(mode="json"),
        }
    )
    return bytes(answer.body)


def _latest_user_messages(items: list[dict[str, Any]], turn: Turn) -> list[dict[str, Any]]:
    """The latest user messages, as sent, that fit into what `LATEST_TURNS_SHARE` leaves them."""
    room, messages = LATEST_TURNS_SHARE * turn.runtime.context_length, list[dict[str, Any]]()
    for item in reversed(items):
        if item["type"] == "message" and item.get("role") == "user":
            content = json.dumps(item["content"], ensure_ascii=False)
            room -= len(turn.format.user_message(content))
            if room < 0:
                break
            messages.insert(0, item)
    return messages
