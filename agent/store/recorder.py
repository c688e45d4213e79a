"""Turns written down as they run: what is left of one when its process is killed, and how it went.

A recorder subscribes to the log of each turn that it is given; whoever started the turn only reads its
events. The turn's row is written when the turn is handed over. Notes go to the store's journal: at once
when an item is done, so that what was seen as finished survives; and for turns of this program's own
interfaces every ``NOTE_SECONDS`` while text is written.
A note has the events since the note before and, as a difference, the conversation's entries as they
would be if the turn ended now (`RunningTurn.pending_entries`). When the terminal event comes, the row,
the events and the conversation are written before any reader sees it. A turn of a person that failed
before anything was generated (its model could not be loaded) leaves nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from agent import events as ev
from agent.conversation.conversation import Entry
from agent.store.conversations import Store
from agent.store.event_codec import encode_line, merge_deltas, pack, pack_official
from agent.turn.context import RunningTurn
from agent.util.prefix import common_prefix_length

log = logging.getLogger(__name__)

NOTE_SECONDS = 0.05
"""Seconds between two notes: what a killed process loses of a turn at most."""

Keep = Literal["all", "official", "none"]
"""Which events stay in the store: all with deltas joined; the official ones, each; none."""
MakeServedRecord = Callable[[ev.Response], dict[str, Any]]
"""What the endpoint wants stored with a response, from the response as it is."""


class TurnRecorder:
    """Writes turns to one store."""

    def __init__(self, store: Store, on_failure: Callable[[sqlite3.Error], None]) -> None:
        """``on_failure``: called when a turn could not be written; the turn itself goes on."""
        self._store, self._on_failure = store, on_failure
        self._recordings: dict[str, _Recording] = {}

    def record(
        self,
        turn: RunningTurn,
        prompt: str,
        *,
        start: int | None = None,
        served: MakeServedRecord | None = None,
        keep: Keep = "all",
    ) -> None:
        """Write a turn that is about to start, or has started, then everything that comes of it.

        ``prompt``: what a list shows of the turn. ``start``: the conversation's entry that it begins
        with; None: the next one. ``served``: for a response of the endpoint. Raises
        ConversationChangedError where it cannot extend its client's conversation any more.
        """
        begin = partial(
            self._store.begin,
            turn.conversation,
            prompt,
            turn.response,
            start=len(turn.conversation.entries) if start is None else start,
            served=None if served is None else served(turn.response),
        )
        waits = self._store.is_locked()
        try:
            if not waits:
                begin()
        except sqlite3.Error as error:
            self._on_failure(error)
            return
        recording = _Recording(
            self._store, turn, self._ended, served, keep, begin if waits else None
        )
        if not recording.ended:
            self._recordings[turn.response.id] = recording

    def save_after(self, turn: RunningTurn) -> None:
        """Write the conversation once a turn has ended that is no exchange, such as a compaction."""

        def on_event(event: ev.Event) -> None:
            if isinstance(event, ev.Terminal):
                try:
                    self._store.finish(turn.conversation, event.response)
                except sqlite3.Error as error:
                    self._on_failure(error)

        turn.log.before_end(self._store.writable)
        turn.log.on_append(on_event)

    def discard(self, response_id: str) -> None:
        """Write nothing more of a turn that runs."""
        if (recording := self._recordings.pop(response_id, None)) is not None:
            recording.discard()

    def _ended(self, response_id: str, error: sqlite3.Error | None) -> None:
        self._recordings.pop(response_id, None)
        if error is not None:
            self._on_failure(error)


class _Recording:
    """One turn that is being recorded."""

    def __init__(
        self,
        store: Store,
        turn: RunningTurn,
        ended: Callable[[str, sqlite3.Error | None], None],
        served: MakeServedRecord | None,
        keep: Keep,
        begin: Callable[[], None] | None,
    ) -> None:
        """``begin``: writes the turn's row, where another program kept that waiting."""
        self._store, self._turn, self._ended = store, turn, ended
        self._begin = begin
        self._served, self._keep = served, keep
        self._began = time.monotonic()
        self._base = turn.conversation.saved
        self._noted: list[Entry] = []
        """The entries from ``_base`` on, as of the last note."""
        self._lines: list[str] = []
        self._seen = 0
        """Events of the log that are in ``_lines``."""
        self._writable = True
        self.ended = False
        """The turn is written as it ended."""
        self._follower: asyncio.Task[None] | None = None
        if served is None:
            self._follower = asyncio.create_task(self._follow())
        turn.log.before_end(store.writable)
        turn.log.on_append(self._on_event)
        if turn.log.events and isinstance(event := turn.log.events[-1], ev.Terminal):
            self._finish(event.response)

    def discard(self) -> None:
        self.ended = True
        self._writable = False
        if self._follower is not None:
            self._follower.cancel()

    def _on_event(self, event: ev.Event) -> None:
        if self.ended:
            return
        if isinstance(event, ev.OutputItemDone):
            self._note()
        elif isinstance(event, ev.Terminal):
            self._finish(event.response)

    async def _follow(self) -> None:
        async for _ in self._turn.log.follow():
            await self._store.writable()
            self._note()
            await asyncio.sleep(NOTE_SECONDS)

    def _drain(self) -> list[str]:
        """Lines of the events that came since the last call."""
        seconds, events = time.monotonic() - self._began, self._turn.log.events
        lines = [encode_line(seconds, event) for event in merge_deltas(events[self._seen :])]
        self._seen = len(events)
        self._lines += lines
        return lines

    def _note(self) -> None:
        if not self._writable or self._store.is_locked():
            return  # the next note has it, or the end
        try:
            self._begin_late()
            note = {"base": self._base, "events": self._drain(), **self._entry_changes()}
            self._store.note(self._turn.response.id, json.dumps(note))
        except sqlite3.Error:
            log.warning("the journal cannot be written", exc_info=True)
            self._writable = False

    def _begin_late(self) -> None:
        """Write the turn's row, if it is not written. Raises sqlite3.Error."""
        if self._begin is not None:
            self._begin()
            self._begin, self._base = None, self._turn.conversation.saved

    def _entry_changes(self) -> dict[str, Any]:
        """Entries that differ from the last note's: index, ids that stay, new ids, role, recipient."""
        entries = self._turn.pending_entries()[self._base :]
        changes = []
        for at, entry in enumerate(entries):
            before = self._noted[at] if at < len(self._noted) else None
            if entry is not before and entry != before:
                same = common_prefix_length(before.ids, entry.ids) if before else 0
                changes.append([at, same, entry.ids[same:], entry.role, entry.recipient])
        self._noted = entries
        vocabulary = self._turn.conversation.vocabulary
        return {"entries": changes, "count": len(entries), "of": vocabulary}

    def _finish(self, response: ev.Response) -> None:
        if self._follower is not None:
            self._follower.cancel()
        self.ended, failure = True, None
        turn, served = self._turn, self._served
        # Nothing was generated, and the conversation is as it was: there is nothing to continue.
        never_began = response.status == "failed" and turn.first_entry == len(
            turn.conversation.entries
        )
        try:
            if never_began and served is None:
                if self._begin is None:
                    self._store.discard(turn.conversation, response.id)
            else:
                self._begin_late()
                extra = None if served is None else served(response)
                self._store.finish(turn.conversation, response, self._packed(), extra)
        except sqlite3.Error as error:
            failure = error
        self._writable = False
        self._ended(response.id, failure)

    def _packed(self) -> bytes | None:
        match self._keep:
            case "all":
                self._drain()
                return pack(self._lines)
            case "official":
                return pack_official(self._turn.log.events)
            case "none":
                return None
