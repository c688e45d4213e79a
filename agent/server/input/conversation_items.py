"""The items of a conversation: as the API lists them, and as messages that the model reads."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, takewhile
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent import events as ev
from agent.conversation.conversation import Conversation
from agent.conversation.messages import Message, ReasoningMessage
from agent.formats.protocol import Format
from agent.server.http.clients import current_client
from agent.server.http.errors import ApiError
from agent.server.input.items import (
    InputHistory,
    ItemReader,
    abandoned_calls,
    infer_phases,
    item_role,
    newest_prompt,
    read_item,
)
from agent.server.input.schemas import InputItem
from agent.server.input.stored_responses import served_json
from agent.store.api_conversations import ItemTurn, item_suffix
from agent.store.event_codec import encode_line, pack, split_line, unpack_lines
from agent.store.records import prompt_of
from agent.util.ids import new_id
from tools.builtin.browser.extraction import DocumentText
from tools.types import Tool

_OUTPUT_ITEM: TypeAdapter[ev.Item] = TypeAdapter(ev.Item)
STEERED = '"type":"agent.steered"'
"""Beginning of the recorded event of a person's message in the middle of a turn."""


# --- as the API lists them ---


def turn_items(turn: ItemTurn) -> Iterator[dict[str, Any]]:
    """The items of a turn in order; a person's texts are users' messages."""
    yield from turn_inputs(turn)
    yield from _turn_output(turn)


def _turn_output(turn: ItemTurn) -> Iterator[dict[str, Any]]:
    output, steered = turn.response["output"], list(enumerate(turn.steered))
    for at, item in enumerate([*output, None]):
        while steered and (steered[0][1][0] <= at or item is None):
            number, (_, text) = steered.pop(0)
            if text:
                yield _user_message(f"{item_suffix(turn.id)}s{number}", text)
        if item is not None:
            yield item


def turn_inputs(turn: ItemTurn) -> list[dict[str, Any]]:
    if turn.served is None:
        return [_user_message(item_suffix(turn.id), turn.prompt)] if turn.prompt else []
    inputs: list[dict[str, Any]] = turn.served["inputs"]
    return [{"status": "completed", **item} for item in inputs if item["type"] != "item_reference"]


def _user_message(tail: str, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    message = {"id": f"msg_{tail}", "type": "message", "role": "user", "content": content}
    return {**message, "status": "completed"}


def with_output_of(items: Sequence[Mapping[str, Any]], item_id: str) -> list[str]:
    """The ids of an item and, of a call of a client's function, of its output."""
    at = next(at for at, item in enumerate(items) if item["id"] == item_id)
    if (call_id := items[at].get("call_id")) is None or items[at]["type"].endswith("_output"):
        return [item_id]
    for item in items[at + 1 :]:
        if item.get("call_id") == call_id:  # another call may have the same
            is_output = item["type"].endswith("_output")
            return [item_id, item["id"]] if is_output else [item_id]
    return [item_id]


def without_item(turn: ItemTurn, item_id: str) -> bool:
    """Remove an item from its turn; False if no item is left."""
    steered = [f"msg_{item_suffix(turn.id)}s{number}" for number in range(len(turn.steered))]
    lines = unpack_lines(turn.events or b"") if turn.served is None else []
    if item_id in steered:
        # It stays without its text: the ids of the later ones count it.
        number = steered.index(item_id)
        at = [n for n, line in enumerate(lines) if STEERED in split_line(line)[1]][number]
        lines[at] = encode_line(split_line(lines[at])[0], ev.AgentSteered(text=""))
        turn.steered = tuple((n, "" if k == number else t) for k, (n, t) in enumerate(turn.steered))
    elif turn.served is None and item_id == f"msg_{item_suffix(turn.id)}":
        turn.prompt = ""
    else:
        lines = [line for line in lines if f'"{item_id}"' not in line]
    turn.events = pack(lines) if lines else None
    output = turn.response["output"]
    turn.response["output"] = [item for item in output if item["id"] != item_id]
    if turn.served is not None:
        inputs = [item for item in turn.served["inputs"] if item["id"] != item_id]
        turn.served["inputs"], turn.prompt = inputs, prompt_of(inputs)
    return any(True for _ in turn_items(turn))


# --- as messages ---


def read_turns(
    turns: Sequence[ItemTurn],
    tools: Sequence[Tool],
    documents: Mapping[str, DocumentText] | None = None,
) -> tuple[InputHistory, list[list[Message]]]:
    """Return the history of the items, for a request that continues them, and each turn's messages.
    ``tools``: those that run here. ``documents``: the attached ones. Unreadable items are left out."""
    history, messages = InputHistory(), list[list[Message]]()
    abandoned: set[str] = set()
    for at, turn in enumerate(turns):
        history.messages = []
        if turn.created and not (at and turns[at - 1].created):
            created = takewhile(lambda each: each.created, turns[at:])
            items = chain.from_iterable(map(turn_items, created))
            abandoned = abandoned_calls(items, history.pending_calls)
        ended = abandoned if turn.created else ()
        reader = ItemReader(history, tools, documents=documents or {}, abandoned=ended)
        _read(reader, turn_inputs(turn))
        if not turn.created:
            reader.answer_open_calls()
        _read(reader, _turn_output(turn))
        if turn.response["status"] != "completed":
            history.pending_calls.clear()
        history.approved.clear()
        messages.append(history.messages)
    history.messages = []
    return history, _as_read(messages)


def _read(reader: ItemReader, items: Iterable[dict[str, Any]]) -> None:
    for item in items:
        if (parsed := read_item(item)) is not None:
            with suppress(ApiError):
                reader.add(parsed, item["id"])


def _as_read(groups: Sequence[list[Message]]) -> list[list[Message]]:
    """Groups of messages as the model reads them: with phases, without reasoning."""
    phased = iter(infer_phases([*chain.from_iterable(groups)]))
    read = ([*islice(phased, len(group))] for group in groups)
    return [[each for each in group if not isinstance(each, ReasoningMessage)] for group in read]


def new_messages(
    items: Sequence[InputItem],
    history: InputHistory,
    tools: Sequence[Tool],
    find: Callable[[str], InputItem | None],
    documents: Mapping[str, DocumentText],
    *,
    refuse_unseen: bool,
    abandoned: Collection[str],
) -> list[list[Message]]:
    """The messages of each item that a client adds; ``history`` learns of their calls. ``abandoned``:
    call_ids of `abandoned_calls`. ``refuse_unseen``: refuse content that the model cannot read. Raises
    ApiError, with the item's path."""
    groups, newest = [], newest_prompt([*map(item_role, items)])
    for index, item in enumerate(items):
        history.messages = []
        reader = ItemReader(
            history,
            tools,
            find=find,
            refuse_unseen=refuse_unseen,
            documents=documents,
            abandoned=abandoned,
        )
        reader.add(item, f"items[{index}]", is_newest=index >= newest)
        groups.append(history.messages)
    return _as_read(groups)


def add_items(
    conversation: Conversation,
    format: Format,
    items: Sequence[dict[str, Any]],
    messages: Sequence[Sequence[Message]],
    model: str,
) -> list[ItemTurn]:
    """Add the messages of new items; returns the turns that hold the items. A turn ends where one of
    the user's items follows one of the model's."""
    turns: list[ItemTurn] = []
    for item, group in zip(items, messages, strict=True):
        written = _output_item(item)
        if not turns or (written is None and turns[-1].response["output"]):
            turns.append(_new_turn(conversation, model))
        turn = turns[-1]
        assert turn.served is not None
        if written is None:
            turn.served["inputs"].append(item)
            turn.prompt = prompt_of(turn.served["inputs"])
        else:
            turn.response["output"].append(written)
        for message in group:
            conversation.add(format, message)
        turn.upto = len(conversation.entries)
    return turns


def _new_turn(conversation: Conversation, model: str) -> ItemTurn:
    now = int(time.time())
    response = ev.Response(
        id=new_id("resp"), created_at=now, completed_at=now, status="completed", model=model
    )
    start = len(conversation.entries)
    turn = ItemTurn(response.id, conversation.id, "", response.model_dump(mode="json"), start)
    turn.served = {**served_json(InputHistory(), (), 0, current_client().name), "created": True}
    return turn


def _output_item(item: dict[str, Any]) -> dict[str, Any] | None:
    if item["type"] == "message" and item.get("role") != "assistant":
        return None
    known = {name: value for name, value in item.items() if value is not None}
    with suppress(ValidationError):
        written = _OUTPUT_ITEM.validate_python({"status": "completed", **known})
        return written.model_dump(mode="json")
    return None
