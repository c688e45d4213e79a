"""Finished responses by id, to continue, look up or refer to: the latest in memory, bounded in number
and bytes, all of them in the store, if there is one."""

from __future__ import annotations

import time
from collections import OrderedDict

from agent.server.http.clients import current_client
from agent.server.input.schemas import InputItem
from agent.server.input.stored_response import StoredResponse, from_served_turn
from agent.store.responses import ResponseStore

MAX_RESPONSES, MAX_CACHED_RESPONSES = 1000, 64
"""Responses in memory: without a store, and in front of one. The least recently used goes first."""
MAX_CACHE_BYTES = 128 * 1024 * 1024
"""Memory of all of them together; ids that two conversations share are counted twice."""
PRUNE_INTERVAL_SECONDS = 3600.0


class ResponseCache:
    """An LRU cache of responses, in front of the store where there is one."""

    def __init__(
        self,
        store: ResponseStore | None = None,
        max_responses: int | None = None,
        max_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        """``max_responses``: None chooses by whether there is a store."""
        self.store = store
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        default = MAX_RESPONSES if store is None else MAX_CACHED_RESPONSES
        self._max_responses = max_responses or default
        self._max_bytes, self._bytes = max_bytes, 0
        self._pruned_at = time.monotonic()

    def add(self, stored: StoredResponse) -> None:
        if self.store is not None:
            self.store.store.submit(self.store.prune_bytes)
        self._evict(stored.response.id)
        self._responses[stored.response.id] = stored
        self._bytes += stored.bytes
        while len(self._responses) > 1 and (
            len(self._responses) > self._max_responses or self._bytes > self._max_bytes
        ):
            self._evict(next(iter(self._responses)))

    async def find(self, response_id: str) -> StoredResponse | None:
        """A response of the current client, from memory or from the store; None if there is none."""
        if (stored := self._responses.get(response_id)) is not None:
            self._responses.move_to_end(response_id)
        elif (store := self.store) is not None:
            stored = await store.store.run(lambda: _read(store, response_id))
            if stored is not None and stored.response.status not in ("queued", "in_progress"):
                self.add(stored)
        return stored if stored is not None and current_client().owns(stored.owner) else None

    async def delete(self, response_id: str) -> bool:
        """Delete a response of the current client from memory and store; False if there is none.
        Raises sqlite3.Error."""
        stored, store, client = self._responses.get(response_id), self.store, current_client()
        if stored is not None and not client.owns(stored.owner):
            return False

        def delete() -> bool:
            assert store is not None
            own = stored is not None or client.owns(store.owner(response_id))
            return own and store.delete(response_id)

        deleted = store is not None and await store.store.run(delete)
        return (stored is not None and self._evict(response_id)) or deleted

    def _evict(self, response_id: str) -> bool:
        stored = self._responses.pop(response_id, None)
        if stored is None:
            return False
        self._bytes -= stored.bytes
        return True

    def evict_conversation(self, conversation_id: str) -> None:
        """Forget the responses in memory of a conversation that has changed or is deleted."""
        for name, stored in list(self._responses.items()):
            extended = stored.response.conversation
            if conversation_id in (stored.conversation.id, extended and extended.id):
                self._evict(name)

    async def find_item(self, item_id: str) -> InputItem | None:
        stored = await self.response_with(item_id)
        return stored.items.get(item_id) if stored else None

    async def response_with(self, item_id: str) -> StoredResponse | None:
        for response in self._responses.values():
            if item_id in response.items and current_client().owns(response.owner):
                return response
        if (store := self.store) is None:
            return None
        name = await store.store.run(lambda: store.response_with(item_id))
        return await self.find(name) if name is not None else None

    def prune_when_due(self) -> None:
        """Delete old responses from the store, at most once in `PRUNE_INTERVAL_SECONDS`."""
        now = time.monotonic()
        if self.store is not None and now - self._pruned_at > PRUNE_INTERVAL_SECONDS:
            self._pruned_at = now
            self.store.store.submit(self.store.try_prune)


def _read(store: ResponseStore, response_id: str) -> StoredResponse | None:
    turn = store.find(response_id)
    return None if turn is None else from_served_turn(turn)
