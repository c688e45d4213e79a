"""The endpoints for responses that exist: look up, delete, cancel, list the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent import events as ev
from agent.server.errors import JSON, ApiError, invalid
from agent.server.sse import EventStream
from agent.server.stream_replay import replay
from agent.store.stored_response import Kept
from agent.turn.output import new_id

if TYPE_CHECKING:
    from agent.server.app import Endpoint
    from agent.turn.loop import Turn

PAGE, LONGEST_PAGE = 20, 100
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
}


def routes(endpoint: Endpoint) -> list[Route]:
    stored = _Stored(endpoint)
    path = "/v1/responses/{id}"
    return [
        Route(path, stored.get, methods=["GET"]),
        Route(path, stored.delete, methods=["DELETE"]),
        Route(f"{path}/cancel", stored.cancel, methods=["POST"]),
        Route(f"{path}/input_items", stored.input_items, methods=["GET"]),
    ]


class _Stored:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def get(self, request: Request) -> Response:
        """GET /v1/responses/{id}: as it is now, or (``stream=true``) its events from the beginning
        or behind ``starting_after``, those to come too."""
        if request.query_params.get("stream") == "true":
            return self._stream(request)
        return shown(self._find(request))

    def _stream(self, request: Request) -> Response:
        response_id, given = request.path_params["id"], request.query_params.get("starting_after")
        if given is not None and not (given.isdecimal() and len(given) < 10):
            raise invalid("starting_after", "'starting_after' is the number of an event.")
        after = -1 if given is None else int(given)
        if (turn := self._running(response_id)) is not None:
            endpoint = self._endpoint
            return EventStream(turn, endpoint, endpoint.wire, after=after, stays=True)
        return replay(self._kept(response_id), after, self._endpoint.wire)

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/responses/{id}: it is forgotten; one that runs goes on, unkept."""
        response_id = request.path_params["id"]
        turn = self._running(response_id)
        if turn is not None:
            self._endpoint.running[turn].store = False
        if not self._endpoint.memory.forget(response_id) and turn is None:
            raise _not_found(response_id)
        return JSON({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """POST /v1/responses/{id}/cancel: ends one that runs; one that has ended stays as it is."""
        turn = self._running(request.path_params["id"])
        if turn is not None:
            turn.stop()
            await turn.done()
            return shown(turn.response)
        return shown(self._find(request))

    async def input_items(self, request: Request) -> Response:
        """GET /v1/responses/{id}/input_items, the latest first unless ``order=asc``."""
        response_id = request.path_params["id"]
        return JSON(_page(self._kept(response_id).inputs, request.query_params))

    def _running(self, response_id: str) -> Turn | None:
        turns = self._endpoint.running
        return next((turn for turn in turns if turn.response.id == response_id), None)

    def _find(self, request: Request) -> ev.Response:
        response_id = request.path_params["id"]
        turn = self._running(response_id)
        if turn is not None:
            return now(turn)
        return self._kept(response_id).response

    def _kept(self, response_id: str) -> Kept:
        kept = self._endpoint.memory.find(response_id)
        if kept is None:
            raise _not_found(response_id)
        return kept


def now(turn: Turn) -> ev.Response:
    """A response that runs, as it is now."""
    changed: dict[str, Any] = {"output": list(turn.output.items)}
    if not turn.log.events:
        changed["status"] = "queued"
    return turn.response.model_copy(update=changed)


def shown(response: ev.Response) -> Response:
    return Response(response.model_dump_json().encode(), media_type="application/json")


def _not_found(response_id: str) -> ApiError:
    message = f"Response with id '{response_id[:80]}' not found."
    return ApiError(404, message, code="response_not_found")


def _page(items: Sequence[dict[str, Any]], query: Any) -> dict[str, Any]:
    order, limit = query.get("order", "desc"), query.get("limit", str(PAGE))
    if order not in ("asc", "desc"):
        raise invalid("order", "Invalid value for 'order': it is asc or desc.")
    if not (limit.isdecimal() and 1 <= int(limit) <= LONGEST_PAGE):
        raise invalid("limit", f"Invalid value for 'limit': it is 1 to {LONGEST_PAGE}.")
    ordered = list(items if order == "asc" else reversed(items))
    if after := query.get("after"):
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise invalid("after", f"Item with id '{after[:80]}' not found.", "item_not_found")
        ordered = ordered[ids.index(after) + 1 :]
    page = ordered[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(ordered) > len(page),
    }


def listed(given: str | Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """A request's input as items of a list: each has an id, messages have parts."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return tuple(_item(item) for item in given)


def _item(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    shown = {**item, "type": kind}
    shown["id"] = item.get("id") or new_id(_PREFIXES.get(kind, "item"))
    if kind == "message":
        said = item.get("role") == "assistant"
        content = item["content"]
        if isinstance(content, str):
            part = {"type": "output_text" if said else "input_text", "text": content}
            content = [{**part, "annotations": []} if said else part]
        shown |= {"content": content, "status": item.get("status") or "completed"}
    return shown
