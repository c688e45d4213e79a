"""``POST /v1/completions``: the raw model without a chat template, for older clients and evaluations
(lm-evaluation-harness reads ``echo`` with ``logprobs``), with vLLM's and llama.cpp's fields too.
Reference: https://platform.openai.com/docs/api-reference/completions"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent.engine.protocol import EngineBusyError, EngineError
from agent.formats.protocol import Format
from agent.runtime.runtime import LoadedModel, Runtime
from agent.server.http.endpoints import endpoint, route_of
from agent.server.http.errors import (
    ApiError,
    context_length_exceeded,
    invalid,
    rate_limited,
    unsupported,
)
from agent.server.http.json_response import JsonResponse
from agent.server.http.request_body import read_json
from agent.server.http.signals import ends_before
from agent.server.input.parsing import ignored_header, validate
from agent.server.input.turn_options import sampling_of, stop_texts
from agent.server.raw.completion_choices import CompletionChoice, CompletionRequest, logprobs_object
from agent.server.responses.answer_schemas import Completion
from agent.server.responses.models import ServedModel
from agent.server.responses.service import ResponseService
from agent.server.responses.sse import DONE_MESSAGE, LiveStream, sse_data, wait_disconnected
from agent.turn.stop_sequences import TextPiece
from agent.util.ids import new_id

MAX_COMPLETION_CHOICES = 256
"""Choices of all prompts of one request."""
MAX_PARALLEL_CHOICES = 8
MAX_TOKEN_ID = 2**31 - 1


def route(service: ResponseService) -> Route:
    @endpoint("POST", "/v1/completions", Completion, stream=Completion, body=CompletionRequest)
    async def create(request: Request) -> Response:
        """POST /v1/completions: text or tokens after a raw prompt; docs/completions.md."""
        body = validate(CompletionRequest, await read_json(request, service.body_budget))
        ignored = ["suffix"] if body.suffix and service.options.lenient else []
        _refuse(body, (await service.models.find(body.model)).runtime, ignored)
        return CompletionAnswer(service, body, _prompts(body.prompt), ignored)

    return route_of(create)


def _refuse(body: CompletionRequest, runtime: Runtime, ignored: Sequence[str]) -> None:
    if body.suffix and "suffix" not in ignored:
        raise unsupported("suffix", "Inserting text before a suffix")
    candidates = body.best_of or body.n or 1
    if candidates < (body.n or 1):
        raise invalid("best_of", "'best_of' must not be smaller than 'n'.")
    if body.stream and candidates > (body.n or 1):
        raise invalid("best_of", "'best_of' cannot be streamed: the best is known in the end.")
    runs_here = runtime.script is None and runtime.provider.loader.is_local
    if body.echo and body.logprobs is not None and not runs_here:
        feature = "'echo' with 'logprobs', with a model that does not run on this machine,"
        raise unsupported("echo", feature)


def _prompts(prompt: Any) -> list[str | list[int]]:
    match prompt:
        case None | "" | []:
            raise invalid("prompt", "'prompt' is empty: send a text or token ids.")
        case str():
            return [prompt]
        case [*items] if all(_is_token(item) for item in items):
            return [items]
        case [*items]:
            for number, item in enumerate(items):
                is_ids = isinstance(item, list) and all(_is_token(token) for token in item)
                if not item or not (isinstance(item, str) or is_ids):
                    message = f"'prompt[{number}]' must be a text or a list of token ids."
                    raise invalid(f"prompt[{number}]", message, "invalid_type")
            return items
        case _:
            message = "'prompt' must be a text, a list of texts, or token ids."
            raise invalid("prompt", message, "invalid_type")


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_TOKEN_ID


async def encode_prompt(
    form: Format, text: str, *, begin: bool = True, special: bool = True
) -> list[int]:
    """Tokenise a raw prompt in a thread; ``begin``: with the id that prompts begin with. ``special``:
    text that spells special tokens becomes these."""
    ids = await asyncio.to_thread(form.encode_markup if special else form.encode_text, text)
    if begin and form.begin_id is not None and ids[:1] != [form.begin_id]:
        return [form.begin_id, *ids]
    return ids


class CompletionAnswer(Response):
    """Generates all choices and sends them, as a stream or as one body; a disconnect ends them."""

    def __init__(
        self,
        service: ResponseService,
        body: CompletionRequest,
        prompts: Sequence[str | list[int]],
        ignored: Sequence[str],
    ) -> None:
        """``ignored``: paths of what is passed over of the request."""
        super().__init__()
        self._more_headers = ignored_header(ignored)
        self._service, self._body, self._prompts = service, body, prompts
        self._sent = body.n or 1
        self._candidates = body.best_of or self._sent
        """Number of choices of each prompt, of which the best are sent."""
        self._head: dict[str, Any] = {}
        self._prompt_tokens = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = (
            self._send_stream(send) if self._body.stream else self._send_body(scope, receive, send)
        )
        await ends_before(sent, wait_disconnected(receive))

    async def _send_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._planned() as choices:
            texts = await _gather(choice.read() for choice in choices)
            written = list(zip(choices, texts, strict=True))
            sent: list[dict[str, Any]] = []
            for start in range(0, len(written), self._candidates):
                candidates = written[start : start + self._candidates]
                if self._sent < self._candidates:
                    candidates.sort(key=lambda candidate: -candidate[0].mean_logprob)
                for choice, pieces in candidates[: self._sent]:
                    sent.append(self._choice(len(sent), pieces, 0, choice.finish_reason))
            value = {**self._head, "choices": sent, "usage": self._usage(choices)}
            answer = JsonResponse(value, headers=self._more_headers)
        await answer(scope, receive, send)

    async def _send_stream(self, send: Send) -> None:
        with_usage = bool(self._body.stream_options and self._body.stream_options.include_usage)
        usage = {"usage": None} if with_usage else {}
        live = LiveStream(send, self._service.options.keepalive_seconds)

        async def write(fields: dict[str, Any]) -> None:
            await live.write(sse_data(self._head | fields))

        async def stream(index: int, choice: CompletionChoice) -> None:
            offset = 0
            async for piece in choice.pieces():
                if piece.text or piece.logprobs:
                    await write({"choices": [self._choice(index, [piece], offset, None)], **usage})
                    offset += len(piece.text)
            last = self._choice(index, [], offset, choice.finish_reason)
            await write({"choices": [last], **usage})

        async with live:
            try:
                async with self._planned() as choices:
                    await live.begin(self._more_headers)
                    await _gather(stream(index, choice) for index, choice in enumerate(choices))
                    if with_usage:
                        await write({"choices": [], "usage": self._usage(choices)})
            except ApiError as error:
                if not live.has_begun:
                    raise
                await live.write(sse_data({"error": error.body}))
            await live.end(DONE_MESSAGE)

    def _choice(
        self, index: int, pieces: Sequence[TextPiece], offset: int, reason: str | None
    ) -> dict[str, Any]:
        with_logprobs = self._body.logprobs is not None and (pieces or offset == 0)
        return {
            "index": index,
            "text": "".join(piece.text for piece in pieces),
            "logprobs": logprobs_object(pieces, offset) if with_logprobs else None,
            "finish_reason": reason,
        }

    def _usage(self, choices: Sequence[CompletionChoice]) -> dict[str, Any]:
        """The tokens of the request; each prompt counts once."""
        generated = sum(choice.output_tokens for choice in choices)
        cached = sum(choice.cached_tokens for choice in choices[:: self._candidates])
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self._prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    @asynccontextmanager
    async def _planned(self) -> AsyncIterator[list[CompletionChoice]]:
        """Keep the model loaded for the choices. Raises ApiError."""
        service, body = self._service, self._body
        with service.admit():
            async with service.models.in_use(body.model) as (served, loaded):
                yield await self._plan(served, loaded)

    async def _plan(self, served: ServedModel, loaded: LoadedModel) -> list[CompletionChoice]:
        runtime, body = served.runtime, self._body
        logprobs = 0 if self._candidates > self._sent and body.logprobs is None else body.logprobs
        if self._candidates * len(self._prompts) > MAX_COMPLETION_CHOICES:
            message = f"More than {MAX_COMPLETION_CHOICES} choices: send fewer prompts at once."
            raise invalid("prompt", message, "array_above_max_length")
        self._head = {
            "id": new_id("cmpl").replace("_", "-"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": runtime.model.name,
        }
        choices: list[CompletionChoice] = []
        for prompt in self._prompts:
            ids = await encode_prompt(loaded.format, prompt) if isinstance(prompt, str) else prompt
            self._prompt_tokens += len(ids)
            if len(ids) >= runtime.context_length:
                error = context_length_exceeded(runtime.context_length, len(ids))
                raise invalid("prompt", str(error), "context_length_exceeded")
            unknown = next((i for i in set(ids) if not loaded.format.token_bytes(i)), None)
            if unknown is not None and not isinstance(prompt, str):
                raise invalid("prompt", f"The model has no token with the id {unknown}.")
            # Each has a seed of its own: the request's plus its number.
            for number in range(self._candidates):
                sampling = sampling_of(body, served.defaults.sampling)
                if sampling.seed is not None:
                    sampling = replace(sampling, seed=(sampling.seed + number) % 2**32)
                metrics, stop = self._service.metrics, stop_texts(body.stop)
                choice = CompletionChoice(
                    runtime, loaded.format, ids, metrics, sampling, stop, logprobs, body
                )
                choices.append(choice)
        return choices


async def _gather(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await all coroutines, a few at a time; the first error ends the others. Raises ApiError."""
    limit = asyncio.Semaphore(MAX_PARALLEL_CHOICES)

    async def limited(work: Coroutine[Any, Any, Any]) -> Any:
        async with limit:
            return await work

    tasks = [asyncio.create_task(limited(work)) for work in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except EngineBusyError as error:
        raise rate_limited(str(error)) from error
    except EngineError as error:
        raise ApiError(500, str(error), code="server_error") from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
