"""From a body's bytes to a request, or to the one sentence that says what is wrong with it."""

from __future__ import annotations

from typing import Any, TypeVar

import pydantic_core
from pydantic import ValidationError

from agent.server.errors import ApiError, from_validation, invalid
from agent.server.schemas import (
    ITEMS,
    AllowedTools,
    ApprovalFilter,
    CreateResponse,
    ToolChoice,
    Wire,
)

MOST = 10_000
"""Items or tools of a request, with their parts: others wait as long as they are read."""
W = TypeVar("W", bound=Wire)
_TAGS = frozenset(
    {*ITEMS, "custom_tool_call_output", "function", "custom", "namespace", "mcp", "other"}
    | {AllowedTools.__name__, ApprovalFilter.__name__, ToolChoice.__name__, "text", "grammar"}
)


def parse(body: bytes) -> CreateResponse:
    """Read a body. Raises ApiError: 400, with the place of what is wrong."""
    return asked(json_object(body), len(body))


def asked(value: dict[str, Any], size: int) -> CreateResponse:
    """``size``: bytes that the value was read from. Raises ApiError."""
    request = validate(CreateResponse, value)
    request.came(value, size)
    return request


def json_object(body: bytes) -> dict[str, Any]:
    """Raises ApiError."""
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        message = f"The body of the request is not valid JSON: {error}."
        raise ApiError(400, message, code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body of the request must be a JSON object.", code="invalid_type")
    return value


def validate(kind: type[W], value: dict[str, Any]) -> W:
    """Raises ApiError."""
    for param in ("input", "messages", "tools"):
        if (number := _pieces(value.get(param))) > MOST:
            message = (
                f"Invalid '{param}': array too long. Expected at most {MOST} items and parts of"
                f" items, but got {number} instead."
            )
            raise invalid(param, message, "array_above_max_length")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise from_validation(error, _TAGS) from None


def _pieces(given: object) -> int:
    """A list's items, and what is in the lists of those."""
    items = given if isinstance(given, list) else []
    fields = (field for item in items if isinstance(item, dict) for field in item.values())
    return len(items) + sum(len(field) for field in fields if isinstance(field, list))
