"""``POST /v1/chat/completions``, the older API, on top of the Responses API.

A request becomes one of the Responses API; the answer is that turn's events in the older shape:
reasoning as ``reasoning_content`` and ``reasoning``, calls of the client's functions as ``tool_calls``.
Reference: https://platform.openai.com/docs/api-reference/chat (``reasoning_content``, ``reasoning``,
``top_k``, ``min_p`` and ``repeat_penalty`` are those of llama.cpp's and vLLM's servers).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent import events as ev
from agent.server.errors import ApiError, invalid, unsupported
from agent.server.parsing import parse_json_object, validate
from agent.server.request_body import read_body
from agent.server.schemas import ContentPart, CreateResponse, RequestModel
from agent.server.service import ResponseService
from agent.server.sse import EventStream, FinalResponse
from agent.server.turn_options import INCLUDE_LOGPROBS

# --- requests ---


class CalledFunction(RequestModel):
    """The function of a resent call, and its arguments in JSON."""

    name: str
    arguments: str


class ChatToolCall(RequestModel):
    """A call that the client sends back with its assistant message."""

    id: str
    function: CalledFunction


class ChatContentPart(ContentPart):
    """``text``, ``image_url``, ``input_audio``, ``file``, ``refusal``."""


class ChatMessage(RequestModel):
    """A message; an assistant's may have reasoning and calls, a tool's answers the call of its id."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ChatContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same; of two different ones this is read."""
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None


class NamedFunction(RequestModel):
    """The name of a function."""

    name: str


class ChatToolChoice(RequestModel):
    """A function that has to be called."""

    type: Literal["function"]
    function: NamedFunction


class ResponseFormat(RequestModel):
    """The form of the answer; ``json_schema`` is an object with ``name``, ``schema``, ``strict``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StreamOptions(RequestModel):
    """Options of a stream: a last chunk with the usage."""

    include_usage: bool | None = None


class ChatRequest(RequestModel):
    """The body of ``POST /v1/chat/completions``; a field that is None was not sent."""

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


FORWARDED_FIELDS = (
    "model", "parallel_tool_calls", "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repeat_penalty", "logit_bias",
)  # fmt: skip
PART_TYPES = {"text": "input_text", "image_url": "input_image", "file": "input_file"}
"""Types of content parts, and what the Responses API calls them."""


def route(service: ResponseService) -> Route:
    """The route of the older API."""

    async def create(request: Request) -> Response:
        chat = validate(ChatRequest, parse_json_object(await read_body(request, service)))
        try:
            turn = await service.begin(to_response_request(chat))
        except ApiError as error:
            if (error.param or "").startswith("input"):
                error.param = "messages"  # what this API calls it
            raise
        if not chat.stream:
            return FinalResponse(turn, service, completion_body)
        with_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        return EventStream(turn, service, ChatChunkEncoder(with_usage))

    return Route("/v1/chat/completions", create, methods=["POST"])


def to_response_request(chat: ChatRequest) -> CreateResponse:
    """Translate a request into one of the Responses API. Raises ApiError."""
    if chat.n not in (None, 1):
        raise unsupported("n", "More than one choice")
    if chat.stop:
        raise unsupported("stop", "stop")
    if chat.top_logprobs is not None and not chat.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    forwarded = {name: getattr(chat, name) for name in FORWARDED_FIELDS}
    choice = chat.tool_choice
    effort = {"effort": chat.reasoning_effort} if chat.reasoning_effort else None
    return validate(
        CreateResponse,
        forwarded
        | {
            "input": [item for message in chat.messages for item in _input_items(message)],
            "tools": [_flatten_tool(tool) for tool in chat.tools or ()],
            "tool_choice": {"type": "function", "name": choice.function.name}
            if isinstance(choice, ChatToolChoice)
            else choice,
            "max_output_tokens": chat.max_completion_tokens or chat.max_tokens,
            "reasoning": effort,
            "text": {"format": _text_format(chat.response_format)},
            "include": [INCLUDE_LOGPROBS] if chat.logprobs else None,
            "top_logprobs": chat.top_logprobs,
            "store": False,
            "stream": chat.stream,
        },
    )


def _input_items(message: ChatMessage) -> list[dict[str, Any]]:
    """Translate a message into input items: its reasoning, content and calls are items of their own."""
    content = message.content
    if isinstance(content, list):
        content_items: Any = [
            {**part.model_dump(), "type": PART_TYPES.get(part.type, part.type)} for part in content
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
    if reasoning := message.reasoning or message.reasoning_content:
        part = {"type": "reasoning_text", "text": reasoning}
        items.append({"type": "reasoning", "content": [part]})
    if content_items or message.role != "assistant":
        items.append({"type": "message", "role": message.role, "content": content_items})
    for call in message.tool_calls or ():
        items.append({"type": "function_call", "call_id": call.id, **call.function.model_dump()})
    return items


def _flatten_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Flatten a function's object; tools of the Responses API are accepted as they are."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        return tool
    return {"type": "function", **function}


def _text_format(format: ResponseFormat | None) -> dict[str, Any]:
    if format is None:
        return {"type": "text"}
    if format.type == "json_schema":
        if format.json_schema is None:
            param = "response_format.json_schema"
            message = f"Missing required parameter: '{param}'."
            raise invalid(param, message, "missing_required_parameter")
        return {**format.json_schema, "type": "json_schema"}
    return {"type": format.type}


# --- answers ---


def completion_body(response: ev.Response) -> bytes:
    """The body that a final response becomes, with one choice. Raises ApiError if the turn failed."""
    if response.status == "failed" and response.error is not None:
        raise ApiError(500, response.error.message, code=response.error.code)
    reasoning, texts, calls = [], [], []
    logprobs: list[dict[str, Any]] = []
    for item in response.output:
        match item:
            case ev.ReasoningItem(content=parts):
                reasoning.append("".join(part.text for part in parts))
            case ev.MessageItem(content=parts):
                texts.append("".join(part.text for part in parts))
                logprobs += [logprob for part in parts for logprob in part.logprobs]
            case ev.FunctionCallItem():
                function = {"name": _call_name(item), "arguments": item.arguments}
                calls.append({"id": item.call_id, "type": "function", "function": function})
            case _:
                pass
    message: dict[str, Any] = {
        "role": "assistant",
        "content": PART_SEPARATOR.join(texts) if texts else None,
        "refusal": None,
    }
    if reasoning:
        message |= _reasoning(PART_SEPARATOR.join(reasoning))
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": _logprobs(logprobs),
        "finish_reason": _finish_reason(response),
    }
    value = _head(response, "chat.completion") | {
        "choices": [choice],
        "usage": _usage(response),
    }
    return json.dumps(value, ensure_ascii=False).encode()


PART_SEPARATOR = "\n\n"
"""Joins the messages of a turn, which are one message here."""


class ChatChunkEncoder:
    """Writes a turn's events as ``chat.completion.chunk`` objects; each stream needs an encoder."""

    def __init__(self, with_usage: bool) -> None:
        """``with_usage``: end with a chunk that has the usage."""
        self._with_usage = with_usage
        self._head: dict[str, Any] = {}
        """What every chunk begins with; known with the first event, that the response is created."""
        self._call_indexes: dict[str, int] = {}
        """Positions in ``tool_calls``, by item id."""
        self._completed: set[str] = set()
        """Types of the texts that were completed: a further one follows after `PART_SEPARATOR`."""

    def __call__(self, event: ev.OfficialEvent) -> bytes:
        """Write an event; empty if chunks have nothing like it."""
        match event:
            case ev.ResponseCreated(response=response):
                self._head = _head(response, "chat.completion.chunk")
                return self._chunk({"role": "assistant", "content": ""})
            case ev.ReasoningTextDelta(delta=delta):
                return self._chunk(_reasoning(delta))
            case ev.ReasoningTextDone() | ev.OutputTextDone():
                self._completed.add(event.type)
                return b""
            case ev.OutputItemAdded(item=item):
                return self._item_added(item)
            case ev.OutputTextDelta(delta=delta, logprobs=logprobs):
                return self._chunk({"content": delta}, logprobs=logprobs)
            case ev.FunctionCallArgumentsDelta(item_id=item_id, delta=delta):
                call = {"index": self._call_indexes[item_id], "function": {"arguments": delta}}
                return self._chunk({"tool_calls": [call]})
            case ev.ResponseFailed(response=response) if response.error:
                error = {"message": response.error.message, "type": "server_error"}
                return _sse_data({"error": error | {"param": None, "code": response.error.code}})
            case ev.ResponseCompleted(response=response) | ev.ResponseIncomplete(response=response):
                return self._last_chunks(response)
            case _:
                return b""

    def _item_added(self, item: ev.Item) -> bytes:
        match item:
            case ev.FunctionCallItem():
                index = self._call_indexes[item.id] = len(self._call_indexes)
                function = {"name": _call_name(item), "arguments": ""}
                call = {"index": index, "id": item.call_id, "type": "function"}
                return self._chunk({"tool_calls": [call | {"function": function}]})
            case ev.MessageItem() if "response.output_text.done" in self._completed:
                return self._chunk({"content": PART_SEPARATOR})
            case ev.ReasoningItem() if "response.reasoning_text.done" in self._completed:
                return self._chunk(_reasoning(PART_SEPARATOR))
            case _:
                return b""

    def _last_chunks(self, response: ev.Response) -> bytes:
        last = self._chunk({}, _finish_reason(response))
        if not self._with_usage:
            return last
        return last + _sse_data(self._head | {"choices": [], "usage": _usage(response)})

    def _chunk(
        self,
        delta: dict[str, Any],
        finish_reason: str | None = None,
        logprobs: Sequence[dict[str, Any]] = (),
    ) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": _logprobs(logprobs),
            "finish_reason": finish_reason,
        }
        return _sse_data(self._head | {"choices": [choice]})


def _reasoning(text: str) -> dict[str, str]:
    """Reasoning under both names that clients read: llama.cpp's, and vLLM's and OpenRouter's."""
    return {"reasoning_content": text, "reasoning": text}


def _logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The ``logprobs`` of a choice; None for no tokens."""
    if not tokens:
        return None
    content = [
        _logprob(token)
        | {"top_logprobs": [_logprob(alternative) for alternative in token["top_logprobs"]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _logprob(token: dict[str, Any]) -> dict[str, Any]:
    """A token with its bytes. Without them, they are those of its text, unless that is a part of a
    character, which is written as U+FFFD."""
    text = token["token"]
    raw = token.get("bytes", None if "\ufffd" in text else list(text.encode()))
    return {"token": text, "logprob": token["logprob"], "bytes": raw}


def _sse_data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _head(response: ev.Response, kind: str) -> dict[str, Any]:
    """The fields that every object of a response begins with."""
    return {
        "id": response.id.replace("resp_", "chatcmpl-"),
        "object": kind,
        "created": response.created_at,
        "model": response.model,
    }


def _call_name(item: ev.FunctionCallItem) -> str:
    """The name of a called function; this API has no namespaces."""
    return f"{item.namespace}__{item.name}" if item.namespace else item.name


def _finish_reason(response: ev.Response) -> str:
    if response.status == "incomplete":
        return "length"
    has_calls = any(isinstance(item, ev.FunctionCallItem) for item in response.output)
    return "tool_calls" if has_calls else "stop"


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
