"""``POST /v1/chat/completions``, the older API: a request becomes one of the Responses API for each
choice (`chat_requests`), whose events are answered in the older shape (`chat_answers`)."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.server.chat.answers import ChatAnswer, ChatChunkEncoder
from agent.server.chat.choices import ChoicesStream
from agent.server.chat.requests import chat_params, parse_chat
from agent.server.http.request_body import read_body
from agent.server.input.parsing import parse_json_object
from agent.server.input.schemas import CreateResponse
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import FinalResponse
from agent.turn.loop import Turn


def route(service: ResponseService) -> Route:
    async def create(request: Request) -> Response:
        """POST /v1/chat/completions: the older API; docs/chat.md says what each field does."""
        chat, requests = parse_chat(
            parse_json_object(await read_body(request, service.body_budget)),
            has_browser=service.has_browser,
            lenient=service.options.lenient,
        )
        answer = ChatAnswer(chat)

        async def begin() -> list[Turn]:
            with chat_params(chat):
                return await _begin_all(service, requests)

        if not chat.stream:
            return FinalResponse(await begin(), service, answer.body)
        encoder = partial(ChatChunkEncoder, answer)
        return ChoicesStream(begin(), service, encoder, answer.usage_chunk)

    return Route("/v1/chat/completions", create, methods=["POST"])


async def _begin_all(service: ResponseService, requests: list[CreateResponse]) -> list[Turn]:
    """Start a turn for each request, or none. Raises ApiError."""
    turns: list[Turn] = []
    try:
        for request in requests:
            turns.append(await service.begin(request))
    except BaseException:
        for turn in turns:
            service.abandon(turn)
        raise
    return turns
