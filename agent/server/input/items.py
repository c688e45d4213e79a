"""Reads a request's input items as messages of a conversation.

A client that does not use ``previous_response_id`` resends everything; the model must then read what
it would have read anyway. An example of such an input, and the messages that it becomes::

    {"role": "developer", …}                  instructions (before any other item), else Developer
    {"role": "user", …}                       User
    {"type": "reasoning", …}                  left out: an answer or a user follows
    {"role": "assistant", …}                  Assistant, commentary: a call follows before the answer
    {"type": "function_call", "call_id": 1}   ToolCallMessage
    {"type": "function_call", "call_id": 2}   ToolCallMessage, ToolResultMessage, failed:
                                              no item has its output
    {"type": "function_call_output", 1}       ToolResultMessage
    {"role": "assistant", …}                  Assistant, final_answer
    {"role": "user", …}                       User: the model has not answered it, so here the turn's
                                              prompt begins (`unanswered_start`)
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from agent import events as ev
from agent.conversation.compaction import summary_message
from agent.conversation.messages import (
    NO_RESULT,
    Assistant,
    Developer,
    Message,
    ReasoningMessage,
    Steering,
    ToolCallMessage,
    ToolResultMessage,
    User,
)
from agent.conversation.reasoning_token import decode_reasoning
from agent.formats.recipients import PYTHON_TOOL, plain_name
from agent.server.http.errors import ApiError, invalid, missing
from agent.server.input import schemas
from agent.server.input.compaction_token import decode_summary
from agent.server.input.declared_tools import AddedTools, add_tools
from agent.server.input.files import file_text
from agent.server.input.foreign_items import (
    CALLS,
    call_text,
    output_text,
    own_result,
    searched_tools,
)
from agent.server.input.listed_items import KNOWN_PART_TYPES, TEXT_PART_TYPES
from agent.turn.decoder import CALL_HEDGE
from agent.turn.options import ApprovedCall
from agent.util.images import CANNOT_SEE
from tools.builtin.browser.extraction import DocumentText
from tools.types import Tool

UNSEEN_PARTS = {
    "input_image": ("an image", CANNOT_SEE),
    "input_file": ("a file", "this server could not read it"),
    "input_audio": ("a recording", "this model cannot hear"),
}
"""Types of content parts that the model cannot read: what they are, and why."""
UNREADABLE_SUMMARY = "[There was a summary of earlier messages here; this server cannot read it.]"
_INPUT_ITEM: TypeAdapter[schemas.InputItem] = TypeAdapter(schemas.InputItem)


@dataclass(slots=True)
class InputHistory:
    """The state of the items read so far, also of the responses that this request continues."""

    messages: list[Message] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    """Developer messages before any other item; they join the instructions in the prompt's header."""
    call_names: dict[str, str] = field(default_factory=dict)
    """call_id → the called function, under the name that the model knows."""
    listed_servers: set[str] = field(default_factory=set)
    """MCP servers whose tools were listed to the client already."""
    pending_approvals: dict[str, ApprovedCall] = field(default_factory=dict)
    """Calls that wait for the client's approval, by the ids of their mcp_approval_request items."""
    approved: list[ApprovedCall] = field(default_factory=list)
    """Calls that the client has approved with this request; they run first."""
    pending_calls: dict[str, str] = field(default_factory=dict)
    """call_id → the function, of calls without an output so far."""
    answered_calls: set[str] = field(default_factory=set)
    added_tools: AddedTools = field(default_factory=dict)
    effort: schemas.Effort | None = None
    text_format: schemas.TextFormat | None = None
    unread: list[int] = field(default_factory=list)
    """Positions of items of other servers that a lenient server could not read."""

    def copy(self) -> InputHistory:
        """A copy without messages and without the calls that the client has approved."""
        copies = {each.name: copy(getattr(self, each.name)) for each in fields(self)}
        return InputHistory(**copies | {"messages": [], "approved": [], "unread": []})


def name_calls(history: InputHistory, functions: Set[str]) -> None:
    """Give calls the names of declared functions, of what is ``functions.f`` or ``f..commentary``."""
    for index, message in enumerate(history.messages):
        if isinstance(message, ToolCallMessage | ToolResultMessage):
            name = plain_name(message.tool)
            if message.tool not in functions and name in functions:
                history.messages[index] = replace(message, tool=name)


def messages_by_item(items: Iterable[ev.Item], tools: Sequence[Tool]) -> dict[str, Message]:
    """The messages that output items become when a client sends them back, by item id."""
    messages = {}
    for item in items:
        if isinstance(item, ev.ToolSearchOutputItem):
            continue  # no message of the model's
        reader = ItemReader(InputHistory(), tools)
        reader.add(_INPUT_ITEM.validate_python(item.model_dump()), item.id)
        if reader.history.messages:
            messages[item.id] = reader.history.messages[0]
    return messages


def read_item(item: dict[str, Any] | None) -> schemas.InputItem | None:
    """A listed item as the input item that a client would send; None for what cannot be read."""
    with suppress(ValidationError):
        return _INPUT_ITEM.validate_python(item)
    return None


def unanswered_start(messages: Sequence[Message]) -> int:
    """Index of the first message after the last one that the model wrote."""
    for index in range(len(messages), 0, -1):
        if isinstance(messages[index - 1], Assistant | ReasoningMessage | ToolCallMessage):
            return index
    return 0


def newest_prompt(roles: Sequence[str]) -> int:
    """Index of the newest user message, if the model wrote nothing after it; else their number."""
    for index in range(len(roles) - 1, -1, -1):
        if roles[index] == "assistant":
            break
        if roles[index] == "user":
            return index
    return len(roles)


def item_role(item: schemas.InputItem) -> str:
    """Who has written an item: what is neither a message nor a setting, the model or its tools."""
    if isinstance(item, schemas.InputMessage):
        return item.role
    is_setting = isinstance(
        item,
        schemas.InputAdditionalTools | schemas.InputConfigurationUpdate | schemas.InputMcpListTools,
    )
    return "developer" if is_setting else "assistant"


@dataclass(slots=True)
class ItemReader:
    """Adds items to a history one by one."""

    history: InputHistory
    tools: Sequence[Tool]
    """Those that run here."""
    find: Callable[[str], schemas.InputItem | None] = lambda _: None
    """Looks up a reference."""
    leading: bool = False
    """Whether nothing but developer messages was read so far."""
    refuse_unseen: bool = False
    """Refuse a newest user message with content that the model cannot read, instead of replacing it by
    a sentence."""
    documents: Mapping[str, DocumentText] = field(default_factory=dict)
    abandoned: Collection[str] = ()
    """The call_ids of `abandoned_calls`: the next message ends them."""
    describe: Callable[[Sequence[schemas.RequestTool]], str] | None = None
    """Declares tools that a search of this server found, as it did."""
    unread: bool = False
    """Whether an item was passed over that cannot be read."""
    _calls_of_input: dict[str, ToolCallMessage] = field(default_factory=dict)
    """The calls of this input by call_id, or by the id of their mcp_approval_request."""
    _call_numbers: dict[str, int] = field(init=False)
    """Positions of all calls of functions, by call_id."""
    _foreign_calls: dict[str, str] = field(default_factory=dict)
    """call_ids by themselves and by the ids of their items: outputs may have either as their id."""
    _row: list[int] = field(default_factory=list)
    """Positions of the calls whose results come in a row, up to message ``_row_end``."""
    _row_end: int = 0

    def __post_init__(self) -> None:
        self._call_numbers = {call_id: n for n, call_id in enumerate(self.history.call_names)}

    def read(self, items: str | Sequence[schemas.InputItem], *, is_answered: bool) -> InputHistory:
        """Read an input as messages. ``is_answered``: the model answers the newest. Raises ApiError."""
        history = self.history
        if isinstance(items, str):
            history.messages.append(User(items))
            items = ()
        newest = newest_prompt([*map(item_role, items)]) if is_answered else len(items)
        for index, item in enumerate(items):
            self.unread = False
            self.add(item, f"input[{index}]", is_newest=index >= newest)
            history.unread += [index] * self.unread
        self.answer_open_calls()
        history.messages = _without_old_reasoning(infer_phases(history.messages))
        for message in history.messages:
            if isinstance(message, UnreadableReasoning):
                raise message.error
        return history

    def answer_open_calls(self) -> None:
        """Add a result that says so to each call that has none: the model never sees such a call."""
        history = self.history
        unapproved = {
            request_id: self._call_message(call.server, call.name, call.arguments).tool
            for request_id, call in history.pending_approvals.items()
        }
        missing: dict[int, list[Message]] = {}
        messages: list[Message] = []
        for call_id, tool in [*history.pending_calls.items(), *unapproved.items()]:
            result = _no_result(tool)
            if call_id in unapproved:
                result = ToolResultMessage(
                    tool, "the call was not run: it was not approved", failed=True
                )
            if call_id in self._calls_of_input:
                missing[id(self._calls_of_input[call_id])] = [result]
            else:
                messages.append(result)
        for message in history.messages:
            messages.append(message)
            messages += missing.get(id(message), [])
        history.messages = messages
        history.pending_approvals.clear()
        history.pending_calls.clear()

    def _add_call(self, call_id: str, call: ToolCallMessage) -> None:
        self._calls_of_input[call_id] = call
        self.history.messages.append(call)

    def _note_call(self, call_id: str, name: str, text: str, *, json: bool) -> None:
        """Add a call whose output is an item of its own."""
        history = self.history
        history.call_names[call_id] = history.pending_calls[call_id] = name
        # Clients number the calls of each turn from the start.
        history.answered_calls.discard(call_id)
        self._call_numbers[call_id] = len(self._call_numbers) + len(history.messages)
        self._add_call(call_id, ToolCallMessage(name, text, json, True, call_id))

    def _add_result(self, call_id: str, result: ToolResultMessage) -> None:
        """Add a result; those in a row come in the order of their calls, which distinguishes them."""
        number, messages = self._call_numbers[call_id], self.history.messages
        if len(messages) != self._row_end:
            self._row = []
        at = bisect_right(self._row, number)
        messages.insert(len(messages) - len(self._row) + at, result)
        self._row.insert(at, number)
        self._row_end = len(messages)

    def add(self, item: schemas.InputItem, param: str, *, is_newest: bool = True) -> None:
        """Add an item. ``is_newest``: content that cannot be read may be refused. Raises ApiError."""
        history = self.history
        add_tools(history.added_tools, item)
        if isinstance(item, schemas.InputAdditionalTools):
            return
        if isinstance(item, schemas.InputConfigurationUpdate):
            if item.reasoning is not None:
                history.effort = item.reasoning.effort
            if item.text is not None:
                history.text_format = item.text.format
            return
        if isinstance(item, schemas.InputMessage):
            self._add_message(item, param, is_newest=is_newest)
            return
        self.leading = False
        match item:
            case schemas.InputReasoning():
                self._add_reasoning(item, param)
            case schemas.InputFunctionCall(call_id=call_id, arguments=text):
                name = ev.qualified_name(item.name, item.namespace)
                self._note_call(call_id, name, text, json=True)
            case schemas.InputCustomToolCall(call_id=call_id, input=text):
                name = ev.qualified_name(item.name, item.namespace)
                self._note_call(call_id, name, text, json=False)
            case schemas.InputFunctionCallOutput():
                self._add_output(item, param)
            case schemas.InputMcpCall() | schemas.InputCodeInterpreterCall():
                history.messages += self._server_call(item)
            case schemas.InputApprovalRequest():
                call = (item.server_label, item.name, item.arguments)
                history.pending_approvals[item.id] = ApprovedCall(item.id, *call)
                history.listed_servers.add(item.server_label)  # before it was asked for approval
                self._add_call(item.id, self._call_message(*call))
            case schemas.InputApprovalResponse():
                self._add_approval_response(item, param)
            case schemas.InputMcpListTools():
                history.listed_servers.add(item.server_label)
            case schemas.InputCompaction(encrypted_content=None | ""):
                pass
            case schemas.InputCompactionTrigger():
                if self.refuse_unseen:
                    raise invalid(param, f"'{param}' must be the last item: it ends the input.")
                self.unread = True
            case schemas.InputCompaction(encrypted_content=str(token)):
                self._add_summary(token, param)
            case schemas.InputForeignItem():
                self._add_foreign(item, param)
            case schemas.ItemReference():
                if (referenced := self.find(item.id)) is None:
                    message = f"Item with id '{item.id[:80]}' not found."
                    raise invalid(param, message, "item_not_found")
                self.add(referenced, param, is_newest=is_newest)
            case _:
                pass  # a web search: its results are in the message after it

    def _add_message(self, item: schemas.InputMessage, param: str, *, is_newest: bool) -> None:
        history, add, refuses = self.history, self.history.messages.append, self.refuse_unseen
        for call_id in [each for each in history.pending_calls if each in self.abandoned]:
            add(_no_result(history.pending_calls.pop(call_id)))
        may_refuse = {"user": is_newest, "assistant": False}.get(item.role, True)
        text = self._content_text(
            item.content, f"{param}.content",
            refuse_unseen=refuses and may_refuse, refuse_unknown=refuses,
        )  # fmt: skip
        if item.role in ("developer", "system"):
            if self.leading:
                history.instructions.append(text)
            else:
                add(Developer(text))
            return
        self.leading = False
        if item.role == "user":
            add(Steering(text) if item.phase == "commentary" else User(text))
        elif text and text != CALL_HEDGE:  # which the model has not written
            add(_UnphasedAssistant(text) if item.phase is None else Assistant(text, item.phase))

    def _add_reasoning(self, item: schemas.InputReasoning, param: str) -> None:
        try:
            if text := self._reasoning_text(item, param):
                self.history.messages.append(ReasoningMessage(text))
        except ApiError as error:
            if self.refuse_unseen:
                self.history.messages.append(UnreadableReasoning("", error))
            else:
                self.unread = True

    def _add_output(self, item: schemas.InputFunctionCallOutput, param: str) -> None:
        # Codex's `exec` sends notices of a call that runs as further outputs.
        again = item.type == "custom_tool_call_output"
        late = self._missing_result(item.call_id)
        name = self._call_name(item.call_id, param, again=again)
        text = self._content_text(item.output, f"{param}.output")
        self._add_result(item.call_id, ToolResultMessage(name, text, True, late))

    def _add_summary(self, token: str, param: str) -> None:
        try:
            text = summary_message(decode_summary(token, param))
        except ApiError:
            if self.refuse_unseen:
                raise
            self.unread, text = True, UNREADABLE_SUMMARY
        self.history.messages.append(Developer(text))

    def _add_foreign(self, item: schemas.InputForeignItem, param: str) -> None:
        if item.type not in CALLS:
            call_id = item.call_id or self._foreign_calls.get(item.id or "")
            # Calls that the other server ran itself have no call_id.
            call_id = call_id or _unnamed_call(item.type)
            name, text = self._call_name(call_id, param), output_text(item)
            if item.execution == "server" and self.describe and (tools := searched_tools(item)):
                text = self.describe(tools)
            self._add_result(call_id, ToolResultMessage(name, text))
            return
        name, arguments = CALLS[item.type]
        text, is_json = call_text(arguments(item))
        if (result := own_result(item)) is not None:
            call = ToolCallMessage(name, text, json=is_json)
            self.history.messages += [call, ToolResultMessage(name, result)]
            return
        call_id = item.call_id or _unnamed_call(item.type)
        self._foreign_calls |= {item.id or call_id: call_id, call_id: call_id}
        self._note_call(call_id, name, text, json=is_json)

    def _missing_result(self, call_id: str) -> tuple[int, int] | None:
        """Which of its tool's results was added for this call, and of how many; None: none was."""
        known = self.history
        if call_id in known.pending_calls or call_id in known.answered_calls:
            return None
        name = known.call_names.get(call_id)
        settled = known.pending_calls.keys() | known.answered_calls
        calls = [c for c, tool in known.call_names.items() if tool == name and c not in settled]
        return (calls.index(call_id), len(calls)) if call_id in calls else None

    def _call_name(self, call_id: str, param: str, *, again: bool = False) -> str:
        if (name := self.history.call_names.get(call_id)) is None:
            message = f"No tool call found for function call output with call_id {call_id[:80]}."
            raise invalid(f"{param}.call_id", message)
        if call_id in self.history.answered_calls and not again:
            message = f"The function call with call_id {call_id[:80]} has an output already."
            raise invalid(f"{param}.call_id", message)
        self.history.answered_calls.add(call_id)
        self.history.pending_calls.pop(call_id, None)
        return name

    def _server_call(
        self, item: schemas.InputMcpCall | schemas.InputCodeInterpreterCall
    ) -> list[Message]:
        if isinstance(item, schemas.InputCodeInterpreterCall):
            outputs = item.outputs or []
            logs = "".join(str(output["logs"]) for output in outputs if "logs" in output)
            ran = ToolCallMessage(PYTHON_TOOL, item.code or "", json=False)
            return [ran, ToolResultMessage(PYTHON_TOOL, logs)]
        result = item.output if item.error is None else _error_text(item.error)
        call = self._call_message(item.server_label, item.name, item.arguments)
        returned = ToolResultMessage(call.tool, result or "", failed=item.error is not None)
        for approved in self.history.approved:
            if approved.request_id == item.approval_request_id:
                # It ran already, and the item of its approval request was read as the call itself.
                self.history.approved.remove(approved)
                return [returned]
        return [call, returned]

    def _call_message(self, server: str, tool: str, arguments: str) -> ToolCallMessage:
        """The call of a server's tool as the model writes it: for Python, bare code."""
        known = (one.model_name for one in self.tools if (one.server, one.name) == (server, tool))
        name = next(known, f"{server}__{tool}")
        if name == PYTHON_TOOL and (code := _code_argument(arguments)) is not None:
            return ToolCallMessage(name, code, json=False)
        return ToolCallMessage(name, arguments)

    def _add_approval_response(self, answer: schemas.InputApprovalResponse, param: str) -> None:
        pending = self.history.pending_approvals.pop(answer.approval_request_id, None)
        if pending is None:
            message = f"No approval request with id '{answer.approval_request_id[:80]}' is pending."
            raise invalid(f"{param}.approval_request_id", message)
        if answer.approve:
            self.history.approved.append(pending)
            return
        why = f": {answer.reason}" if answer.reason else ""
        name = self._call_message(pending.server, pending.name, pending.arguments).tool
        refused = ToolResultMessage(name, f"the user refused the call{why}", failed=True)
        self.history.messages.append(refused)

    def _reasoning_text(self, item: schemas.InputReasoning, param: str) -> str:
        """The text of a resent reasoning item; where nothing else can be read, that of its summary."""
        if text := self._content_text(item.content or [], f"{param}.content"):
            return text
        summary = "\n\n".join(part.text or "" for part in item.summary or ())
        if not item.encrypted_content:
            return summary
        try:
            return decode_reasoning(item.encrypted_content)
        except ValueError:
            if summary:
                return summary
            message = (
                "The reasoning item was not made by this server, so it cannot be read:"
                " leave it out."
            )
            param = f"{param}.encrypted_content"
            raise invalid(param, message, "invalid_encrypted_content") from None

    def _content_text(
        self,
        content: str | Sequence[schemas.ContentPart],
        param: str,
        *,
        refuse_unseen: bool = False,
        refuse_unknown: bool = True,
    ) -> str:
        if isinstance(content, str):
            return content
        return "\n".join(
            self._part_text(part, f"{param}[{index}]", refuse_unseen)
            for index, part in enumerate(content)
            if refuse_unknown or part.type in KNOWN_PART_TYPES
        )

    def _part_text(self, part: schemas.ContentPart, param: str, refuse_unseen: bool) -> str:
        if part.type == "refusal":
            return part.refusal or ""
        if part.type in UNSEEN_PARTS:
            what, why = UNSEEN_PARTS[part.type]
            try:
                if part.type == "input_file":
                    return file_text(part, param, self.documents)
                raise invalid(f"{param}.type", f"Unsupported content: {why}.", "unsupported_value")
            except ApiError:
                if refuse_unseen:
                    raise
                return f"[There was {what} here; {why}.]"
        if part.type not in TEXT_PART_TYPES:
            known = ", ".join(KNOWN_PART_TYPES)
            raise invalid(f"{param}.type", f"'{param}.type' is not one of {known}.")
        if part.text is None:
            raise missing(f"{param}.text")
        return part.text


def _unnamed_call(kind: str) -> str:
    """The call_id of a call that has none, and of its output."""
    return kind.removesuffix("_output").removesuffix("_call")


def _no_result(tool: str) -> ToolResultMessage:
    return ToolResultMessage(tool, NO_RESULT, function=True, failed=True)


def abandoned_calls(items: Iterable[Mapping[str, Any]], pending: Iterable[str] = ()) -> set[str]:
    """The call_ids of calls, of the items or ``pending``, that a message follows, but no output."""
    followed = dict.fromkeys(pending, False)
    for item in items:
        call_id = item.get("call_id")
        if item["type"] == "message":
            followed = dict.fromkeys(followed, True)
        elif call_id and item["type"].endswith("_output"):
            followed.pop(call_id, None)
        elif call_id:
            followed[call_id] = False
    return {call_id for call_id, is_followed in followed.items() if is_followed}


@dataclass(frozen=True, slots=True)
class UnreadableReasoning(ReasoningMessage):
    """Reasoning that is an error unless its turn has ended: then it is not rendered."""

    error: ApiError


class _UnphasedAssistant(Assistant):
    """An assistant's message that the client sent back without its ``phase``."""


def infer_phases(messages: Sequence[Message]) -> list[Message]:
    """Give each message without a phase one: commentary before a call, else the final answer."""
    result: list[Message] = []
    calls_follow = False
    for message in reversed(messages):
        match message:
            case _UnphasedAssistant(text):
                message = Assistant(text, "commentary" if calls_follow else "final_answer")
            case User():
                calls_follow = False
            case ToolCallMessage():
                calls_follow = True
        if isinstance(message, Assistant) and message.phase == "final_answer":
            calls_follow = False
        result.append(message)
    return result[::-1]


def ends_turn(message: Message) -> bool:
    """Whether the reasoning before a message belongs to a finished turn."""
    final = isinstance(message, Assistant) and message.phase == "final_answer"
    return final or isinstance(message, User)


def _without_old_reasoning(messages: Sequence[Message]) -> list[Message]:
    """Drop the reasoning of finished turns, as gpt-oss was trained ("Handling reasoning output in
    subsequent sampling" in https://cookbook.openai.com/articles/openai-harmony)."""
    last = max((i for i, message in enumerate(messages) if ends_turn(message)), default=-1)
    return [
        message
        for index, message in enumerate(messages)
        if index > last or not isinstance(message, ReasoningMessage)
    ]


def _error_text(error: object) -> str:
    """The text of an mcp_call's ``error``, whichever form a client sends it in."""
    match error:
        case {"message": str(message)}:
            return message
        case {"content": [*blocks]}:
            texts = (b.get("text", b) if isinstance(b, dict) else b for b in blocks)
            return "\n".join(map(str, texts))
        case str():
            return error
    return json.dumps(error, ensure_ascii=False)


def _code_argument(arguments: str) -> str | None:
    try:
        value = from_json(arguments)
    except ValueError:
        return None
    return value["code"] if isinstance(value, dict) and isinstance(value.get("code"), str) else None
