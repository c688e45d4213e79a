"""What is wrong with a request, in OpenAI's shape: ``{"error": {message, type, param, code}}``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import Response

from agent.turn.endings import RATE_LIMIT

RETRY_SECONDS = "5"
"""After which who was told that too many wait may ask again."""


class ApiError(Exception):
    """Refuses a request; becomes its whole answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.headers = status, code, param, headers

    @property
    def kind(self) -> str:
        match self.status:
            case 429:
                return "rate_limit_error"
            case status if status >= 500:
                return "server_error"
            case _:
                return "invalid_request_error"

    @property
    def told(self) -> dict[str, str | None]:
        return {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}

    def response(self) -> Response:
        return JSON({"error": self.told}, self.status, self.headers)


class JSON(Response):
    """A value as JSON; text stays readable."""

    media_type = "application/json"

    def __init__(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        super().__init__(body.encode("utf-8", "replace"), status, headers)


def unsupported(param: str, what: str) -> ApiError:
    """A part of the API that this server does not have; better refused than ignored."""
    return ApiError(
        400, f"{what} is not supported by this server.", code="unsupported_parameter", param=param
    )


def invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, code=code, param=param)


def too_long(most: int) -> ApiError:
    message = f"The body of the request is longer than {most:,} bytes."
    return ApiError(413, message, code="request_too_large")


def too_many(message: str = "Too many responses are running: try again later.") -> ApiError:
    return ApiError(429, message, code=RATE_LIMIT, headers={"retry-after": RETRY_SECONDS})


def broken() -> ApiError:
    message = "Something went wrong inside this server; its log file has the details."
    return ApiError(500, message, code="server_error")


# --- from pydantic's findings to one sentence ---

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a decimal",
    "bool_type": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_BRANCHES = ("str", "list[", "dict[", "tagged-union[", "literal[", "function-", "union[")
"""How pydantic names the alternatives of a union, beside the fields, in an error's place."""


def from_validation(error: ValidationError, tags: frozenset[str]) -> ApiError:
    """The finding that lies deepest: of a union's alternatives it is the one that was meant.

    ``tags``: names of alternatives, as they follow a list's index or are a class of ours.
    """
    found = [(_place(details["loc"], tags), details) for details in error.errors()]
    depth = max(len(place) for place, _ in found)
    place = next(place for place, _ in found if len(place) == depth)
    here = [details for at, details in found if at == place]
    return _finding(_name(place), here)


def _place(loc: Sequence[str | int], tags: frozenset[str]) -> tuple[str | int, ...]:
    place: list[str | int] = []
    previous: str | int = ""
    for step in loc:
        is_tag = step in tags and (isinstance(previous, int) or str(step)[0].isupper())
        is_branch = isinstance(step, str) and place and step.startswith(_BRANCHES)
        if not is_tag and not is_branch:
            place.append(step)
        previous = step
    return tuple(place)


def _name(place: Sequence[str | int]) -> str | None:
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return name.removeprefix(".") or None


def _finding(param: str | None, here: Sequence[ErrorDetails]) -> ApiError:
    first, where = here[0], f"'{param}'" if param else "the request"
    value, context = first["input"], first.get("ctx", {})
    kinds = [details["type"] for details in here]
    code = "invalid_value"
    if "missing" in kinds:
        code, message = "missing_required_parameter", f"Missing required parameter: {where}."
    elif all(kind in _EXPECTED for kind in kinds):
        known = " or ".join(dict.fromkeys(_EXPECTED[kind] for kind in kinds))
        code = "invalid_type"
        message = f"Invalid type for {where}: expected {known}, but got {_type(value)} instead."
    elif first["type"] == "union_tag_not_found":
        code = "invalid_type"
        message = f"Invalid type for {where}: expected an object with a type."
    elif first["type"] == "union_tag_invalid":
        tag, tags = _short(context.get("tag")), context.get("expected_tags")
        message = f"Invalid value for {where}: type {tag} is none of {tags}."
    elif first["type"] == "literal_error":
        known = context.get("expected", "")
        message = f"Invalid value for {where}: {_short(value)}. Supported values: {known}."
    else:
        message = f"Invalid value for {where}: {first['msg']}."
    return ApiError(400, message, code=code, param=param)


def _type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…'"
