"""Events of a turn as the store keeps them: lines of ``SECONDS JSON``, seconds since the turn began
with two decimals, compressed with zlib. Lines of older streams have no seconds (0)."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from agent import events as ev
from agent.store.records import ItemTimes, TurnRecord

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TimedEvent = tuple[float, ev.Event]
"""Seconds since the turn began, and the event."""


def encode_line(seconds: float, event: ev.Event) -> str:
    return f"{seconds:.2f} {event.model_dump_json()}"


def decode_line(line: str) -> TimedEvent:
    """Read a line of ``encode_line``. Raises pydantic.ValidationError if it is not an event."""
    seconds, text = split_line(line)
    return seconds, _events().validate_json(text)


def split_line(line: str) -> tuple[float, str]:
    """The seconds of a line and the event's JSON, unread."""
    if line.startswith("{"):
        return 0.0, line
    seconds, _, text = line.partition(" ")
    return float(seconds), text


def pack(lines: Iterable[str]) -> bytes:
    return zlib.compress("\n".join(lines).encode())


def pack_official(events: Iterable[ev.Event]) -> bytes:
    """The official events of a stream, each as it was."""
    return pack(encode_line(0.0, event) for event in events if isinstance(event, ev.OfficialEvent))


def unpack_lines(blob: bytes) -> list[str]:
    return [line for line in zlib.decompress(blob).decode().split("\n") if line] if blob else []


def unpack_events(blob: bytes) -> list[TimedEvent]:
    return [decode_line(line) for line in unpack_lines(blob)]


_OUTPUT_INDEX = re.compile(r'"output_index":([0-9]+)')


def read_record(blob: bytes | None) -> TurnRecord:
    """Data of a turn's events that its response lacks. Parses few, as lists read every turn."""
    times: dict[int, ItemTimes] = {}
    index_of: dict[str, int] = {}
    steered, stats, changes = [], {}, []
    for line in unpack_lines(blob or b""):
        seconds, text = split_line(line)
        head = text[:200]
        kind = head.split('"')[3:4]
        index = int(match[1]) if (match := _OUTPUT_INDEX.search(head)) else -1
        match kind:
            case ["response.output_item.added"]:
                times[index] = ItemTimes(seconds)
                index_of[json.loads(text)["item"]["id"]] = index
            case ["response.output_item.done"] if index in times:
                times[index].ended = seconds
            case [
                "response.mcp_call_arguments.done" | "response.code_interpreter_call_code.done"
            ] if index in times:
                times[index].tool_started = seconds
            case ["agent.approval.resolved"]:
                if (index := index_of.get(json.loads(text)["item_id"], -1)) in times:
                    times[index].tool_started = seconds
            case ["agent.reasoning"]:
                counted = json.loads(text)
                if (index := index_of.get(counted["item_id"], -1)) in times:
                    times[index].tokens = counted["tokens"]
            case ["agent.steered"]:
                steered.append((len(times), str(json.loads(text)["text"])))
            case ["agent.file_changes"]:
                changes.append(ev.AgentFileChanges.model_validate_json(text))
            case ["agent.stats"]:
                stats = json.loads(text)
    ordered = tuple(times[index] for index in sorted(times))
    count, speed = int(stats.get("output_tokens", 0)), float(stats.get("tokens_per_second", 0))
    return TurnRecord(tuple(steered), ordered, count, speed, tuple(changes))


def merge_deltas(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Join deltas of one item, and token ids with their probabilities; leave out other ids."""
    tokens: ev.AgentTokens | None = None
    last: ev.ReasoningTextDelta | ev.OutputTextDelta | ev.McpCallArgumentsDelta | None = None
    for event in events:
        match event:
            case ev.ReasoningTextDelta() | ev.OutputTextDelta() | ev.McpCallArgumentsDelta():
                if last is not None and last.item_id == event.item_id:
                    last = last.model_copy(update={"delta": last.delta + event.delta})
                    continue
                before, last = last, event
            case ev.AgentTokens():
                if event.logprobs is not None:
                    if tokens is not None and event.entry is not None:  # another generation's
                        yield tokens
                        tokens = None
                    tokens = event if tokens is None else _joined(tokens, event)
                continue
            case ev.AgentPrompt():
                continue
            case _:
                before, last = last, None
                if tokens is not None:
                    yield tokens
                    tokens = None
        if before is not None:
            yield before
        if last is None:
            yield event
    if last is not None:
        yield last
    if tokens is not None:
        yield tokens


def _joined(first: ev.AgentTokens, second: ev.AgentTokens) -> ev.AgentTokens:
    logprobs = [*(first.logprobs or ()), *(second.logprobs or ())]
    return first.model_copy(update={"ids": first.ids + second.ids, "logprobs": logprobs})


@cache
def _events() -> TypeAdapter[ev.Event]:
    from pydantic import TypeAdapter  # here: building it takes 60 ms, and few commands read events

    return TypeAdapter(ev.Event)
