"""What is kept of finished responses: to go on from one, to look one up, to resend one's items."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.conversation import Entry, Message
from agent.events import FunctionCallItem, Response
from agent.responses.history import History
from agent.responses.requests import InputItem

MOST = 1000
"""Responses that are kept; the one that was not used for the longest time goes first."""
MOST_BYTES = 128 * 1024 * 1024
"""What they may take together; ids that two conversations share are counted twice."""
MEMO_TOKENS = 1_000_000
TOKEN_BYTES = 36
"""One id in a list of Python."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A response, and what the next one needs of it."""

    response: Response
    entries: tuple[Entry, ...]
    """The conversation's messages, as the model saw and wrote them."""
    history: History
    items: dict[str, InputItem] = field(default_factory=dict)
    """Items that a reference can mean, by their ids."""
    inputs: tuple[dict[str, Any], ...] = ()
    """The request's input items, as its client sent them."""
    request_bytes: int = 0
    conversation: str = ""
    """Its id, which those who go on from it share: what tools remember is kept by it."""

    @property
    def bytes(self) -> int:
        """About what it takes."""
        return TOKEN_BYTES * sum(len(entry.ids) for entry in self.entries) + self.request_bytes


class Memory:
    """By response id; bounded. Not written to disk."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0

    def keep(self, kept: Kept) -> None:
        self.forget(kept.response.id)
        self._kept[kept.response.id] = kept
        self._bytes += kept.bytes
        while len(self._kept) > 1 and (
            len(self._kept) > self._most or self._bytes > self._most_bytes
        ):
            self.forget(next(iter(self._kept)))

    def find(self, response_id: str) -> Kept | None:
        kept = self._kept.get(response_id)
        if kept is not None:
            self._kept.move_to_end(response_id)
        return kept

    def forget(self, response_id: str) -> bool:
        """Whether it was there."""
        kept = self._kept.pop(response_id, None)
        if kept is None:
            return False
        self._bytes -= kept.bytes
        return True

    def item(self, item_id: str) -> InputItem | None:
        """The item that a reference means."""
        return next((k.items[item_id] for k in self._kept.values() if item_id in k.items), None)


class Memo:
    """The ids that were generated for a message, for clients that send their items back.

    Rendered again, a message would not be what the model wrote, and everything after it would have to
    be processed anew. Bounded by tokens; what was not used for the longest time goes first.
    """

    def __init__(self, most_tokens: int = MEMO_TOKENS) -> None:
        self._entries: OrderedDict[Message, Entry] = OrderedDict()
        self._most_tokens, self._tokens = most_tokens, 0

    def learn(self, messages: Mapping[str, Message], entries: tuple[Entry, ...]) -> None:
        """``messages``: by the ids of their items."""
        for entry in entries:
            message = messages.get(entry.item or "")
            if message is None:
                continue
            old = self._entries.pop(message, None)
            self._tokens += len(entry.ids) - (len(old.ids) if old else 0)
            self._entries[message] = entry
        while self._tokens > self._most_tokens:
            _, old = self._entries.popitem(last=False)
            self._tokens -= len(old.ids)

    def recall(self, message: Message) -> Entry | None:
        if message in self._entries:
            self._entries.move_to_end(message)
        return self._entries.get(message)


def calls_of(response: Response) -> dict[str, str]:
    """call_id → the function, by the name that the model knows."""
    return {
        item.call_id: f"{item.namespace}__{item.name}" if item.namespace else item.name
        for item in response.output
        if isinstance(item, FunctionCallItem)
    }
