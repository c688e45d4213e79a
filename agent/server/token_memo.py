"""Token ids of messages that clients may send back as input items.

A client without ``previous_response_id`` resends its whole history. What the model wrote can be
rendered in more than one way: other ids than those it wrote would not match the prompt that the
engine has cached, and everything behind them would be processed again. The other messages are
remembered because rendering them takes time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from agent.conversation.conversation import Entry
from agent.conversation.messages import Message
from agent.store.schema import ids_from_blob, ids_to_blob

MAX_MEMO_TOKENS = 1_000_000


class TokenMemo:
    """Entries (a message's token ids) by message, of one vocabulary; an LRU cache bounded by tokens."""

    def __init__(self, max_tokens: int = MAX_MEMO_TOKENS) -> None:
        self._entries: OrderedDict[Message, tuple[Entry, bytes]] = OrderedDict()
        """Each entry without its ids, and these as bytes, which take a ninth of a list's memory."""
        self._max_tokens, self._tokens = max_tokens, 0
        self._vocabulary: str | None = None
        self.tokenising = asyncio.Lock()
        """Held while a part of a text is tokenised: one at a time, however many requests there are."""

    def set_vocabulary(self, vocabulary: str) -> None:
        """Name the vocabulary of the ids from now on; those of another one are dropped."""
        if vocabulary != self._vocabulary:
            self._vocabulary, self._tokens = vocabulary, 0
            self._entries.clear()

    def remember_items(self, messages: Mapping[str, Message], entries: tuple[Entry, ...]) -> None:
        """Remember the entries of output items; ``messages``: by item id."""
        for entry in entries:
            message = messages.get(entry.item or "")
            if message is not None:
                self.remember(message, entry)

    def remember(self, message: Message, entry: Entry) -> None:
        """Remember the entry of a message; the least recently used ones go when there are too many."""
        if message in self._entries:
            self._evict(message)
        self._entries[message] = replace(entry, ids=[]), ids_to_blob(entry.ids)
        self._tokens += len(entry.ids)
        while self._tokens > self._max_tokens:
            self._evict(next(iter(self._entries)))

    def _evict(self, message: Message) -> None:
        self._tokens -= len(ids_from_blob(self._entries.pop(message)[1]))

    def recall(self, message: Message) -> Entry | None:
        """The entry of a message, with its ids; None if it is not remembered."""
        if message not in self._entries:
            return None
        self._entries.move_to_end(message)
        entry, ids = self._entries[message]
        return replace(entry, ids=ids_from_blob(ids))
