"""A request's input as messages: what a client resends, and what is new."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter
from pydantic_core import from_json

from agent import events as ev
from agent.conversation.compaction import told
from agent.conversation.conversation import (
    Assistant,
    Called,
    Developer,
    Message,
    Returned,
    Thought,
    User,
)
from agent.server.compaction_token import unpacked
from agent.server.errors import ApiError, invalid
from agent.server.schemas import (
    ITEMS,
    InputApprovalRequest,
    InputApprovalResponse,
    InputCodeInterpreterCall,
    InputCompaction,
    InputCustomToolCall,
    InputFunctionCall,
    InputFunctionCallOutput,
    InputItem,
    InputMcpCall,
    InputMcpListTools,
    InputMessage,
    InputReasoning,
    ItemReference,
    Part,
)
from agent.turn.call_writers import Approved
from agent.turn.tool_calls import PYTHON
from tools.types import Tool

NOT_SEEN = {
    "input_image": "[There was an image here; this model cannot see images.]",
    "input_file": "[There was a file here; this server cannot read attached files.]",
    "input_audio": "[There was a recording here; this model cannot hear.]",
}
"""What the model is told of what it cannot be shown."""
_ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)
TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


@dataclass(slots=True)
class History:
    """What was read of the input so far."""

    messages: list[Message] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    """Developers' messages before anything else was said: they belong to the head."""
    calls: dict[str, str] = field(default_factory=dict)
    """call_id → the function that was called, by the name that the model knows."""
    listed: set[str] = field(default_factory=set)
    """MCP servers whose tools the client was already told."""
    asked: dict[str, Approved] = field(default_factory=dict)
    """Calls that wait for the client's word, by the ids of their requests."""
    approved: list[Approved] = field(default_factory=list)
    """Those that may run now."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """call_id → the function, of calls whose results the client has not sent yet."""


def read(
    items: str | Sequence[InputItem],
    earlier: History,
    tools: Sequence[Tool],
    find: Callable[[str], InputItem | None],
    *,
    first: bool,
) -> History:
    """The input as messages.

    ``earlier``: what is known of the response that it follows. ``tools``: ours, to name the calls of
    a resent history as the model knows them. ``find``: the item that a reference means. ``first``:
    nothing stands before this input. Raises ApiError.
    """
    history = History(
        [],
        list(earlier.instructions),
        dict(earlier.calls),
        set(earlier.listed),
        dict(earlier.asked),
        unanswered=dict(earlier.unanswered),
    )
    names = {(tool.server, tool.name): tool.model_name for tool in tools}
    reader = _Reader(history, names, find, leading=first)
    if isinstance(items, str):
        history.messages.append(User(items))
        items = ()
    for place, item in enumerate(items):
        reader.take(item, f"input[{place}]")
    reader.close_calls()
    history.messages = _without_old_thoughts(_with_phases(history.messages))
    return history


def written(items: Iterable[ev.Item], tools: Sequence[Tool]) -> dict[str, Message]:
    """What the model wrote, by the ids of its items: as a client's resent items would be read."""
    names = {(tool.server, tool.name): tool.model_name for tool in tools}
    messages = {}
    for item in items:
        if item.type in ITEMS:
            reader = _Reader(History(), names, lambda _: None, leading=False)
            reader.take(input_item(item), item.id)
            messages[item.id] = reader.history.messages[:1]
    return {item_id: found[0] for item_id, found in messages.items() if found}


def input_item(item: ev.Item) -> InputItem:
    """An item of an output, as an input may hold it."""
    return _ITEM.validate_python(item.model_dump())


def input_items(items: Iterable[ev.Item]) -> dict[str, InputItem]:
    """Those that a reference can mean, by their ids."""
    return {item.id: input_item(item) for item in items if item.type in ITEMS}


def new_since(messages: Sequence[Message]) -> int:
    """Where what the model has not answered yet begins."""
    for place in range(len(messages), 0, -1):
        if isinstance(messages[place - 1], Assistant | Thought | Called):
            return place
    return 0


class _Reader:
    def __init__(
        self,
        history: History,
        names: Mapping[tuple[str, str], str],
        find: Callable[[str], InputItem | None],
        *,
        leading: bool,
    ) -> None:
        self.history, self._names, self._find, self._leading = history, names, find, leading
        self._called_here: dict[str, Called] = {}
        """Calls of this input that somebody has to answer."""

    def close_calls(self) -> None:
        """Of calls that nobody answered it is said so: the model never sees one without a result."""
        history = self.history
        asked = {
            name: self._written(one.server, one.name, one.arguments).tool
            for name, one in history.asked.items()
        }
        missing: dict[int, list[Message]] = {}
        messages: list[Message] = []
        for name, tool in [*history.unanswered.items(), *asked.items()]:
            why = "nobody said that it may" if name in asked else "there is no result"
            returned = Returned(tool, f"Error: the call was not run: {why}")
            if name in self._called_here:
                missing[id(self._called_here[name])] = [returned]
            else:  # of a response before this input
                messages.append(returned)
        for message in history.messages:
            messages.append(message)
            messages += missing.get(id(message), [])
        history.messages = messages
        history.asked.clear()
        history.unanswered.clear()

    def _calls(self, name: str, call: Called) -> None:
        self._called_here[name] = call
        self.history.messages.append(call)

    def take(self, item: InputItem, param: str) -> None:
        history, add = self.history, self.history.messages.append
        if isinstance(item, InputMessage) and item.role in ("developer", "system"):
            text = _text(item.content, f"{param}.content")
            if self._leading:
                history.instructions.append(text)
            else:
                add(Developer(text))
            return
        self._leading = False
        match item:
            case InputMessage(role="user"):
                add(User(_text(item.content, f"{param}.content")))
            case InputMessage():
                if text := _text(item.content, f"{param}.content"):
                    add(_Unphased(text) if item.phase is None else Assistant(text, item.phase))
            case InputReasoning():
                if text := _text(item.content or [], f"{param}.content"):
                    add(Thought(text))
            case InputFunctionCall():
                name = f"{item.namespace}__{item.name}" if item.namespace else item.name
                history.calls[item.call_id] = history.unanswered[item.call_id] = name
                self._calls(item.call_id, Called(name, item.arguments))
            case InputCustomToolCall():
                name = f"{item.namespace}__{item.name}" if item.namespace else item.name
                history.calls[item.call_id] = history.unanswered[item.call_id] = name
                self._calls(item.call_id, Called(name, item.input, json=False))
            case InputFunctionCallOutput():
                add(
                    Returned(
                        self._called(item.call_id, param), _text(item.output, f"{param}.output")
                    )
                )
            case InputMcpCall() | InputCodeInterpreterCall():
                history.messages += self._ours(item)
            case InputApprovalRequest():
                asked = Approved(item.id, item.server_label, item.name, item.arguments)
                history.asked[item.id] = asked
                self._calls(item.id, self._written(item.server_label, item.name, item.arguments))
            case InputApprovalResponse():
                self._answered(item, param)
            case InputMcpListTools():
                history.listed.add(item.server_label)
            case InputCompaction():
                summary = unpacked(item.encrypted_content, param)
                add(Developer(told(summary)))
            case ItemReference():
                found = self._find(item.id)
                if found is None:
                    raise invalid(
                        param, f"Item with id '{item.id[:80]}' not found.", "item_not_found"
                    )
                self.take(found, param)
            case _:
                pass  # a web search: what it found stands in the message after it

    def _called(self, call_id: str, param: str) -> str:
        name = self.history.calls.get(call_id)
        if name is None:
            message = f"No tool call found for function call output with call_id {call_id[:80]}."
            raise ApiError(400, message, code="invalid_value", param=f"{param}.call_id")
        self.history.unanswered.pop(call_id, None)
        return name

    def _ours(self, item: InputMcpCall | InputCodeInterpreterCall) -> list[Message]:
        """A call that a server ran, and what it gave."""
        if isinstance(item, InputCodeInterpreterCall):
            outputs = item.outputs or []
            logs = "".join(str(one["logs"]) for one in outputs if "logs" in one)
            return [Called(PYTHON, item.code or "", json=False), Returned(PYTHON, logs)]
        result = item.output if item.error is None else f"Error: {_error(item.error)}"
        call = self._written(item.server_label, item.name, item.arguments)
        returned = Returned(call.tool, result or "")
        waited = [one for one in self.history.approved if one.request == item.approval_request_id]
        if not waited:
            return [call, returned]
        self.history.approved.remove(waited[0])  # it ran already; the call itself stands before
        return [returned]

    def _written(self, server: str, tool: str, arguments: str) -> Called:
        """The call of a server's tool as the model writes it."""
        name = self._names.get((server, tool)) or f"{server}__{tool}"
        if name == PYTHON and (code := _code(arguments)) is not None:
            return Called(name, code, json=False)
        return Called(name, arguments)

    def _answered(self, answer: InputApprovalResponse, param: str) -> None:
        asked = self.history.asked.pop(answer.approval_request_id, None)
        if asked is None:
            message = f"No approval request with id '{answer.approval_request_id[:80]}' waits."
            raise invalid(f"{param}.approval_request_id", message)
        if answer.approve:
            self.history.approved.append(asked)
            return
        why = f": {answer.reason}" if answer.reason else ""
        name = self._written(asked.server, asked.name, asked.arguments).tool
        self.history.messages.append(Returned(name, f"Error: the user refused the call{why}"))


class _Unphased(Assistant):
    """An assistant's message whose phase the client did not send back."""


def _with_phases(messages: Sequence[Message]) -> list[Message]:
    """A message that a call follows was said before it; else it was the answer."""
    result: list[Message] = []
    calls_follow = False
    for message in reversed(messages):
        match message:
            case _Unphased(text):
                message = Assistant(text, "commentary" if calls_follow else "final_answer")
            case User():
                calls_follow = False
            case Called():
                calls_follow = True
        if isinstance(message, Assistant) and message.phase == "final_answer":
            calls_follow = False
        result.append(message)
    return result[::-1]


def _without_old_thoughts(messages: Sequence[Message]) -> list[Message]:
    """Of finished turns the reasoning is left out, as the model was trained."""
    last = max(
        (
            place
            for place, message in enumerate(messages)
            if isinstance(message, User)
            or (isinstance(message, Assistant) and message.phase == "final_answer")
        ),
        default=-1,
    )
    return [m for place, m in enumerate(messages) if place > last or not isinstance(m, Thought)]


def _text(content: str | Sequence[Part], param: str) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(_part(part, f"{param}[{place}]") for place, part in enumerate(content))


def _part(part: Part, param: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type in NOT_SEEN:
        return NOT_SEEN[part.type]
    if part.type not in TEXTS:
        known = ", ".join([*TEXTS, "refusal", *NOT_SEEN])
        raise invalid(f"{param}.type", f"'{param}.type' is none of {known}.")
    if part.text is None:
        message = f"Missing required parameter: '{param}.text'."
        raise invalid(f"{param}.text", message, "missing_required_parameter")
    return part.text


def _error(error: object) -> str:
    match error:
        case {"message": str(message)}:
            return message
        case {"content": [*blocks]}:
            return "\n".join(
                str(b.get("text", b)) if isinstance(b, dict) else str(b) for b in blocks
            )
        case str():
            return error
        case _:
            return json.dumps(error, ensure_ascii=False)


def _code(arguments: str) -> str | None:
    try:
        value = from_json(arguments)
    except ValueError:
        return None
    return value["code"] if isinstance(value, dict) and isinstance(value.get("code"), str) else None
