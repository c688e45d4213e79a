"""``POST /v1/messages`` and ``/v1/messages/count_tokens``, Anthropic's API: a request becomes one of
the Responses API (`requests`), whose events are answered as content blocks (`answers`)."""

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import Response

from agent.server.http.endpoints import endpoint
from agent.server.http.errors import ApiError, PromptTooLongError, missing
from agent.server.http.json_response import JsonResponse
from agent.server.http.request_body import read_json
from agent.server.input.parsing import ignored_header
from agent.server.messages.answers import MessageAnswer
from agent.server.messages.requests import MessagesRequest, MessagesTranslation
from agent.server.responses.answer_schemas import AnthropicMessage, MessageEvent, MessageTokenCount
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import EventStream, final_response
from agent.turn.loop import Turn


class MessageRoutes:
    """The routes of Anthropic's API."""

    def __init__(self, service: ResponseService) -> None:
        self._service = service

    @endpoint("POST", "/v1/messages", AnthropicMessage, stream=MessageEvent, body=MessagesRequest)
    async def create(self, request: Request) -> Response:
        """POST /v1/messages: Anthropic's API; docs/messages.md says what each field does."""
        service = self._service
        translation = await self._read(request)
        if translation.sent.max_tokens is None:
            raise missing("max_tokens")
        answer = MessageAnswer(translation)

        async def begin() -> list[Turn]:
            with self._errors(translation):
                turns = await service.begin_all([translation.request])
            answer.prompt_tokens = service.running[turns[0]].prompt_tokens
            answer.context_tokens = turns[0].runtime.context_length
            return turns

        if not translation.sent.stream:
            return await final_response(request, await begin(), service, answer.body)
        return EventStream(begin(), service, answer)

    @endpoint("POST", "/v1/messages/count_tokens", MessageTokenCount, body=MessagesRequest)
    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens: how long the prompt would be; nothing is begun."""
        translation = await self._read(request)
        with self._errors(translation):
            count = len(await self._service.prompt_ids(translation.request))
        ignored = ignored_header(translation.request.origin.ignored)
        return JsonResponse({"input_tokens": count}, headers=ignored)

    async def _read(self, request: Request) -> MessagesTranslation:
        service = self._service
        return MessagesTranslation(await read_json(request, service.body_budget), service)

    @contextmanager
    def _errors(self, translation: MessagesTranslation) -> Iterator[None]:
        """Word errors for this API's clients, and name its parameters."""
        try:
            with translation.params():
                yield
        except PromptTooLongError as error:
            raise ApiError(400, error.anthropic_message) from None
        except ApiError as error:
            if error.code != "model_not_found":
                raise
            name = self._service.runtime.model.name
            message = (
                f"{error} Set ANTHROPIC_MODEL and ANTHROPIC_DEFAULT_HAIKU_MODEL (or 'model') to"
                f" {name}, or start agent serve with --alias {translation.sent.model}."
            )
            raise ApiError(404, message, code=error.code, param="model") from None
