"""POST /v1/responses/compact: a summary that a client sends instead of its history. Reference:
https://platform.openai.com/docs/api-reference/responses/compact"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent import events as ev
from agent.conversation.compaction import LATEST_TURNS_SHARE
from agent.server.http.endpoints import endpoint, route_of
from agent.server.http.errors import ApiError, failed, missing, unsupported
from agent.server.http.json_response import JsonResponse
from agent.server.http.request_body import read_body
from agent.server.input.compaction_token import encode_summary
from agent.server.input.listed_items import list_input
from agent.server.input.parsing import parse_request
from agent.server.input.schemas import CreateResponse
from agent.server.responses.answer_schemas import CompactedResponse
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import final_response
from agent.turn.jobs import SummaryJob
from agent.turn.loop import Turn
from agent.util.ids import new_id


def route(service: ResponseService) -> Route:
    @endpoint("POST", "/v1/responses/compact", CompactedResponse, body=CreateResponse)
    async def compact(request: Request) -> Response:
        """POST /v1/responses/compact: summarise a history; never streamed."""
        wanted = parse_request(
            await read_body(request, service.body_budget), lenient=service.options.lenient
        )
        if "model" not in wanted.model_fields_set:  # null is allowed
            raise missing("model")
        if wanted.conversation is not None and wanted.origin.refuses_unseen:
            raise unsupported(
                "conversation", "Compacting a conversation (send its items as 'input')"
            )
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
        return await final_response(
            request,
            [turn],
            service,
            lambda ended: _compaction_json(ended[0], job.text, items, turn),
        )

    return route_of(compact)


async def _input_history(service: ResponseService, previous: str | None) -> list[dict[str, Any]]:
    """Return the input items of a response and of those that it continues, the oldest first."""
    inputs: list[Sequence[dict[str, Any]]] = []
    while previous and (stored := await service.cache.find(previous)) is not None:
        inputs.append(stored.inputs)
        previous = stored.response.previous_response_id
    return [item for items in reversed(inputs) for item in items]


def _compaction_json(
    response: ev.Response, summary: str, items: list[dict[str, Any]], turn: Turn
) -> bytes:
    """The body of the answer. Raises ApiError if there is no summary."""
    if response.error is not None:
        raise failed(response.error.code, response.error.message)
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
