"""JSON bodies of HTTP responses; those of errors in the shapes of OpenAI's API and of Anthropic's:
https://platform.claude.com/docs/en/api/errors"""

import json
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Scope

from agent.server.http.errors import ApiError

OVERLOADED_STATUS = 529
"""Status of Anthropic's API where another one answers 503; its clients try again."""
_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", OVERLOADED_STATUS: "overloaded_error",
}  # fmt: skip


class JsonResponse(JSONResponse):
    """A value as compact JSON; halves of surrogate pairs, which UTF-8 lacks, become question marks."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def error_response(error: ApiError, scope: Scope) -> JsonResponse:
    """Answer a refused request with its status: ``{"error": {…}}``, or as Anthropic's API does."""
    if speaks_anthropic(scope):
        return JsonResponse(anthropic_error(error), anthropic_status(error), error.headers)
    return JsonResponse({"error": error.body}, error.status, error.headers)


def speaks_anthropic(scope: Scope) -> bool:
    """Whether a request is one of Anthropic's API: by its path, or its version's header."""
    return scope["path"].startswith("/v1/messages") or "anthropic-version" in Headers(scope=scope)


def anthropic_status(error: ApiError) -> int:
    return OVERLOADED_STATUS if error.status == 503 else error.status


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """The body of an error, whose message names the wrong parameter."""
    status, message = anthropic_status(error), str(error)
    if error.param and error.param not in message:
        message = f"{error.param}: {message}"
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
