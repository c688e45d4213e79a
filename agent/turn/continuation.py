"""The given beginning of a turn, which the model continues as if it had just written it.

A person edits something that the model wrote (its reasoning, a message, a call's arguments), and a new
turn continues from there, in a branch. The new turn includes the part before it: its messages, as the
ids that the model read and wrote, and its items, which are emitted again but not run again::

    earlier turn   user | reasoning | call | result | reasoning              | answer
    new turn       user | reasoning | call | result | reasoning up to the change, what was typed → …
                          '-- entries, events ----'   '-- ids ------------------------------'
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from json import JSONDecoder
from typing import Any

from pydantic_core import from_json

from agent import events as ev
from agent.conversation.conversation import Entry
from agent.formats.protocol import EditableFormat, Format, decode
from agent.turn.context_usage import written_kind
from agent.util.json_schema import find_violation
from tools.types import Tool


@dataclass(frozen=True, slots=True)
class Continuation:
    """The given beginning of a turn."""

    ids: Sequence[int] = ()
    """The first ids of its first generation, after `Format.open_assistant`."""
    entries: Sequence[Entry] = ()
    """Messages of the turn before that."""
    events: Sequence[ev.Event] = ()
    """The events of these messages' items."""


Begin = Callable[[Format], Continuation]
"""Makes a continuation once the model's format is known. Raises ValueError."""


def begin_with(reasoning: str | None, answer: str | None) -> Begin:
    """Begin with this reasoning and this answer; the model continues the last of them."""
    return lambda form: Continuation(form.begin_message(reasoning, answer))


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    """Something that the model wrote in a turn, and that can be edited."""

    index: int
    """Index of its entry among the turn's."""
    kind: ev.ContextPartKind
    tool: str
    """The called tool, as the model wrote it; empty for the others."""
    header: Sequence[int]
    body: Sequence[int]
    text: str


def written_messages(form: Format, entries: Sequence[Entry]) -> list[WrittenMessage]:
    """The model's messages in a turn, in order; none if its format allows no editing."""
    if not isinstance(form, EditableFormat):
        return []
    messages = []
    for index, entry in enumerate(entries):
        if entry.role == "assistant":
            kind, tool = written_kind(form, entry)
            header, body = form.split_message(entry.ids)
            message = WrittenMessage(index, kind, tool, header, body, decode(form, body))
            messages.append(message)
    return messages


def with_reasoning(form: Format, entries: Sequence[Entry], items: Sequence[ev.Item]) -> list[Entry]:
    """A turn's entries with its reasoning, tokenised again where only its items have it."""
    if any(entry.reasoning for entry in entries):
        return list(entries)
    complete: list[Entry] = []
    written = [item for item in items if not isinstance(item, ev.McpListToolsItem)]

    def add_reasoning() -> None:
        while written and isinstance(item := written[0], ev.ReasoningItem):
            text = "".join(part.text for part in item.content)
            del written[:1]
            complete.append(Entry(form.reasoning_message(text), True, item.id, "assistant"))

    for entry in entries:
        if entry.role == "assistant":
            add_reasoning()
            del written[:1]
        complete.append(entry)
    add_reasoning()
    return complete


def edited_ids(form: Format, body: Sequence[int], text: str) -> list[int]:
    """The ids of an edited text: those of ``body`` up to the change, then the rest tokenised."""
    raw, at = text.encode("utf-8", "replace"), 0
    ends = [0]
    for token in body:
        piece = form.token_bytes(token)
        if raw[at : at + len(piece)] != piece:
            break
        at += len(piece)
        ends.append(at)
    while ends[-1] < len(raw) and raw[ends[-1]] & 0xC0 == 0x80:  # within a character
        ends.pop()
    rest = raw[ends[-1] :].decode()
    return [*body[: len(ends) - 1], *(form.encode_text(rest) if rest else ())]


def continue_from(
    form: Format,
    entries: Sequence[Entry],
    events: Sequence[ev.Event],
    message: WrittenMessage,
    text: str,
) -> Continuation:
    """Go on from a message of the turn with these ``entries`` and ``events``, now ``text``."""
    before = entries[: message.index]
    # The turn's first entries are its prompt.
    first = next((n for n, entry in enumerate(entries) if entry.role == "assistant"), 0)
    written = sum(entry.role == "assistant" for entry in before)
    return Continuation(
        [*message.header, *edited_ids(form, message.body, text)],
        before[first:],
        items_before(events, written),
    )


def items_before(events: Sequence[ev.Event], written: int) -> list[ev.Event]:
    """The events of the items before the one that the model wrote after ``written`` others."""
    indexes: set[int] = set()
    ids: set[str] = set()
    kept: list[ev.Event] = []
    has_ended = False
    for event in events:
        if isinstance(event, ev.OutputItemAdded):
            is_written = not isinstance(event.item, ev.McpListToolsItem)
            has_ended = has_ended or (is_written and not written)
            if not has_ended:
                written -= is_written
                indexes.add(event.output_index)
                ids.add(event.item.id)
        if isinstance(event, ev.OfficialEvent):
            if getattr(event, "output_index", None) in indexes:
                kept.append(event)
        elif isinstance(event, ev.AgentSteered):
            if not has_ended:
                kept.append(event)
        elif getattr(event, "item_id", None) in ids:
            kept.append(event)
    return kept


PARTIAL_KEYWORDS = {
    "type", "properties", "patternProperties", "additionalProperties", "$defs", "definitions", "$id",
}  # fmt: skip
"""Keywords of an object's schema that more members cannot satisfy where the first do not."""

ArgumentCheck = Callable[[Tool, dict[str, Any]], str | None]
"""A further check of a call's arguments, as `tools.mcp.host.Host.argument_problem`."""


def arguments_problem(text: str, tool: Tool | None, check: ArgumentCheck | None) -> str | None:
    """Why a call with these arguments (JSON, perhaps unfinished) could not run; None: unknown."""
    try:
        value = from_json(text or "{}", allow_partial=True)
    except ValueError as error:
        return f"they are not JSON ({error})"
    try:
        value = from_json(text)
    except ValueError as error:
        if _has_more_after_end(text):
            return f"there is text after their end ({error})"
        if tool is not None:  # the model continues them
            tool = _partial_tool(tool, value)
    if tool is None:
        return None
    if (problem := find_violation(tool.parameters, value)) is not None:
        return problem
    return check(tool, value) if check is not None and isinstance(value, dict) else None


def _has_more_after_end(text: str) -> bool:
    """Whether something other than whitespace comes after a whole value of JSON."""
    text = text.strip(" \t\r\n")  # what JSON takes for whitespace
    try:
        _, end = JSONDecoder().raw_decode(text)
    except ValueError:
        return False
    return end < len(text)


def _partial_tool(tool: Tool, value: object) -> Tool:
    """The tool's schema for unfinished arguments, whose last member is incomplete."""
    schema = {key: part for key, part in tool.parameters.items() if key in PARTIAL_KEYWORDS}
    if isinstance(value, dict) and value:
        name = list(value)[-1]
        properties = schema.get("properties")
        if isinstance(properties, dict) and isinstance(last := properties.get(name), dict):
            # Strings, true, false and null are there only once they are complete.
            if not isinstance(value[name], str | bool | None):
                last = {key: part for key, part in last.items() if key == "type"}
            schema["properties"] = {**properties, name: last}
    return replace(tool, parameters=schema)
