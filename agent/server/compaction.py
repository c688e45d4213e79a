"""POST /v1/responses/compact: a summary that a client sends instead of its history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent import events as ev
from agent.conversation.compaction import LATEST
from agent.server.auth import read_body
from agent.server.compaction_token import packed
from agent.server.errors import JSON, ApiError, too_many
from agent.server.parsing import parse
from agent.server.routes_responses import listed
from agent.server.sse import Body
from agent.turn.endings import RATE_LIMIT
from agent.turn.jobs import SummaryTurn
from agent.turn.output import new_id

if TYPE_CHECKING:
    from agent.server.app import Endpoint


def route(endpoint: Endpoint) -> Route:
    async def compact(request: Request) -> Response:
        """All that was said, summarised; streams are not offered for it."""
        wanted = parse(await read_body(request, endpoint.max_body))
        # A history that is too long to answer is what one compacts.
        changed: dict[str, Any] = {"truncation": "auto", "store": False, "stream": False}
        changed["background"] = False
        if wanted.input is None and wanted.previous_response_id:
            changed["input"] = []
        wanted = wanted.model_copy(update=changed)
        turn = await endpoint.begin(wanted, SummaryTurn)
        assert isinstance(turn, SummaryTurn)
        new = listed(wanted.sent) if wanted.input else ()
        asked = [*_asked(endpoint, wanted.previous_response_id), *new]
        return Body(turn, endpoint, lambda response: _shown(turn, response, asked))

    return Route("/v1/responses/compact", compact, methods=["POST"])


def _asked(endpoint: Endpoint, previous: str | None) -> Iterator[dict[str, Any]]:
    """The input items of the responses before, the first one's first."""
    kept = endpoint.memory.find(previous) if previous else None
    if kept is not None:
        yield from _asked(endpoint, kept.response.previous_response_id)
        yield from kept.inputs


def _shown(turn: SummaryTurn, response: ev.Response, asked: list[dict[str, Any]]) -> Response:
    if response.error is not None:
        code, message = response.error.code, response.error.message
        if code == RATE_LIMIT:
            return too_many(message).response()
        status = {"invalid_prompt": 400, "no_summary": 422}.get(code, 500)
        return ApiError(status, message, code=code).response()
    if response.status != "completed" or response.usage is None:
        return ApiError(499, "The compaction was stopped.", code="cancelled").response()
    summary = {"id": new_id("cmp"), "type": "compaction", "encrypted_content": packed(turn.text)}
    return JSON(
        {
            "id": response.id,
            "object": "response.compaction",
            "created_at": response.created_at,
            "output": [*_latest(turn, asked), summary],
            "usage": response.usage.model_dump(mode="json"),
        }
    )


def _latest(turn: SummaryTurn, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The user's messages as they were sent, as many of the latest as leave room; the summary tells
    of all."""
    runtime = turn.runtime
    room, found = LATEST * runtime.context_length, list[dict[str, Any]]()
    for item in reversed(asked):
        if item["type"] == "message" and item.get("role") == "user":
            room -= len(runtime.format.user(json.dumps(item["content"], ensure_ascii=False)))
            if room < 0:
                break
            found.insert(0, item)
    return found
