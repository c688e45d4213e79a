"""What a server asks of its client, answered through the call that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mcp.types as T
from pydantic import FileUrl

from tools.mcp.call_scope import Running
from tools.mcp.client_requests import Elicitation, Sampling
from tools.sanitize import clean, clean_schema


class Answers:
    """The callbacks of one connection."""

    def __init__(
        self, server: str, roots: Sequence[Path], asked_by: Callable[[], Running | None]
    ) -> None:
        """``asked_by``: the call under way that a request belongs to; without one all is declined."""
        self._server, self._roots, self._asked_by = server, roots, asked_by

    async def elicit(
        self, context: Any, params: T.ElicitRequestParams
    ) -> T.ElicitResult | T.ErrorData:
        if (running := self._asked_by()) is None:
            return T.ElicitResult(action="decline")
        schema = url = None
        if isinstance(params, T.ElicitRequestURLParams):
            url = params.url
        else:
            schema = clean_schema(params.requested_schema)
        answer = await running.elicit(Elicitation(self._server, clean(params.message), schema, url))
        return T.ElicitResult(action=answer.action, content=answer.content)

    async def sample(
        self, context: Any, params: T.CreateMessageRequestParams
    ) -> T.CreateMessageResult | T.ErrorData:
        messages = tuple(
            (message.role, "\n".join(getattr(one, "text", "") for one in message.content_as_list))
            for message in params.messages
        )
        wanted = Sampling(
            self._server, messages, params.max_tokens, params.system_prompt, params.temperature
        )
        running = self._asked_by()
        wrote = await running.sample(wanted) if running else None
        if wrote is None:
            return T.ErrorData(code=T.INVALID_REQUEST, message="The user refused this request.")
        return T.CreateMessageResult(
            role="assistant",
            content=T.TextContent(text=wrote.text),
            model=wrote.model,
            stop_reason="maxTokens" if wrote.cut else "endTurn",
        )

    async def list_roots(self, context: Any) -> T.ListRootsResult:
        roots = [T.Root(uri=FileUrl(root.as_uri()), name=root.name) for root in self._roots]
        return T.ListRootsResult(roots=roots)
