"""Answers of ``POST /v1/chat/completions``, with llama.cpp's and vLLM's names for reasoning. Reference:
https://platform.openai.com/docs/api-reference/chat/object"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from agent import events as ev
from agent.server.chat.requests import ChatRequest
from agent.server.http.errors import ApiError, failed
from agent.server.responses.sse import StreamEncoder, sse_data
from tools.version import program_version

PART_SEPARATOR = "\n\n"
"""Joins the messages of a turn, which are one message here."""


class ChatAnswer(StreamEncoder):
    """The common part of the body or the chunks of one request."""

    def __init__(self, chat: ChatRequest) -> None:
        self.with_usage, self._metadata = chat.with_usage, chat.metadata
        self._chunk_head: dict[str, Any] = {}
        self._service_tier = None if chat.service_tier is None else {"service_tier": "default"}

    def head(self, response: ev.Response, kind: str) -> dict[str, Any]:
        """The fields that every object begins with; ``response``: the first choice's."""
        maker = f"{program_version()} {response.model}".encode()
        fingerprint = hashlib.blake2b(maker, digest_size=5).hexdigest()
        return {
            "id": response.id.replace("resp_", "chatcmpl-"),
            "object": kind,
            "created": response.created_at,
            "model": response.model,
            "system_fingerprint": f"fp_{fingerprint}",
            **(self._service_tier or {}),
        }

    def chunk_head(self, response: ev.Response) -> dict[str, Any]:
        """The fields of every chunk, the same in all choices; ``response``: any choice's."""
        self._chunk_head = self._chunk_head or self.head(response, "chat.completion.chunk")
        return self._chunk_head

    def body(self, responses: Sequence[ev.Response]) -> bytes:
        """The body of final responses, a choice each. Raises ApiError for one without an answer."""
        for response in responses:
            if error := failure(response):
                raise error
        value = self.head(responses[0], "chat.completion") | {
            "choices": [self._choice(response, i) for i, response in enumerate(responses)],
            "usage": _usage(responses),
        }
        if self._metadata is not None:
            value["metadata"] = self._metadata
        return json.dumps(value, ensure_ascii=False).encode()

    def choice(self, index: int) -> ChatChunkEncoder:
        return ChatChunkEncoder(self, index)

    def error(self, error: ApiError, number: int) -> bytes:
        return sse_data({"error": error.body})

    def end(self, responses: Sequence[ev.Response]) -> bytes:
        """The last chunk of a stream; empty where no usage was asked for."""
        if not self.with_usage:
            return b""
        head = self.chunk_head(responses[0])
        return sse_data(head | {"choices": [], "usage": _usage(responses)})

    def _choice(self, response: ev.Response, index: int) -> dict[str, Any]:
        output = response.output
        thoughts = [item.content for item in output if isinstance(item, ev.ReasoningItem)]
        reasoning = ["".join(part.text for part in parts) for parts in thoughts]
        calls = [_call(item) for item in output if is_client_call(item, response)]
        texts: list[str] = []
        logprobs: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for item in output:
            if isinstance(item, ev.MessageItem):
                offset = sum(len(text) + len(PART_SEPARATOR) for text in texts)
                for part in item.content:
                    logprobs += part.logprobs
                    annotations += [_annotation(one, offset) for one in part.annotations]
                texts.append("".join(part.text for part in item.content))
        message: dict[str, Any] = {
            "role": "assistant",
            "content": PART_SEPARATOR.join(texts) if texts else None,
            "refusal": None,
            "annotations": annotations,
        }
        if reasoning:
            message |= _reasoning(PART_SEPARATOR.join(reasoning))
        if calls:
            message["tool_calls"] = calls
        return {
            "index": index,
            "message": message,
            "logprobs": _logprobs(logprobs),
            "finish_reason": self.finish_reason(response),
            **_repairs(response),
        }

    def finish_reason(self, response: ev.Response) -> str:
        if response.status == "incomplete":
            return "length"
        if any(is_client_call(item, response) for item in response.output):
            return "tool_calls"
        return "stop"


def failure(response: ev.Response) -> ApiError | None:
    """The error of a response that failed or was cancelled; None: it has an answer."""
    if response.error is not None:
        return failed(response.error.code, response.error.message)
    if response.status == "cancelled":
        return ApiError(503, "The response was cancelled.", code="cancelled")
    return None


def is_client_call(
    item: ev.Item, response: ev.Response
) -> TypeGuard[ev.FunctionCallItem | ev.CustomToolCallItem]:
    """Whether an item is a call for the client, not one that the model cut off and wrote again."""
    match item:
        case ev.FunctionCallItem(status=status) | ev.CustomToolCallItem(status=status):
            return status != "incomplete" or response.status == "incomplete"
    return False


class ChatChunkEncoder:
    """Writes a turn's events as ``chat.completion.chunk`` objects; each choice needs an encoder."""

    def __init__(self, answer: ChatAnswer, index: int = 0) -> None:
        self._answer, self._index = answer, index
        self._head: dict[str, Any] = {}
        """The first fields of every chunk; known with the event ``response.created``."""
        self._call_indexes: dict[str, int] = {}
        """Positions in ``tool_calls``, by item id."""
        self._has_reasoned = False
        self._offset = 0
        """Characters of the messages before the one that is being written, with `PART_SEPARATOR`."""

    def __call__(self, event: ev.OfficialEvent) -> bytes:
        """Write an event; empty if chunks have nothing like it."""
        match event:
            case ev.ResponseCreated(response=response):
                self._head = self._answer.chunk_head(response)
                return self._chunk({"role": "assistant", "content": ""})
            case ev.ReasoningTextDelta(delta=delta):
                return self._chunk(_reasoning(delta))
            case ev.OutputTextDone(text=text):
                self._offset += len(text) + len(PART_SEPARATOR)
                return b""
            case ev.ReasoningTextDone():
                self._has_reasoned = True
                return b""
            case ev.OutputItemAdded(item=item):
                return self._item_added(item)
            case ev.OutputTextDelta(delta=delta, logprobs=logprobs):
                return self._chunk({"content": delta}, logprobs=_logprobs(logprobs))
            case ev.OutputTextAnnotationAdded(annotation=annotation):
                return self._chunk({"annotations": [_annotation(annotation, self._offset)]})
            case ev.FunctionCallArgumentsDelta(item_id=item_id, delta=delta):
                return self._call_delta(item_id, {"function": {"arguments": delta}})
            case ev.CustomToolCallInputDelta(item_id=item_id, delta=delta):
                return self._call_delta(item_id, {"custom": {"input": delta}})
            case ev.ResponseFailed() | ev.ResponseIncomplete() if error := failure(event.response):
                return self._answer.error(error, 0)
            case ev.ResponseCompleted(response=response) | ev.ResponseIncomplete(response=response):
                reason = self._answer.finish_reason(response)
                return self._chunk({}, finish_reason=reason, **_repairs(response))
        return b""

    def _item_added(self, item: ev.Item) -> bytes:
        match item:
            case ev.FunctionCallItem() | ev.CustomToolCallItem():
                self._call_indexes[item.id] = len(self._call_indexes)
                return self._call_delta(item.id, _call(item))
            case ev.MessageItem() if self._offset:
                return self._chunk({"content": PART_SEPARATOR})
            case ev.ReasoningItem() if self._has_reasoned:
                return self._chunk(_reasoning(PART_SEPARATOR))
        return b""

    def _call_delta(self, item_id: str, call: Mapping[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [{"index": self._call_indexes[item_id], **call}]})

    def _chunk(self, delta: dict[str, Any], **fields: Any) -> bytes:
        empty = {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}
        choice = empty | fields
        usage = {"usage": None} if self._answer.with_usage else {}
        return sse_data({**self._head, "choices": [choice], **usage})


def _call(item: ev.FunctionCallItem | ev.CustomToolCallItem) -> dict[str, Any]:
    """A call; while it is being written, with what it has so far. This API has no namespaces."""
    name = ev.qualified_name(item.name, item.namespace)
    if isinstance(item, ev.CustomToolCallItem):
        called = {"name": name, "input": item.input}
        return {"id": item.call_id, "type": "custom", "custom": called}
    function = {"name": name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _repairs(response: ev.Response) -> dict[str, Any]:
    """Repairs of a choice, as `Response.repairs`; items of this API that have ids are calls."""
    calls = {
        item.id: {"tool_call_id": item.call_id}
        for item in response.output
        if isinstance(item, ev.FunctionCallItem | ev.CustomToolCallItem)
    }
    repairs = [
        {"rule": repair.rule, "text": repair.text, **calls.get(repair.item_id or "", {})}
        for repair in response.repairs or ()
    ]
    return {"repairs": repairs} if repairs else {}


def _annotation(annotation: Mapping[str, Any], offset: int) -> dict[str, Any]:
    """A citation of the web; its message begins at ``offset`` of the text here."""
    fields = {name: value for name, value in annotation.items() if name != "type"}
    fields |= {name: fields[name] + offset for name in ("start_index", "end_index")}
    return {"type": annotation["type"], annotation["type"]: fields}


def _reasoning(text: str) -> dict[str, str]:
    """Reasoning under both names that clients read: llama.cpp's, and vLLM's and OpenRouter's."""
    return {"reasoning_content": text, "reasoning": text}


def _logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if not tokens:
        return None
    content = [
        _logprob(token)
        | {"top_logprobs": [_logprob(alternative) for alternative in token["top_logprobs"]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _logprob(token: dict[str, Any]) -> dict[str, Any]:
    """A token with its bytes, by default its text's unless that is part of a character (U+FFFD)."""
    text = token["token"]
    raw = token.get("bytes", None if "\ufffd" in text else list(text.encode()))
    return {"token": text, "logprob": token["logprob"], "bytes": raw}


def _usage(responses: Sequence[ev.Response]) -> dict[str, Any] | None:
    """The tokens of all choices, whose prompt is counted once."""
    if not (used := [response.usage for response in responses if response.usage is not None]):
        return None
    prompt, completion = used[0].input_tokens, sum(usage.output_tokens for usage in used)
    reasoning = sum(usage.output_tokens_details.reasoning_tokens for usage in used)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": used[0].input_tokens_details.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
