"""JSON bodies of HTTP responses, those of errors too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from agent.server.http.anthropic_errors import anthropic_error, anthropic_status, speaks_anthropic
from agent.server.http.errors import ApiError


class JsonResponse(Response):
    """A value as compact JSON in UTF-8; characters beyond ASCII are not escaped."""

    media_type = "application/json"

    def __init__(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        super().__init__(body.encode("utf-8", "replace"), status, headers)


def error_response(error: ApiError, scope: Scope) -> JsonResponse:
    """Answer a refused request: ``{"error": {message, type, param, code}}`` with its status, or as
    Anthropic's API does."""
    if speaks_anthropic(scope):
        return JsonResponse(anthropic_error(error), anthropic_status(error), error.headers)
    return JsonResponse({"error": error.body}, error.status, error.headers)
