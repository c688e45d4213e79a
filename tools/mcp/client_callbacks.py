"""Translates a server's requests between the MCP SDK's types and ours: ``ClientCallbacks`` (one for a
connection) finds the call, whose ``CallScope`` bounds it and stops its clock, and whose
``CallHandlers`` ask the person or the model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mcp.types as T
from pydantic import FileUrl

from tools.mcp.call_scope import CallScope
from tools.mcp.client_requests import ElicitationRequest, SamplingRequest
from tools.mcp.forms import page_host
from tools.sanitize import clean_schema, clean_text


class ClientCallbacks:
    """The callbacks of one connection, as ``mcp.Client`` takes them."""

    def __init__(
        self, server: str, roots: Sequence[Path], find_scope: Callable[[], CallScope | None]
    ) -> None:
        """``find_scope``: the call that the current request belongs to; without one it is declined."""
        self._server, self._roots, self._find_scope = server, roots, find_scope

    async def elicit(
        self, context: Any, params: T.ElicitRequestParams
    ) -> T.ElicitResult | T.ErrorData:
        if (scope := self._find_scope()) is None:
            return T.ElicitResult(action="decline")
        schema = url = None
        if isinstance(params, T.ElicitRequestURLParams):
            url = params.url
            if page_host(url) is None:  # nothing that a browser should open unseen
                return T.ElicitResult(action="decline")
        else:
            schema = clean_schema(params.requested_schema)
        request = ElicitationRequest(self._server, clean_text(params.message), schema, url)
        result = await scope.elicit(request)
        return T.ElicitResult(action=result.action, content=result.content)

    async def sample(
        self, context: Any, params: T.CreateMessageRequestParams
    ) -> T.CreateMessageResult | T.ErrorData:
        messages = tuple(
            (
                message.role,
                "\n".join(getattr(block, "text", "") for block in message.content_as_list),
            )
            for message in params.messages
        )
        request = SamplingRequest(
            self._server, messages, params.max_tokens, params.system_prompt, params.temperature
        )
        scope = self._find_scope()
        result = await scope.sample(request) if scope else None
        if result is None:
            return T.ErrorData(code=T.INVALID_REQUEST, message="The user refused this request.")
        return T.CreateMessageResult(
            role="assistant",
            content=T.TextContent(text=result.text),
            model=result.model,
            stop_reason="maxTokens" if result.truncated else "endTurn",
        )

    async def list_roots(self, context: Any) -> T.ListRootsResult:
        roots = [T.Root(uri=FileUrl(root.as_uri()), name=root.name) for root in self._roots]
        return T.ListRootsResult(roots=roots)
