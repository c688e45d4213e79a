"""A turn written down as it runs: what is left of it when its process is killed, and how it went.

A note has the events since the note before, and what changed in the conversation's messages as they
would be if the turn ended now. Notes are appended to the store, a few each second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry, Span
from agent.formats.tool_arguments import settle
from tools.results import stopped

if TYPE_CHECKING:
    from agent.store.conversations import Store
    from agent.turn.loop import Turn

log = logging.getLogger(__name__)
PACE = 0.05
"""Seconds between two notes: what a killed process loses of its turn."""
LOST = "The process ended during this turn."

Timed = tuple[float, ev.Event]
"""Seconds since the turn began, and what came then."""


class Journal:
    """Of one turn that has started; ``finish`` it."""

    def __init__(self, store: Store, turn: Turn) -> None:
        self._store, self._turn = store, turn
        self._began = time.monotonic()
        self._base = turn.conversation.saved
        self._written: list[Entry] = []
        self._lines: list[str] = []
        self._seen = 0
        self._works = True
        self._task = asyncio.create_task(self._follow())
        turn.log.first = self._came

    def finish(self, response: ev.Response) -> None:
        """The turn has ended. Raises sqlite3.Error."""
        self._task.cancel()
        self._take()
        packed = zlib.compress("\n".join(self._lines).encode())
        self._store.finish(self._turn.conversation, response, packed)

    def _came(self, event: ev.Event) -> None:
        """What is seen as finished is kept."""
        if isinstance(event, ev.OutputItemDone):
            self._note(self._take())

    async def _follow(self) -> None:
        async for _ in self._turn.log.follow():
            self._note(self._take())
            await asyncio.sleep(PACE)

    def _take(self) -> list[str]:
        """What came since the last time."""
        passed, events = time.monotonic() - self._began, self._turn.log.events
        lines = [f"{passed:.2f} {e.model_dump_json()}" for e in _merged(events[self._seen :])]
        self._seen = len(events)
        self._lines += lines
        return lines

    def _note(self, lines: list[str]) -> None:
        if not self._works or self._turn.log.closed:
            return  # what has ended is about to be kept whole
        note = json.dumps({"base": self._base, "events": lines, **self._messages()})
        try:
            self._store.note(self._turn.response.id, note)
        except sqlite3.Error:
            log.warning("the journal cannot be written", exc_info=True)
            self._works = False

    def packed(self) -> bytes:
        """All events, to be replayed."""
        return zlib.compress("\n".join(self._lines).encode())

    def _messages(self) -> dict[str, Any]:
        """What is different from the last note's messages."""
        now = as_if_ended(self._turn)[self._base :]
        changed = []
        for at, entry in enumerate(now):
            before = self._written[at] if at < len(self._written) else None
            if entry is not before and entry != before:
                kept = _alike(before.ids, entry.ids) if before else 0
                changed.append([at, kept, entry.ids[kept:], entry.role, entry.recipient])
        self._written = now
        return {"entries": changed, "count": len(now), "of": self._turn.conversation.vocabulary}


def as_if_ended(turn: Turn) -> list[Entry]:
    """The conversation's messages if nothing more came: reasoning is dropped then."""
    talk, pieces = turn.conversation, turn.writing
    form = turn.runtime.format if turn.prepared else None
    ending = Conversation("")
    if form is not None and pieces is not None:
        spans = list(pieces.spans)
        if (opened := pieces.open) is not None:
            start = spans[-1].end if spans else 0
            spans.append(Span(start, len(pieces.ids), opened, False, ""))
        ending.add_generated(form, pieces.ids, spans)
    elif form is not None:
        for recipient, text in turn.calls.untold("the program ended"):
            ending.add_result(form, recipient, text)
    return [entry for entry in (*talk.entries, *ending.entries) if not entry.reasoning]


def _merged(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Deltas of one item that follow each other are one."""
    held: ev.ReasoningTextDelta | ev.OutputTextDelta | ev.McpCallArgumentsDelta | None = None
    for event in events:
        match event:
            case ev.ReasoningTextDelta() | ev.OutputTextDelta() | ev.McpCallArgumentsDelta():
                if held is not None and held.item_id == event.item_id:
                    held = held.model_copy(update={"delta": held.delta + event.delta})
                    continue
                before, held = held, event
            case _:
                before, held = held, None
        if before is not None:
            yield before
        if held is None:
            yield event
    if held is not None:
        yield held


def _alike(before: list[int], now: list[int]) -> int:
    """So many ids are the same; what is new comes before the last one or two."""
    for kept in range(len(before), max(len(before) - 4, 0), -1):
        if now[:kept] == before[:kept]:
            return kept
    return 0


# --- reading ---


@cache
def _types() -> dict[str, type[ev.Model]]:
    classes = [one for one in vars(ev).values() if isinstance(one, type)]
    models = [one for one in classes if issubclass(one, ev.Model) and "type" in one.model_fields]
    return {str(one.model_fields["type"].default): one for one in models}


def unpacked(packed: bytes) -> list[Timed]:
    """The events of a turn, as they came."""
    return [_read(line) for line in zlib.decompress(packed).decode().split("\n") if line]


def steered(packed: bytes | None) -> tuple[tuple[int, str], ...]:
    """What the user said in the middle of a turn: after how many items, and the text."""
    items, found = 0, []
    for line in zlib.decompress(packed).decode().split("\n") if packed else ():
        _, _, event = line.partition(" ")
        if event.startswith('{"type":"response.output_item.added"'):
            items += 1
        elif event.startswith('{"type":"agent.steered"'):
            found.append((items, str(json.loads(event)["text"])))
    return tuple(found)


def _read(line: str) -> Timed:
    passed, text = line.split(" ", 1)
    value = json.loads(text)
    event: Any = _types()[value["type"]].model_validate(value)
    return float(passed), event


# --- after a process that was killed ---


def recover(db: sqlite3.Connection) -> None:
    """Turns that were lost (their status says so) get what their journals have of them."""
    if db.execute(_LEFT).fetchone() is None:
        return
    with db:
        db.execute("begin immediate")
        for (name,) in db.execute(_LEFT).fetchall():
            rows = db.execute("select note from journal where turn = ? order by number", (name,))
            notes = [json.loads(text) for (text,) in rows]
            _recover_turn(db, name, [line for note in notes for line in note["events"]])
            _recover_entries(db, name, notes)
            db.execute("delete from journal where turn = ?", (name,))


_LEFT = "select distinct turn from journal join turns on id = turn where status != 'in_progress'"


def _recover_turn(db: sqlite3.Connection, name: str, lines: list[str]) -> None:
    (text,) = db.execute("select response from turns where id = ?", (name,)).fetchone()
    items = _items([_read(line)[1] for line in lines])
    response = ev.Response.model_validate_json(text).model_copy(update={"output": items})
    packed = zlib.compress("\n".join(lines).encode())
    db.execute(
        "update turns set response = ?, events = ? where id = ?",
        (response.model_dump_json(), packed, name),
    )


def _recover_entries(db: sqlite3.Connection, name: str, notes: Sequence[dict[str, Any]]) -> None:
    """Unless the conversation went on elsewhere meanwhile."""
    from agent.store.schema import blob

    talk, start = db.execute(
        "select conversation, start from turns where id = ?", (name,)
    ).fetchone()
    entries: list[tuple[list[int], str | None, str | None]] = []
    for note in notes:
        for at, kept, ids, role, recipient in note["entries"]:
            whole = (entries[at][0][:kept] if at < len(entries) else []) + ids
            entries[at : at + 1] = [(whole, role, recipient)]
        del entries[note["count"] :]
    base, end = notes[0]["base"], notes[-1]
    later = db.execute(
        "select count(*) from entries where conversation = ? and position >= ?", (talk, start)
    ).fetchone()[0]
    if later or not entries:
        return
    db.execute("delete from entries where conversation = ? and position >= ?", (talk, base))
    db.executemany(
        "insert into entries values (?,?,?,?,?,?)",
        [
            (talk, at, blob(ids), False, role, recipient)
            for at, (ids, role, recipient) in enumerate(entries, base)
        ],
    )
    db.execute(
        "update conversations set vocabulary = ?, revision = revision + 1 where id = ?",
        (end["of"], talk),
    )


def _items(events: Sequence[ev.Event]) -> list[ev.Item]:
    """Those that were done, and those that were being written, as far as they had come."""
    items: dict[str, Any] = {}
    texts: dict[str, str] = {}
    printed: dict[str, str] = {}
    for event in events:
        match event:
            case ev.OutputItemAdded(item=item) | ev.OutputItemDone(item=item):
                items[item.id] = item
            case ev.McpCallArgumentsDone(item_id=key, arguments=text):
                texts[key] = text
            case (
                ev.ReasoningTextDelta(item_id=key, delta=delta)
                | ev.OutputTextDelta(item_id=key, delta=delta)
                | ev.McpCallArgumentsDelta(item_id=key, delta=delta)
            ):
                texts[key] = texts.get(key, "") + delta
            case ev.AgentToolOutputDelta(item_id=key, delta=delta):
                printed[key] = printed.get(key, "") + delta
            case _:
                pass
    done = {event.item.id for event in events if isinstance(event, ev.OutputItemDone)}
    return [
        item if key in done else _cut(item, texts.get(key, ""), printed.get(key, ""))
        for key, item in items.items()
    ]


def _cut(item: Any, text: str, printed: str) -> Any:
    """``text``: what was written of it. ``printed``: what its tool had said."""
    match item:
        case ev.ReasoningItem():
            parts: Any = [ev.ReasoningText(text=text)]
            return item.model_copy(update={"content": parts, "status": "incomplete"})
        case ev.MessageItem():
            parts = [ev.OutputText(text=text)]
            return item.model_copy(update={"content": parts, "status": "incomplete"})
        case ev.McpCallItem():
            error = ev.McpProtocolError(code=-32603, message=stopped(printed, LOST))
            arguments = settle(text, False).json
            return item.model_copy(
                update={"arguments": arguments, "error": error, "status": "failed"}
            )
        case _:
            return item
