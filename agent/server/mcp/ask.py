"""One call of the tool ``ask``: a turn on behalf of an MCP client, which hears of its progress.
Questions and approvals go to the client's person as elicitations; clients of MCP 2026-07-28 get them as
the call's result (``InputRequiredResult``) and call again with the answer."""

import asyncio
import contextlib
import json
import secrets
from typing import Any

import mcp.types as T
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata

from agent import events as ev
from agent.turn.loop import Turn
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tools.types import Answer, Tool, error_text

ANSWER_SECONDS = 600.0
"""Timeout of the answer to a question that the client got as a result."""
INPUT_RESULT_VERSION = "2026-07-28"
"""From this version of MCP on, servers send no requests: a question is a call's result."""
CANCELLED = ElicitationResult("cancel")
_QUESTION_KEY = "question"
_APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this call", "default": False}},
    "required": ["allow"],
}


class Ask:
    """A turn that runs for a client, and the question that it waits with."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(16)
        """Names the turn where the client brings an answer."""
        self.turn: Turn | None = None
        self._context: ServerRequestContext[Any, Any] | None = None
        self._open_question: asyncio.Future[ElicitationRequest] = _new_future()
        """The question that the client gets as its call's result."""
        self._answer: asyncio.Future[ElicitationResult] = _new_future()
        self._lock, self._steps = asyncio.Lock(), 0
        self._reporting: asyncio.Task[None] | None = None

    def start(self, turn: Turn) -> None:
        self.turn = turn.start()
        self._reporting = asyncio.create_task(self._report(turn))

    async def wait(self, context: ServerRequestContext[Any, Any]) -> T.InputRequiredResult | None:
        """Wait for the turn's end (None) or a question to the client; cancelling it stops the turn."""
        assert self.turn is not None and self._reporting is not None, "start() first"
        self._context = context
        waited: set[asyncio.Future[Any]] = {self._reporting, self._open_question}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.turn.stop()
            raise
        if self._reporting.done():
            await self.turn.done()
            return None
        question, self._open_question = self._open_question.result(), _new_future()
        request = _elicit_request(question, self.token)
        return T.InputRequiredResult(
            input_requests={_QUESTION_KEY: request}, request_state=self.token
        )

    def resume(self, responses: T.InputResponses | None) -> None:
        response = (responses or {}).get(_QUESTION_KEY)
        result = _answer(response) if isinstance(response, T.ElicitResult) else CANCELLED
        if not self._answer.done():
            self._answer.set_result(result)

    async def elicit(self, question: ElicitationRequest) -> ElicitationResult:
        """Pass a question on to the client's person; cancelled where no answer comes."""
        context = self._context
        assert context is not None, "wait() first"
        async with self._lock:
            if context.protocol_version < INPUT_RESULT_VERSION:
                request = _elicit_request(question, self.token)
                metadata = ServerMessageMetadata(related_request_id=context.request_id)
                try:
                    send = context.session.send_request
                    return _answer(await send(request, T.ElicitResult, metadata=metadata))
                except MCPError:
                    return CANCELLED
            self._answer = _new_future()
            self._open_question.set_result(question)
            try:
                return await asyncio.wait_for(self._answer, ANSWER_SECONDS)
            except TimeoutError:
                if self._open_question.done():  # no client has fetched it
                    self._open_question = _new_future()
                return CANCELLED

    async def approve(self, tool: Tool, arguments: str) -> Answer:
        message = f"Allow {tool.name}?\n{arguments}"
        result = await self.elicit(ElicitationRequest(tool.server, message, _APPROVAL_SCHEMA))
        allowed = result.action == "accept" and (result.content or {}).get("allow") is True
        return Answer("once" if allowed else "no")

    async def _report(self, turn: Turn) -> None:
        async for batch in turn.log.follow():
            for event in batch:
                if message := _step(event):
                    self._steps += 1
                    if (context := self._context) is not None:
                        with contextlib.suppress(MCPError, OSError, RuntimeError):
                            await context.session.report_progress(self._steps, None, message)


def _new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _elicit_request(question: ElicitationRequest, token: str) -> T.ElicitRequest:
    message = f"{question.server}: {question.message}"
    if question.url is not None:
        return T.ElicitRequest(
            params=T.ElicitRequestURLParams(message=message, url=question.url, elicitation_id=token)
        )
    schema = question.schema or {"type": "object", "properties": {}}
    return T.ElicitRequest(
        params=T.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def _answer(result: T.ElicitResult) -> ElicitationResult:
    return ElicitationResult(result.action, result.content)


def _step(event: ev.Event) -> str | None:
    """Return an event's text for a waiting client; None: nothing new."""
    match event:
        case ev.AgentLoad(done=0):
            return "loading the model"
        case ev.AgentPrefill(done=0, total=total):
            return f"reading {total:,} tokens"
        case ev.OutputItemAdded(item=ev.ReasoningItem()):
            return "thinking"
        case ev.OutputItemAdded(item=ev.McpCallItem(server_label=server, name=name)):
            return f"calling {server}.{name}"
        case ev.AgentToolProgress(message=message, progress=progress, total=total):
            of = f"/{total:g}" if total else ""
            return f"{message or 'tool'} {progress:g}{of}"
        case ev.OutputItemAdded(item=ev.MessageItem()):
            return "answering"
    return None


def result_of(response: ev.Response, conversation_id: str) -> T.CallToolResult:
    text = response.output_text
    if response.error is not None:
        text = error_text(response.error.message)
    elif response.status != "completed":
        text += f"\n[The answer is {response.status}.]"
    structured = {"answer": text, "conversation": conversation_id, "status": response.status}
    named = T.TextContent(text=json.dumps({"conversation": conversation_id}))
    return T.CallToolResult(
        content=[T.TextContent(text=text), named],
        structured_content=structured,
        is_error=response.status == "failed",
    )
