"""Answers of ``POST /v1/messages``: the items of a response as content blocks, whole or as events.
References: https://platform.claude.com/docs/en/api/messages,
https://platform.claude.com/docs/en/build-with-claude/streaming"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from agent import events as ev
from agent.server.chat.answers import failure, is_client_call
from agent.server.http.errors import ApiError
from agent.server.http.json_response import anthropic_error
from agent.server.messages.blocks import CODE_TOOL
from agent.server.messages.requests import MessagesTranslation
from agent.server.responses.sse import StreamEncoder, sse_data


class MessageAnswer(StreamEncoder):
    """The body or the events of one request, which is answered by one turn."""

    done = b""

    def __init__(self, translation: MessagesTranslation) -> None:
        thinking = translation.sent.thinking
        self.omits_thinking = thinking is not None and thinking.display == "omitted"
        self.prefill_length = len(translation.prefill)
        self.context_tokens = self.prompt_tokens = 0
        """Tokens of the model's context, where an answer may end, and of the prompt; known when the
        stream begins."""
        self._index = 0
        self._skipped = self.prefill_length
        """Characters of the stream's text that the client has already."""

    def message(self, response: ev.Response, content: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": response.id.replace("resp_", "msg_"),
            "type": "message",
            "role": "assistant",
            "model": response.model,
            "content": content,
            **self.stop(response),
            "usage": _usage(response.usage or ev.Usage(input_tokens=self.prompt_tokens)),
        }

    def stop(self, response: ev.Response) -> dict[str, str | None]:
        """Why an answer ended; nothing while it is being written."""
        usage, reason = response.usage, "end_turn"
        if response.status in ("in_progress", "queued"):
            return {"stop_reason": None, "stop_sequence": None}
        if response.status == "incomplete" and usage is not None:
            reason, most = "max_tokens", response.max_output_tokens or self.context_tokens
            if usage.total_tokens >= self.context_tokens and usage.output_tokens < most:
                reason = "model_context_window_exceeded"
        elif any(is_client_call(item, response) for item in response.output):
            reason = "tool_use"
        elif response.stop_sequence is not None:
            return {"stop_reason": "stop_sequence", "stop_sequence": response.stop_sequence}
        return {"stop_reason": reason, "stop_sequence": None}

    def body(self, responses: Sequence[ev.Response]) -> bytes:
        """The body that a final response becomes. Raises ApiError if it failed or was cancelled."""
        (response,) = responses
        if error := failure(response):
            raise error
        content = []
        for item in response.output:
            if is_client_call(item, response) or not isinstance(item, ev.FunctionCallItem):
                content += self.blocks(item)
        for block in content:
            if block["type"] == "text":
                block["text"] = block["text"][self.prefill_length :]
                break
        return json.dumps(self.message(response, content), ensure_ascii=False).encode()

    def blocks(self, item: ev.Item) -> list[dict[str, Any]]:
        """The content blocks of a complete item; two for a call that ran here, none for a list."""
        ran: dict[str, Any]
        match item:
            case ev.ReasoningItem(content=parts, encrypted_content=token):
                text = "" if self.omits_thinking else "".join(part.text for part in parts)
                return [{"type": "thinking", "thinking": text, "signature": token or ""}]
            case ev.MessageItem(content=parts):
                return [{"type": "text", "text": "".join(part.text for part in parts)}]
            case ev.FunctionCallItem(call_id=call_id, name=name, arguments=arguments):
                fields = {"id": call_id, "name": name, "input": _arguments(arguments)}
                return [{"type": "tool_use", **fields}]
            case ev.McpCallItem(server_label=server, error=error):
                call: dict[str, Any] = {"type": "mcp_tool_use", "name": item.name}
                call |= {"server_name": server, "input": _arguments(item.arguments)}
                text = error.text if error is not None else item.output or ""
                result: dict[str, Any] = {"type": "mcp_tool_result", "is_error": error is not None}
                result["content"] = [{"type": "text", "text": text}]
            case ev.CodeInterpreterCallItem(code=code, outputs=outputs):
                call = {"type": "server_tool_use", "name": CODE_TOOL, "input": {"code": code}}
                logs = "".join(str(output.get("logs", "")) for output in outputs or ())
                ran = {"stdout": logs, "stderr": "", "return_code": int(item.status != "completed")}
                ran |= {"type": "code_execution_result", "content": []}
                result = {"type": "code_execution_tool_result", "content": ran}
            case ev.WebSearchCallItem(action=action):
                sought = {name: action[name] for name in action if name not in ("type", "sources")}
                call = {"type": "server_tool_use", "name": "web_search", "input": sought}
                page = {"type": "web_search_result", "encrypted_content": "", "page_age": None}
                urls = [source.get("url", "") for source in action.get("sources") or ()]
                pages = [{**page, "url": url, "title": url} for url in urls]
                result = {"type": "web_search_tool_result", "content": pages}
            case _:
                return []
        return [{**call, "id": item.id}, {**result, "tool_use_id": item.id}]

    def choice(self, index: int) -> MessageAnswer:
        return self

    def error(self, error: ApiError, number: int) -> bytes:
        return _event(anthropic_error(error))

    def keepalive(self, number: int) -> bytes:
        return _event({"type": "ping"})

    def __call__(self, event: ev.OfficialEvent) -> bytes:
        """Write an event; empty if a message has nothing like it."""
        match event:
            case ev.ResponseCreated(response=response):
                return _event({"type": "message_start", "message": self.message(response, [])})
            case ev.OutputItemAdded(item=ev.ReasoningItem() | ev.MessageItem() as item):
                (block,) = self.blocks(item)
                return self._start(block)
            case ev.OutputItemAdded(item=ev.FunctionCallItem() as item):
                (block,) = self.blocks(item)
                return self._start({**block, "input": {}})
            case ev.ReasoningTextDelta(delta=delta) if not self.omits_thinking:
                return self._delta("thinking_delta", "thinking", delta)
            case ev.OutputTextDelta(delta=delta):
                if self._skipped:
                    skipped, self._skipped = self._skipped, max(0, self._skipped - len(delta))
                    delta = delta[skipped:]
                return self._delta("text_delta", "text", delta) if delta else b""
            case ev.FunctionCallArgumentsDelta(delta=delta):
                return self._delta("input_json_delta", "partial_json", delta)
            case ev.OutputItemDone(item=item):
                return self._item_done(item)
            case ev.ResponseFailed() | ev.ResponseIncomplete() if error := failure(event.response):
                return self.error(error, 0)
            case ev.ResponseCompleted(response=response) | ev.ResponseIncomplete(response=response):
                end = {"type": "message_delta", "delta": self.stop(response)}
                usage = _usage(response.usage or ev.Usage())
                return _event({**end, "usage": usage}) + _event({"type": "message_stop"})
        return b""

    def _item_done(self, item: ev.Item) -> bytes:
        match item:
            case ev.ReasoningItem(encrypted_content=token):
                return self._delta("signature_delta", "signature", token or "") + self._stop()
            case ev.MessageItem() | ev.FunctionCallItem():
                return self._stop()
        written = b""
        for block in self.blocks(item):
            if "input" in block:
                written += self._start({**block, "input": {}})
                text = json.dumps(block["input"], ensure_ascii=False)
                written += self._delta("input_json_delta", "partial_json", text)
            else:
                written += self._start(block)
            written += self._stop()
        return written

    def _start(self, block: Mapping[str, Any]) -> bytes:
        return _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, kind: str, name: str, text: str) -> bytes:
        delta = {"type": kind, name: text}
        return _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self) -> bytes:
        self._index += 1
        return _event({"type": "content_block_stop", "index": self._index - 1})


def model_page(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The models as Anthropic's API lists them."""
    return {
        "data": [model_info(model) for model in models],
        "has_more": False,
        "first_id": models[0]["id"],
        "last_id": models[-1]["id"],
    }


def model_info(model: Mapping[str, Any]) -> dict[str, Any]:
    created = datetime.fromtimestamp(model["created"], UTC)
    context = model["context_length"]
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": created.isoformat().replace("+00:00", "Z"),
        "max_input_tokens": context,
        "max_tokens": context,
        "lifecycle": "active",
    }


def _event(value: Mapping[str, Any]) -> bytes:
    return sse_data(value, value["type"])


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call, or what there is of them where it was cut off."""
    try:
        value = from_json(text, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _usage(usage: ev.Usage) -> dict[str, Any]:
    """The tokens as Anthropic counts them: those that were cached apart from the others."""
    cached = usage.input_tokens_details.cached_tokens
    return {
        "input_tokens": usage.input_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    }
