"""Finished responses: to go on from one, to look one up, to resend one's items."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from agent.conversation.conversation import Entry, Message
from agent.events import CustomToolCallItem, FunctionCallItem, Response
from agent.server.schemas import InputItem
from agent.store.responses import Archive
from agent.store.schema import blob, ids_of
from agent.store.stored_response import Kept

log = logging.getLogger(__name__)

MOST, LATEST = 1000, 64
"""Responses that are in memory, without an archive and before one; the one that was not used for the
longest time goes first."""
MOST_BYTES = 128 * 1024 * 1024
"""What they may take together; ids that two conversations share are counted twice."""
MEMO_TOKENS = 1_000_000
PRUNE_SECONDS = 3600.0


class Memory:
    """By response id: the latest in memory, bounded; all of them in the archive, where there is one."""

    def __init__(
        self, archive: Archive | None = None, most: int | None = None, most_bytes: int = MOST_BYTES
    ) -> None:
        self.archive = archive
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._most = most or (MOST if archive is None else LATEST)
        self._most_bytes, self._bytes = most_bytes, 0
        self._pruned = time.monotonic()

    def begin(self, kept: Kept) -> None:
        """It runs, and has come so far: should this process not live to see its end, that is kept."""
        self._archive(kept)

    def keep(self, kept: Kept) -> None:
        """It has ended."""
        self._archive(kept)
        self._cache(kept)

    def _archive(self, kept: Kept) -> None:
        if self.archive is not None:
            try:
                self.archive.keep(kept)
            except sqlite3.Error as error:
                log.error("the response %s could not be stored: %s", kept.response.id, error)

    def _cache(self, kept: Kept) -> None:
        self._drop(kept.response.id)
        self._kept[kept.response.id] = kept
        self._bytes += kept.bytes
        while len(self._kept) > 1 and (
            len(self._kept) > self._most or self._bytes > self._most_bytes
        ):
            self._drop(next(iter(self._kept)))

    def find(self, response_id: str) -> Kept | None:
        kept = self._kept.get(response_id)
        if self.archive is not None and kept is None:
            kept = self.archive.find(response_id)
            if kept is not None and kept.response.status != "in_progress":
                self._cache(kept)
        elif kept is not None:
            self._kept.move_to_end(response_id)
        return kept

    def forget(self, response_id: str) -> bool:
        """Whether it was there."""
        archived = self.archive is not None and self.archive.forget(response_id)
        return self._drop(response_id) or archived

    def _drop(self, response_id: str) -> bool:
        kept = self._kept.pop(response_id, None)
        if kept is None:
            return False
        self._bytes -= kept.bytes
        return True

    def item(self, item_id: str) -> InputItem | None:
        """The item that a reference means."""
        for kept in self._kept.values():
            if item_id in kept.items:
                return kept.items[item_id]
        return self.archive.item(item_id) if self.archive else None

    def rest(self) -> None:
        """Nothing runs: now and then, what is too old goes."""
        now = time.monotonic()
        if self.archive is not None and now - self._pruned > PRUNE_SECONDS:
            self._pruned = now
            self.archive.prune()


class Memo:
    """The ids of a message, for clients that send their items back.

    Rendered again, what the model wrote would not be what it wrote, and everything after it would
    have to be processed anew; what others wrote would take its time. Bounded by tokens; what was not
    used for the longest time goes first.
    """

    def __init__(self, most_tokens: int = MEMO_TOKENS) -> None:
        self._entries: OrderedDict[Message, tuple[Entry, bytes]] = OrderedDict()
        """The ids apart from their entries: as bytes they take a ninth."""
        self._most_tokens, self._tokens = most_tokens, 0
        self._vocabulary: str | None = None

    def use(self, vocabulary: str) -> None:
        """Whose ids they are from now on; others mean nothing there."""
        if vocabulary != self._vocabulary:
            self._vocabulary, self._tokens = vocabulary, 0
            self._entries.clear()

    def learn(self, messages: Mapping[str, Message], entries: tuple[Entry, ...]) -> None:
        """``messages``: by the ids of their items."""
        for entry in entries:
            message = messages.get(entry.item or "")
            if message is not None:
                self.keep(message, entry)

    def keep(self, message: Message, entry: Entry) -> None:
        if message in self._entries:
            self._drop(message)
        self._entries[message] = replace(entry, ids=[]), blob(entry.ids)
        self._tokens += len(entry.ids)
        while self._tokens > self._most_tokens:
            self._drop(next(iter(self._entries)))

    def _drop(self, message: Message) -> None:
        self._tokens -= len(ids_of(self._entries.pop(message)[1]))

    def recall(self, message: Message) -> Entry | None:
        if message not in self._entries:
            return None
        self._entries.move_to_end(message)
        entry, ids = self._entries[message]
        return replace(entry, ids=ids_of(ids))


def calls_of(response: Response) -> dict[str, str]:
    """call_id → the function, by the name that the model knows."""
    return {
        item.call_id: f"{item.namespace}__{item.name}" if item.namespace else item.name
        for item in response.output
        if isinstance(item, FunctionCallItem | CustomToolCallItem)
    }
