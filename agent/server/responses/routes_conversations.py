"""``/v1/conversations`` over HTTP: https://platform.openai.com/docs/api-reference/conversations."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent.server.http.endpoints import endpoint
from agent.server.http.errors import client_params, invalid
from agent.server.http.json_response import JsonResponse
from agent.server.http.list_page import as_list, included, list_page, with_included
from agent.server.http.request_body import parse_json_object, read_body
from agent.server.input import schemas
from agent.server.input.parsing import ignored_header, validate, without_unknown_values
from agent.server.responses.answer_schemas import (
    ConversationObject,
    DeletedConversation,
    ItemPage,
    ListedItem,
)
from agent.server.responses.service import ResponseService
from agent.store.api_conversations import ApiConversation

MAX_NEW_ITEMS = 20


class ConversationRoutes:
    """The routes below ``/v1/conversations``."""

    def __init__(self, service: ResponseService) -> None:
        self._service, self._conversations = service, service.conversations

    @endpoint("POST", "/v1/conversations", ConversationObject, body=schemas.CreateConversation)
    async def create(self, request: Request) -> Response:
        """POST /v1/conversations: create a conversation, empty or with up to 20 items."""
        body, ignored = await self._body_with_items(request, schemas.CreateConversation)
        with client_params(ignored):
            wanted = validate(schemas.CreateConversation, body)
            created = await self._conversations.create(
                wanted.metadata or {}, wanted.items or [], body.get("items") or []
            )
        return JsonResponse(_conversation(created), headers=ignored_header(ignored))

    @endpoint("GET", "/v1/conversations/{id}", ConversationObject)
    async def get(self, request: Request) -> Response:
        """GET /v1/conversations/{id}: a conversation, also one of the app or the command line."""
        conversation = await self._conversations.find(request.path_params["id"])
        return JsonResponse(_conversation(conversation))

    @endpoint("POST", "/v1/conversations/{id}", ConversationObject, body=schemas.UpdateConversation)
    async def update(self, request: Request) -> Response:
        """POST /v1/conversations/{id}: replace its metadata."""
        wanted = validate(schemas.UpdateConversation, await self._body(request))
        name = request.path_params["id"]
        updated = await self._conversations.update(name, wanted.metadata or {})
        return JsonResponse(_conversation(updated))

    @endpoint("DELETE", "/v1/conversations/{id}", DeletedConversation)
    async def delete(self, request: Request) -> Response:
        """DELETE /v1/conversations/{id}: delete a conversation with its items and responses."""
        name = request.path_params["id"]
        await self._conversations.delete(name)
        return JsonResponse({"id": name, "object": "conversation.deleted", "deleted": True})

    @endpoint("GET", "/v1/conversations/{id}/items", ItemPage)
    async def items(self, request: Request) -> Response:
        """GET /v1/conversations/{id}/items, the latest first unless ``order=asc``."""
        include = included(request.query_params)
        items = await self._conversations.items(request.path_params["id"])
        page = list_page(items, request.query_params)
        listed = [with_included(item, include) for item in page["data"]]
        return JsonResponse(page | {"data": listed})

    @endpoint("POST", "/v1/conversations/{id}/items", ItemPage, body=schemas.CreateItems)
    async def create_items(self, request: Request) -> Response:
        """POST /v1/conversations/{id}/items: add up to 20 items at the end."""
        include, name = included(request.query_params), request.path_params["id"]
        await self._conversations.find(name)
        body, ignored = await self._body_with_items(request, schemas.CreateItems)
        with client_params(ignored):
            wanted = validate(schemas.CreateItems, body)
            if not wanted.items:
                raise invalid("items", "Invalid 'items': an item is needed.", "empty_array")
            added = await self._conversations.add(name, wanted.items, body["items"])
        listed = as_list([with_included(item, include) for item in added])
        return JsonResponse(listed, headers=ignored_header(ignored))

    @endpoint("GET", "/v1/conversations/{id}/items/{item_id}", ListedItem)
    async def item(self, request: Request) -> Response:
        """GET /v1/conversations/{id}/items/{item_id}: one item."""
        include, names = included(request.query_params), request.path_params
        item = await self._conversations.item(names["id"], names["item_id"])
        return JsonResponse(with_included(item, include))

    @endpoint("DELETE", "/v1/conversations/{id}/items/{item_id}", ConversationObject)
    async def delete_item(self, request: Request) -> Response:
        """DELETE /v1/conversations/{id}/items/{item_id}: delete an item; answers with the
        conversation."""
        name = request.path_params["id"]
        await self._conversations.delete_item(name, request.path_params["item_id"])
        return JsonResponse(_conversation(await self._conversations.find(name)))

    async def _body_with_items(
        self, request: Request, kind: type[schemas.RequestModel]
    ) -> tuple[dict[str, Any], list[str]]:
        """A body without what a lenient server passes over, and its paths. Raises ApiError."""
        body = await self._body(request)
        return without_unknown_values(kind, body) if self._service.options.lenient else (body, [])

    async def _body(self, request: Request) -> dict[str, Any]:
        """The JSON object of a body; an empty body is an empty object. Raises ApiError."""
        body = await read_body(request, self._service.body_budget)
        self._service.refuse_while_draining()
        value = parse_json_object(body) if body.strip() else {}
        items = value.get("items")
        if isinstance(items, list) and len(items) > MAX_NEW_ITEMS:
            message = (
                f"Invalid 'items': array too long. Expected an array with maximum length"
                f" {MAX_NEW_ITEMS}, but got an array with length {len(items)} instead."
            )
            raise invalid("items", message, "array_above_max_length")
        return value


def _conversation(conversation: ApiConversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created),
        "metadata": conversation.metadata,
    }
