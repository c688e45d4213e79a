"""Finished responses, kept so that a later request can go on from one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from agent.conversation import Entry
from agent.events import FunctionCallItem, Response
from agent.responses.history import History
from agent.responses.requests import InputItem

MOST = 1000
"""Responses that are kept; the one that was not used for the longest time goes first."""
MOST_TOKENS = 4_000_000
"""Tokens of their conversations together, shared ones counted each time."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A response, and what the next one needs of it."""

    response: Response
    entries: tuple[Entry, ...]
    """The conversation's messages, as the model saw and wrote them."""
    history: History
    items: dict[str, InputItem] = field(default_factory=dict)
    """Items that a reference can mean, by their ids."""

    @property
    def tokens(self) -> int:
        return sum(len(entry.ids) for entry in self.entries)


class Memory:
    """By response id; bounded. Not written to disk."""

    def __init__(self, most: int = MOST, most_tokens: int = MOST_TOKENS) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._most, self._most_tokens, self._tokens = most, most_tokens, 0

    def keep(self, kept: Kept) -> None:
        self._drop(kept.response.id)
        self._kept[kept.response.id] = kept
        self._tokens += kept.tokens
        while len(self._kept) > 1 and (
            len(self._kept) > self._most or self._tokens > self._most_tokens
        ):
            self._drop(next(iter(self._kept)))

    def find(self, response_id: str) -> Kept | None:
        kept = self._kept.get(response_id)
        if kept is not None:
            self._kept.move_to_end(response_id)
        return kept

    def item(self, item_id: str) -> InputItem | None:
        """The item that a reference means."""
        return next((k.items[item_id] for k in self._kept.values() if item_id in k.items), None)

    def _drop(self, response_id: str) -> None:
        kept = self._kept.pop(response_id, None)
        if kept is not None:
            self._tokens -= kept.tokens


def calls_of(response: Response) -> dict[str, str]:
    """call_id → the function, by the name that the model knows."""
    return {
        item.call_id: f"{item.namespace}__{item.name}" if item.namespace else item.name
        for item in response.output
        if isinstance(item, FunctionCallItem)
    }
