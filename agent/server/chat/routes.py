"""``POST /v1/chat/completions``, the older API: a request becomes one of the Responses API for each
choice (`requests`), whose events are answered in the older shape (`answers`)."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent.server.chat.answers import ChatAnswer
from agent.server.chat.requests import ChatRequest, ChatTranslation
from agent.server.http.endpoints import endpoint, route_of
from agent.server.http.request_body import read_json
from agent.server.responses.answer_schemas import ChatCompletion, ChatCompletionChunk
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import EventStream, final_response
from agent.turn.loop import Turn


def route(service: ResponseService) -> Route:
    @endpoint(
        "POST", "/v1/chat/completions", ChatCompletion, stream=ChatCompletionChunk, body=ChatRequest
    )
    async def create(request: Request) -> Response:
        """POST /v1/chat/completions: the older API; docs/chat.md says what each field does."""
        chat = ChatTranslation(await read_json(request, service.body_budget), service)
        answer = ChatAnswer(chat.sent)

        async def begin() -> list[Turn]:
            with chat.params():
                return await service.begin_all(chat.requests)

        if not chat.sent.stream:
            return await final_response(request, await begin(), service, answer.body)
        return EventStream(begin(), service, answer)

    return route_of(create)
