"""Errors in the shape of Anthropic's API, for requests that speak it. Reference:
https://platform.claude.com/docs/en/api/errors"""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from agent.server.http.errors import ApiError

OVERLOADED_STATUS = 529
"""Status of Anthropic's API where another one answers 503; its clients try again."""
_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", OVERLOADED_STATUS: "overloaded_error",
}  # fmt: skip


def speaks_anthropic(scope: Scope) -> bool:
    """Whether a request is one of Anthropic's API: by its path, or its version's header."""
    path = scope["path"]
    return path.startswith("/v1/messages") or "anthropic-version" in Headers(scope=scope)


def anthropic_status(error: ApiError) -> int:
    return OVERLOADED_STATUS if error.status == 503 else error.status


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """The body of an error, whose message names the wrong parameter."""
    status, message = anthropic_status(error), str(error)
    if error.param and error.param not in message:
        message = f"{error.param}: {message}"
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
