"""Pages of lists of items, as the query of a request chooses them."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from starlette.datastructures import QueryParams

from agent.server.http.errors import invalid

DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS = 20, 100
Includable = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
"""Values of ``include``, also for items that this server never has: clients send them by habit."""
INCLUDABLE: tuple[str, ...] = get_args(Includable)


def list_page(
    items: Sequence[dict[str, Any]],
    query: QueryParams,
    default: int = DEFAULT_PAGE_ITEMS,
    most: int = MAX_PAGE_ITEMS,
) -> dict[str, Any]:
    """A page of a list, as ``order``, ``limit`` and ``after`` (an item's id) say. Raises ApiError."""
    order, limit = query.get("order", "desc"), query.get("limit", str(default))
    if order not in ("asc", "desc"):
        raise invalid("order", "Invalid value for 'order': it must be asc or desc.")
    if not (limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= most):
        raise invalid("limit", f"Invalid value for 'limit': it must be 1 to {most}.")
    ordered = list(items if order == "asc" else reversed(items))
    if after := query.get("after"):
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise invalid("after", f"Item with id '{after[:80]}' not found.", "item_not_found")
        ordered = ordered[ids.index(after) + 1 :]
    page = ordered[: int(limit)]
    return as_list(page, has_more=len(ordered) > len(page))


def as_list(items: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def included(query: QueryParams) -> frozenset[str]:
    """The values of ``include``. Raises ApiError for one that the API does not have."""
    names = frozenset(query.getlist("include") + query.getlist("include[]"))
    for name in sorted(names.difference(INCLUDABLE)):
        message = f"Invalid value: '{name[:80]}'. Supported values are: {', '.join(INCLUDABLE)}."
        raise invalid("include", message)
    return names


def with_included(item: dict[str, Any], include: frozenset[str]) -> dict[str, Any]:
    """An item without the data that is listed only where ``include`` names it."""
    match item:
        case {"type": "message", "role": "assistant", "content": [*parts]} if (
            "message.output_text.logprobs" not in include
        ):
            bare = [{**part, "logprobs": []} if part.get("logprobs") else part for part in parts]
            return {**item, "content": bare}
        case {"type": "code_interpreter_call"} if "code_interpreter_call.outputs" not in include:
            return {**item, "outputs": None}
        case {"type": "web_search_call", "action": {"sources": _, **rest}} if (
            "web_search_call.action.sources" not in include
        ):
            return {**item, "action": rest}
        case {"type": "reasoning", "encrypted_content": _, **rest} if (
            "reasoning.encrypted_content" not in include
        ):
            return rest
    return item
