"""Events of a turn as the store keeps them: one line each, ``SECONDS JSON``, compressed with zlib.

``SECONDS`` since the turn began, two decimals. Streams of background responses that earlier versions
stored have the JSON alone; their seconds are read as 0.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from agent import events as ev

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TimedEvent = tuple[float, ev.Event]
"""Seconds since the turn began, and the event."""


def encode_line(seconds: float, event: ev.Event) -> str:
    """One line, without its line break."""
    return f"{seconds:.2f} {event.model_dump_json()}"


def decode_line(line: str) -> TimedEvent:
    """Read a line of ``encode_line``. Raises pydantic.ValidationError for what is no event."""
    seconds, text = split_line(line)
    return seconds, _events().validate_json(text)


def split_line(line: str) -> tuple[float, str]:
    """The seconds of a line and the event's JSON, unread."""
    if line.startswith("{"):
        return 0.0, line
    seconds, _, text = line.partition(" ")
    return float(seconds), text


def pack(lines: Iterable[str]) -> bytes:
    """Lines as one compressed blob."""
    return zlib.compress("\n".join(lines).encode())


def pack_official(events: Iterable[ev.Event]) -> bytes:
    """The official events of a stream, each as it was."""
    return pack(encode_line(0.0, event) for event in events if isinstance(event, ev.OfficialEvent))


def unpack_lines(blob: bytes) -> list[str]:
    """The lines of a blob; none of an empty one."""
    return [line for line in zlib.decompress(blob).decode().split("\n") if line] if blob else []


def unpack_events(blob: bytes) -> list[TimedEvent]:
    """The events of a blob, with their times."""
    return [decode_line(line) for line in unpack_lines(blob)]


def steering_in(blob: bytes | None) -> tuple[tuple[int, str], ...]:
    """What the user wrote in the middle of a turn: after how many items, and the text.

    Reads no other event: a list of conversations asks this of every turn.
    """
    items, texts = 0, []
    for line in unpack_lines(blob or b""):
        _, text = split_line(line)
        if text.startswith('{"type":"response.output_item.added"'):
            items += 1
        elif text.startswith('{"type":"agent.steered"'):
            texts.append((items, str(json.loads(text)["text"])))
    return tuple(texts)


def merge_deltas(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Join deltas of one item that follow each other; leave out the token ids, which entries hold."""
    last: ev.ReasoningTextDelta | ev.OutputTextDelta | ev.McpCallArgumentsDelta | None = None
    for event in events:
        match event:
            case ev.ReasoningTextDelta() | ev.OutputTextDelta() | ev.McpCallArgumentsDelta():
                if last is not None and last.item_id == event.item_id:
                    last = last.model_copy(update={"delta": last.delta + event.delta})
                    continue
                before, last = last, event
            case ev.AgentPrompt() | ev.AgentTokens():
                continue
            case _:
                before, last = last, None
        if before is not None:
            yield before
        if last is None:
            yield event
    if last is not None:
        yield last


@cache
def _events() -> TypeAdapter[ev.Event]:
    from pydantic import TypeAdapter  # here: building it takes 60 ms, and few commands read events

    return TypeAdapter(ev.Event)
