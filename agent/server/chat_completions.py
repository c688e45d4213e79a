"""``POST /v1/chat/completions`` for clients that know nothing newer.

A request becomes one of the Responses API, the answer is that turn's events in the older shape:
reasoning as ``reasoning_content``, calls of the client's functions as ``tool_calls``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent import events as ev
from agent.server.auth import read_body
from agent.server.errors import ApiError, invalid, unsupported
from agent.server.parsing import json_object, validate
from agent.server.planner import LOGPROBS
from agent.server.schemas import CreateResponse, Part, Wire
from agent.server.sse import Body, EventStream

if TYPE_CHECKING:
    from agent.server.app import Endpoint


# --- what clients send ---


class CalledFunction(Wire):
    name: str
    arguments: str


class ToolCall(Wire):
    id: str
    function: CalledFunction


class ImageOrText(Part):
    """``text``, ``image_url``, ``input_audio``, ``file``, ``refusal``."""


class ChatMessage(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ImageOrText] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class NamedFunction(Wire):
    name: str


class ChatToolChoice(Wire):
    type: Literal["function"]
    function: NamedFunction


class ResponseFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StreamOptions(Wire):
    include_usage: bool | None = None


class ChatRequest(Wire):
    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


PASSED_ON = (
    "model", "parallel_tool_calls", "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repeat_penalty", "logit_bias",
)  # fmt: skip
PARTS = {"text": "input_text", "image_url": "input_image", "file": "input_file"}


def route(endpoint: Endpoint) -> Route:
    async def create(request: Request) -> Response:
        asked = validate(ChatRequest, json_object(await read_body(request, endpoint.max_body)))
        try:
            turn = await endpoint.begin(as_response_request(asked))
        except ApiError as error:
            if (error.param or "").startswith("input"):
                error.param = "messages"  # as this client calls it
            raise
        if not asked.stream:
            return Body(turn, endpoint, completion)
        usage = bool(asked.stream_options and asked.stream_options.include_usage)
        return EventStream(turn, endpoint, Chunks(usage))

    return Route("/v1/chat/completions", create, methods=["POST"])


def as_response_request(chat: ChatRequest) -> CreateResponse:
    """Raises ApiError."""
    if chat.n not in (None, 1):
        raise unsupported("n", "More than one choice")
    if chat.stop:
        raise unsupported("stop", "stop")
    if chat.top_logprobs is not None and not chat.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    given = {name: getattr(chat, name) for name in PASSED_ON}
    choice = chat.tool_choice
    effort = {"effort": chat.reasoning_effort} if chat.reasoning_effort else None
    return validate(
        CreateResponse,
        given
        | {
            "input": [item for message in chat.messages for item in _items(message)],
            "tools": [_tool(tool) for tool in chat.tools or ()],
            "tool_choice": {"type": "function", "name": choice.function.name}
            if isinstance(choice, ChatToolChoice)
            else choice,
            "max_output_tokens": chat.max_completion_tokens or chat.max_tokens,
            "reasoning": effort,
            "text": {"format": _format(chat.response_format)},
            "include": [LOGPROBS] if chat.logprobs else None,
            "top_logprobs": chat.top_logprobs,
            "store": False,
            "stream": chat.stream,
        },
    )


def _items(message: ChatMessage) -> list[dict[str, Any]]:
    """A message as input items: what it thinks, says and calls are items of their own."""
    content = message.content
    if isinstance(content, list):
        content_items: Any = [
            {**part.model_dump(), "type": PARTS.get(part.type, part.type)} for part in content
        ]
    else:
        content_items = content or ""
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message.tool_call_id or "",
                "output": content_items,
            }
        ]
    items: list[dict[str, Any]] = []
    if message.reasoning_content:
        thought = {"type": "reasoning_text", "text": message.reasoning_content}
        items.append({"type": "reasoning", "content": [thought]})
    if content_items or message.role != "assistant":
        items.append({"type": "message", "role": message.role, "content": content_items})
    for call in message.tool_calls or ():
        items.append({"type": "function_call", "call_id": call.id, **call.function.model_dump()})
    return items


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Functions are nested here; a tool of the newer API is taken as it is."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        return tool
    return {"type": "function", **function}


def _format(wanted: ResponseFormat | None) -> dict[str, Any]:
    if wanted is None:
        return {"type": "text"}
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            param = "response_format.json_schema"
            message = f"Missing required parameter: '{param}'."
            raise invalid(param, message, "missing_required_parameter")
        return {**wanted.json_schema, "type": "json_schema"}
    return {"type": wanted.type}


# --- what they get ---


def completion(response: ev.Response) -> bytes:
    """The body: one choice. Raises ApiError where the turn failed."""
    if response.status == "failed" and response.error is not None:
        raise ApiError(500, response.error.message, code=response.error.code)
    thoughts, texts, calls = [], [], []
    logprobs: list[dict[str, Any]] = []
    for item in response.output:
        match item:
            case ev.ReasoningItem(content=parts):
                thoughts.append("".join(part.text for part in parts))
            case ev.MessageItem(content=parts):
                texts.append("".join(part.text for part in parts))
                logprobs += [one for part in parts for one in part.logprobs]
            case ev.FunctionCallItem():
                function = {"name": _name(item), "arguments": item.arguments}
                calls.append({"id": item.call_id, "type": "function", "function": function})
            case _:
                pass
    message: dict[str, Any] = {
        "role": "assistant",
        "content": SEPARATOR.join(texts) if texts else None,
        "refusal": None,
    }
    if thoughts:
        message["reasoning_content"] = SEPARATOR.join(thoughts)
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(logprobs),
        "finish_reason": _finish(response),
    }
    value = _head(response, "chat.completion") | {"choices": [choice], "usage": _usage(response)}
    return json.dumps(value, ensure_ascii=False).encode()


SEPARATOR = "\n\n"
"""Between what are two messages there and one here."""


class Chunks:
    """Writes a turn's events as chunks; one per stream."""

    def __init__(self, usage: bool) -> None:
        """``usage``: a last chunk tells it."""
        self._with_usage = usage
        self._response: ev.Response
        self._calls: dict[str, int] = {}
        self._spoken: set[str] = set()

    def __call__(self, event: ev.Official) -> bytes:
        match event:
            case ev.ResponseCreated(response=response):
                self._response = response
                return self._chunk({"role": "assistant", "content": ""})
            case ev.ReasoningTextDelta(delta=delta):
                return self._chunk({"reasoning_content": delta})
            case ev.ReasoningTextDone() | ev.OutputTextDone():
                self._spoken.add(event.type)
                return b""
            case ev.OutputItemAdded(item=item):
                return self._opened(item)
            case ev.OutputTextDelta(delta=delta, logprobs=logprobs):
                return self._chunk({"content": delta}, logprobs=logprobs)
            case ev.FunctionCallArgumentsDelta(item_id=item_id, delta=delta):
                call = {"index": self._calls[item_id], "function": {"arguments": delta}}
                return self._chunk({"tool_calls": [call]})
            case ev.ResponseFailed(response=response) if response.error:
                error = {"message": response.error.message, "type": "server_error"}
                return _data({"error": error | {"param": None, "code": response.error.code}})
            case ev.ResponseCompleted(response=response) | ev.ResponseIncomplete(response=response):
                return self._ended(response)
            case _:
                return b""

    def _opened(self, item: ev.Item) -> bytes:
        match item:
            case ev.FunctionCallItem():
                index = self._calls[item.id] = len(self._calls)
                function = {"name": _name(item), "arguments": ""}
                call = {"index": index, "id": item.call_id, "type": "function"}
                return self._chunk({"tool_calls": [call | {"function": function}]})
            case ev.MessageItem() if "response.output_text.done" in self._spoken:
                return self._chunk({"content": SEPARATOR})
            case ev.ReasoningItem() if "response.reasoning_text.done" in self._spoken:
                return self._chunk({"reasoning_content": SEPARATOR})
            case _:
                return b""

    def _ended(self, response: ev.Response) -> bytes:
        last = self._chunk({}, _finish(response))
        if not self._with_usage:
            return last
        head = _head(response, "chat.completion.chunk")
        return last + _data(head | {"choices": [], "usage": _usage(response)})

    def _chunk(
        self,
        delta: dict[str, Any],
        finish: str | None = None,
        logprobs: Sequence[dict[str, Any]] = (),
    ) -> bytes:
        shown = _logprobs(logprobs)
        choice = {"index": 0, "delta": delta, "logprobs": shown, "finish_reason": finish}
        return _data(_head(self._response, "chat.completion.chunk") | {"choices": [choice]})


def _logprobs(said: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Bytes are told of tokens that are whole text; others' text does not tell them."""

    def one(logprob: dict[str, Any]) -> dict[str, Any]:
        token = logprob["token"]
        raw = logprob.get("bytes", None if "\ufffd" in token else list(token.encode()))
        return {"token": token, "logprob": logprob["logprob"], "bytes": raw}

    if not said:
        return None
    content = [
        one(logprob) | {"top_logprobs": [one(other) for other in logprob["top_logprobs"]]}
        for logprob in said
    ]
    return {"content": content, "refusal": None}


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _head(response: ev.Response, kind: str) -> dict[str, Any]:
    return {
        "id": response.id.replace("resp_", "chatcmpl-"),
        "object": kind,
        "created": response.created_at,
        "model": response.model,
    }


def _name(item: ev.FunctionCallItem) -> str:
    return f"{item.namespace}__{item.name}" if item.namespace else item.name


def _finish(response: ev.Response) -> str:
    if response.status == "incomplete":
        return "length"
    called = any(isinstance(item, ev.FunctionCallItem) for item in response.output)
    return "tool_calls" if called else "stop"


def _usage(response: ev.Response) -> dict[str, Any] | None:
    usage = response.usage
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": usage.output_tokens_details.reasoning_tokens
        },
    }
