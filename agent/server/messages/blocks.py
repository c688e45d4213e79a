"""Reads the content blocks of messages as input items of the Responses API::

user       text, image, document      message; after results of tools it does not end the turn
           tool_result                function_call_output
assistant  thinking                   reasoning: its text, or what its signature holds
           text                       message
           tool_use                   function_call
           mcp_tool_use, its result   mcp_call
           server_tool_use            code_interpreter_call or function_call, with its result
system     text                       message of the developer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agent.conversation.reasoning_token import decode_reasoning
from agent.server.http.errors import invalid, missing
from agent.server.input import schemas
from agent.server.input.foreign_items import value_text
from agent.server.input.items import newest_prompt
from agent.server.input.token_memo import TokenMemo
from agent.server.input.translation import Translation
from agent.util.images import CANNOT_SEE
from tools.types import error_text

CODE_TOOL = "code_execution"
"""The name of Python as a tool that runs here."""


class BlockSource(schemas.RequestModel):
    """The data of an image or a document."""

    type: str | None = None
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class MessageBlock(schemas.RequestModel):
    """A content block of any type, with the fields of all types that are read."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    source: BlockSource | str | None = None
    title: str | None = None
    id: str | None = None
    name: str | None = None
    server_name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: str | list[MessageBlock] | dict[str, Any] | None = None
    is_error: bool | None = None


class MessageParam(schemas.RequestModel):
    """A message."""

    role: Literal["user", "assistant", "system"]
    content: str | list[MessageBlock]


class BlockReader:
    """Reads messages; ``items`` are the input items, ``params`` what each was made of."""

    def __init__(
        self, messages: Sequence[MessageParam], memo: TokenMemo, translation: Translation[Any]
    ) -> None:
        self._memo, self._translation = memo, translation
        self.items: list[dict[str, Any]] = []
        self.params: list[str] = []
        self._in_turn = False
        """Whether the messages since the model's are results of its calls."""
        self._server_calls: dict[str, dict[str, Any]] = {}
        """Items of calls that ran at the server, by id: their results are blocks of their own."""
        newest = newest_prompt([message.role for message in messages])
        for index, message in enumerate(messages):
            param, blocks = f"messages[{index}]", message.content
            if isinstance(blocks, str):
                blocks = [MessageBlock(type="text", text=blocks)]
            if message.role == "assistant":
                self._in_turn = False
                for number, block in enumerate(blocks):
                    self._add_written(block, f"{param}.content[{number}]")
            else:
                self._add_sent(message.role, blocks, param, is_newest=index >= newest)
        self.prefill = ""
        """The beginning of the answer, which the model continues and the client has already."""
        if self.items and (last := self.items[-1]).get("role") == "assistant":
            last["status"], self.prefill = "in_progress", last["content"][0]["text"]

    def _add(self, param: str, item: dict[str, Any]) -> None:
        self.items.append(item)
        self.params.append(param)

    # --- what the client says ---

    def _add_sent(
        self, role: str, blocks: Sequence[MessageBlock], param: str, *, is_newest: bool
    ) -> None:
        """Add a user's or a system's message. Raises ApiError for what the model cannot read."""
        parts: list[dict[str, Any]] = []
        for number, block in enumerate(blocks):
            where = f"{param}.content[{number}]"
            if block.type == "tool_result":
                self._add_parts(role, parts, param)
                parts = []
                self._add_result(block, where)
            else:
                parts += self._parts(block, where, is_newest=is_newest)
        self._add_parts(role, parts, param)

    def _add_parts(self, role: str, parts: list[dict[str, Any]], param: str) -> None:
        if not parts:
            return
        item = {"type": "message", "role": role, "content": parts}
        if role == "user" and self._in_turn:
            item["phase"] = "commentary"
        self._add(param, item)

    def _add_result(self, block: MessageBlock, param: str) -> None:
        self._in_turn = True
        if block.tool_use_id is None:
            raise missing(f"{param}.tool_use_id")
        parts = self._content_parts(block.content, f"{param}.content")
        if block.is_error:
            first = next((part for part in parts if part["type"] == "input_text"), None)
            if first is None:
                parts.insert(0, first := {"type": "input_text", "text": "the call failed"})
            first["text"] = error_text(first["text"])
        output = parts[0]["text"] if [*parts[0]] == ["type", "text"] and not parts[1:] else parts
        item = {"type": "function_call_output", "call_id": block.tool_use_id, "output": output}
        self._add(param, item)

    def _content_parts(self, content: Any, param: str) -> list[dict[str, Any]]:
        """The parts of a result; at least one."""
        if isinstance(content, list):
            parts = [
                part
                for number, block in enumerate(content)
                for part in self._parts(block, f"{param}[{number}]", is_newest=False)
            ]
            return parts or [_text("")]
        return [_text(value_text(content or ""))]

    def _parts(self, block: MessageBlock, param: str, *, is_newest: bool) -> list[dict[str, Any]]:
        """The parts of a message that a block becomes. Raises ApiError."""
        match block:
            case MessageBlock(type="text", text=None):
                raise missing(f"{param}.text")
            case MessageBlock(type="text", text=str(text)):
                return [_text(text)]
            case MessageBlock(type="image"):
                if is_newest:
                    message = f"'{param}' is an image, and {CANNOT_SEE}: send text."
                    error = invalid(param, message, "unsupported_content")
                    self._translation.pass_over(param, error)
                return [{"type": "input_image"}]
            case MessageBlock(type="document"):
                return self._document(block, param, is_newest=is_newest)
            case MessageBlock(type="search_result"):
                texts = self._content_parts(block.content, f"{param}.content")
                source = block.source if isinstance(block.source, str) else ""
                return [_text(f"{block.title or ''} ({source})"), *texts]
            case _:
                message = f"'{param}' has the type {block.type[:40]!r}, which is not known here."
                self._translation.pass_over(param, invalid(f"{param}.type", message))
                return []

    def _document(
        self, block: MessageBlock, param: str, *, is_newest: bool
    ) -> list[dict[str, Any]]:
        match block.source:
            case BlockSource(type="text", data=str(text)):
                return [_text(f"{block.title}\n\n{text}" if block.title else text)]
            case BlockSource(type="base64", data=str(data)):
                return [{"type": "input_file", "filename": block.title, "file_data": data}]
            case _:
                message = f"'{param}.source' has no data: this server gets no files from elsewhere."
                if is_newest:
                    error = invalid(f"{param}.source", message, "unsupported_content")
                    self._translation.pass_over(f"{param}.source", error)
                return [{"type": "input_file"}]

    # --- what the model wrote ---

    def _add_written(self, block: MessageBlock, param: str) -> None:
        """Add a block of the model's. Raises ApiError."""
        match block:
            case MessageBlock(type="thinking" | "redacted_thinking"):
                self._add_thinking(block, param)
            case MessageBlock(type="text", text=str(text)):
                parts = [{"type": "output_text", "text": text}]
                self._add(param, {"type": "message", "role": "assistant", "content": parts})
            case MessageBlock(type="text"):
                raise missing(f"{param}.text")
            case MessageBlock(type="tool_use" | "mcp_tool_use" | "server_tool_use"):
                self._add_call(block, param)
            case MessageBlock(type=kind) if kind.endswith("_tool_result"):
                self._add_server_result(block, param)
            case _:
                message = f"'{param}' has the type {block.type[:40]!r}, which is not known here."
                self._translation.pass_over(param, invalid(f"{param}.type", message))

    def _add_thinking(self, block: MessageBlock, param: str) -> None:
        """Add reasoning, unless another server has encrypted it."""
        if not (text := block.thinking):
            try:
                text = decode_reasoning(block.signature or block.data or "")
            except ValueError:
                self._translation.ignored.append(param)
                return
        content = [{"type": "reasoning_text", "text": text}]
        self._add(param, {"type": "reasoning", "content": content})

    def _add_call(self, block: MessageBlock, param: str) -> None:
        for name in ("id", "name"):
            if getattr(block, name) is None:
                raise missing(f"{param}.{name}")
        call_id, name = str(block.id), str(block.name)
        value = {} if block.input is None else block.input
        item: dict[str, Any]
        if block.type == "mcp_tool_use":
            item = {"type": "mcp_call", "server_label": block.server_name or "", "name": name}
            item["arguments"] = self._memo.arguments_text(call_id, value)
        elif block.type == "server_tool_use" and name == CODE_TOOL:
            code = value.get("code") if isinstance(value, dict) else None
            item = {"type": "code_interpreter_call", "code": code if isinstance(code, str) else ""}
        elif block.type == "server_tool_use" and name in ("web_search", "web_fetch"):
            item = {"type": "web_search_call"}  # the text after it says what was found
        else:
            item = {"type": "function_call", "call_id": call_id, "name": name}
            item["arguments"] = self._memo.arguments_text(call_id, value)
        if block.type != "tool_use":
            self._server_calls[call_id] = item
        self._add(param, item)

    def _add_server_result(self, block: MessageBlock, param: str) -> None:
        if (call := self._server_calls.pop(block.tool_use_id or "", None)) is None:
            message = f"'{param}.tool_use_id' names no call of a tool that ran at the server."
            raise invalid(f"{param}.tool_use_id", message)
        if call["type"] == "web_search_call":
            return  # the model reads of the search itself
        parts = self._content_parts(block.content, f"{param}.content")
        text = "\n".join(part.get("text", "") for part in parts)
        match call["type"]:
            case "mcp_call":
                call["error" if block.is_error else "output"] = text
            case "code_interpreter_call":
                call["outputs"] = [{"type": "logs", "logs": _logs(block.content)}]
            case "function_call":
                output = {"type": "function_call_output", "call_id": call["call_id"]}
                self._add(param, {**output, "output": text})


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _logs(content: object) -> str:
    match content:
        case {"stdout": str(out), "stderr": str(errors)}:
            return out + errors
    return value_text(content or "")
