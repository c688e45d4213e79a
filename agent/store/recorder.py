"""Records turns while they run, for recovery after a crash and for replay.

A recorder subscribes to the log of each turn that it is given; the code that started the turn only
reads its events. All is written in the store's thread, in order, and the turn waits for its end only.
The turn's row is written when the turn is handed over. Notes go to the store's journal: at once when an
item is done, which no reader sees before, so that what was seen as finished survives; and for turns of
this program's own interfaces every ``NOTE_SECONDS`` while text is written. A note has the events since
the note before and, as a difference, the conversation's entries as they would be if the turn ended now
(`RunningTurn.pending_entries`). Before the terminal event is in the log, the row, the events and the
conversation are written. A turn of a person that failed before anything was generated (its model could
not be loaded) leaves nothing."""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.store.conversations import Store
from agent.store.event_codec import encode_line, merge_deltas, pack, pack_official
from agent.store.tree import ConversationChangedError
from agent.turn.context import RunningTurn
from agent.util.prefix import common_prefix_length

log = logging.getLogger(__name__)

NOTE_SECONDS = 0.05
"""Seconds between two notes: what a killed process loses of a turn at most."""

Keep = Literal["all", "official", "none"]
"""Which events stay in the store: all with deltas joined; the official ones, each; none."""
MakeServedRecord = Callable[[ev.Response], dict[str, Any]]


def _log_failure(error: sqlite3.Error) -> None:
    log.error("a turn could not be stored: %s", error)


class TurnRecorder:
    """Writes turns to one store."""

    def __init__(
        self, store: Store, on_failure: Callable[[sqlite3.Error], None] = _log_failure
    ) -> None:
        """``on_failure``: called when a turn could not be written; the turn itself continues."""
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
        folder: str | None = None,
    ) -> Awaitable[None]:
        """Write a turn that is about to start, or has started, then all of its events and results.
        ``prompt``: what a list shows of the turn. ``start``: the conversation's entry that it begins
        with; None: the next one. ``served``: for a response of the endpoint. ``folder``: a new
        conversation's; None: the store's. The result may be awaited:
        until the row is written, or the turn if it has ended. That raises ConversationChangedError
        where the turn cannot extend its client's conversation any more."""
        name = turn.response.id
        begin = partial(
            self._store.begin,
            prompt=prompt,
            response=turn.response.model_copy(),
            start=len(turn.conversation.entries) if start is None else start,
            served=None if served is None else served(turn.response),
            folder=folder,
        )
        self._recordings[name] = _Recording(self._store, turn, self._ended, served, keep, begin)
        return asyncio.shield(self._recordings[name].begun)

    def save_after(self, turn: RunningTurn) -> None:
        """Write the conversation after a turn that is not an exchange, such as a compaction."""

        def save(event: ev.Terminal) -> asyncio.Future[None]:
            finish = partial(self._store.finish, response=event.response)
            done = partial(self._ended, event.response.id)
            return _write(self._store, turn.conversation, finish, done)

        turn.log.before_end(save)

    def discard(self, response_id: str) -> None:
        """Write nothing more of a turn that runs."""
        if (recording := self._recordings.pop(response_id, None)) is not None:
            recording.discard()

    def _ended(self, response_id: str, error: BaseException | None) -> None:
        self._recordings.pop(response_id, None)
        if isinstance(error, sqlite3.Error):
            self._on_failure(error)
        elif error is not None:
            log.error("the end of a turn cannot be written", exc_info=error)


def _write(
    store: Store,
    conversation: Conversation,
    work: Callable[[Conversation], object],
    done: Callable[[BaseException | None], None],
) -> asyncio.Future[None]:
    """Have a copy of a conversation written, and take over what is stored of it, while the conversation
    continues. ``done``: called with the error, if there was one, before the future is done."""
    before = conversation.saved_count
    copy = replace(conversation, entries=[*conversation.entries])
    written = asyncio.get_running_loop().create_future()

    def take_over(future: asyncio.Future[object]) -> None:
        if (error := future.exception()) is None:
            count = conversation.saved_count
            conversation.id, conversation.saved = copy.id, copy.saved
            if count < before:  # entries have changed since then
                conversation.on_change_from(count)
        done(error)
        written.set_result(None)

    asyncio.wrap_future(store.submit(partial(work, copy))).add_done_callback(take_over)
    return written


class _Recording:
    def __init__(
        self,
        store: Store,
        turn: RunningTurn,
        ended: Callable[[str, BaseException | None], None],
        served: MakeServedRecord | None,
        keep: Keep,
        begin: Callable[[Conversation], None],
    ) -> None:
        self._store, self._turn, self._ended = store, turn, ended
        self._begin, self._is_begun = begin, False
        self._served, self._keep = served, keep
        self._began = time.monotonic()
        self._base = 0
        """The entries before it were stored when the turn began."""
        self._noted: list[Entry] = []
        """The entries from ``_base`` on, as of the last note."""
        self._lines: list[str] = []
        self._seen = 0
        """Events of the log that are in ``_lines``."""
        self._notes: asyncio.Task[None] | None = None
        self._item_done, self._is_noting = asyncio.Event(), True
        self._is_over = False
        """The turn is written as it ended, or is not to be written."""
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        """Done once the row is written, or cannot be; for a turn that had ended, once that is."""
        self._saved: asyncio.Future[None] = loop.create_future()
        self._last: ev.Terminal | None = None
        for at, event in enumerate(turn.log.events):
            self._on_event(event, at)
            if isinstance(event, ev.Terminal):
                self._last = event
        self._had_ended = self._last is not None
        turn.log.on_append(self._on_event)
        turn.log.before_end(self._save)
        _write(store, turn.conversation, begin, self._on_begun)

    def discard(self) -> None:
        self._is_over = True
        self._stop_notes()

    def _on_event(self, event: ev.Event, at: int | None = None) -> None:
        if self._is_noting and isinstance(event, ev.OutputItemDone):
            self._turn.log.hold(at)
            self._item_done.set()

    def _on_begun(self, error: BaseException | None) -> None:
        self._is_begun, self._base = error is None, self._turn.conversation.saved_count
        if isinstance(error, ConversationChangedError):
            self.discard()
            self.begun.set_exception(error)
        elif self._had_ended:
            self._saved.add_done_callback(lambda _: self.begun.set_result(None))
        else:
            self.begun.set_result(None)
        if self._last is not None:
            self._finish(self._last)
        elif error is not None:
            log.warning("the beginning of a turn cannot be written", exc_info=error)
            self._stop_notes()
        elif not self._is_over:
            self._notes = asyncio.create_task(self._write_notes())

    # --- notes ---

    async def _write_notes(self) -> None:
        try:
            while self._served is not None and await self._item_done.wait():
                await self._note()
            async for _ in self._turn.log.follow(unstored=True):
                await self._note()
                with suppress(TimeoutError):
                    async with asyncio.timeout(NOTE_SECONDS):  # wait_for() may ignore a cancel()
                        await self._item_done.wait()
        except sqlite3.Error:
            log.warning("the journal cannot be written", exc_info=True)
            self._stop_notes()

    def _stop_notes(self) -> None:
        """Write no more notes; readers of the log wait for none."""
        self._is_noting = False
        if self._notes is not None:
            self._notes.cancel()
        self._turn.log.release()

    async def _note(self) -> None:
        self._item_done.clear()
        lines = self._drain(self._turn.log.events)
        note = json.dumps({"base": self._base, "events": lines, **self._entry_changes()})
        seen = self._seen
        await self._store.run(partial(self._store.note, self._turn.response.id, note))
        self._turn.log.release(seen)

    def _drain(self, events: list[ev.Event]) -> list[str]:
        seconds = time.monotonic() - self._began
        lines = [encode_line(seconds, event) for event in merge_deltas(events[self._seen :])]
        self._seen = len(events)
        self._lines += lines
        return lines

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

    # --- the end ---

    def _save(self, event: ev.Terminal) -> asyncio.Future[None]:
        self._last = event
        if self.begun.done():
            self._finish(event)
        return self._saved

    def _finish(self, event: ev.Terminal) -> None:
        if self._is_over:
            self._saved.set_result(None)
            return
        self._is_over, self._is_noting = True, False
        if self._notes is not None:
            self._notes.cancel()
        work = partial(self._write_end, event)
        _write(self._store, self._turn.conversation, work, self._on_finished)

    def _write_end(self, event: ev.Terminal, conversation: Conversation) -> None:
        turn, response, store = self._turn, event.response, self._store
        # Nothing was generated, and the conversation is as it was: there is nothing to continue.
        never_began = response.status == "failed" and turn.first_entry == len(conversation.entries)
        if never_began and self._served is None:
            store.discard(conversation, response.id)
            return
        if not self._is_begun:
            try:
                self._begin(conversation)
            except ConversationChangedError as error:
                raise sqlite3.IntegrityError("the conversation was changed meanwhile") from error
        served = None if self._served is None else self._served(response)
        store.finish(conversation, response, self._packed(event), served)

    def _packed(self, last: ev.Terminal) -> bytes | None:
        events = self._turn.log.events
        if last is not events[-1]:
            events = [*events, last]
        match self._keep:
            case "all":
                self._drain(events)
                return pack(self._lines)
            case "official":
                return pack_official(events)
            case "none":
                return None

    def _on_finished(self, error: BaseException | None) -> None:
        self._turn.log.release()
        self._ended(self._turn.response.id, error)
        self._saved.set_result(None)
