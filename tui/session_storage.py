"""The session's part of the store: what is read and written in the store's thread. Without a store the
app continues, and stores nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from agent.errors import UserError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from agent.conversation.conversation import Conversation
    from agent.store.conversations import Store
    from agent.store.recorder import TurnRecorder
    from agent.store.records import StoredTurn

T = TypeVar("T")
log = logging.getLogger(__name__)


class SessionStorage:
    """Reads and writes conversations; ``open()`` first."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self.recorder: TurnRecorder | None = None
        self._turns_read: tuple[str, dict[str, StoredTurn]] = ("", {})
        """The id of a conversation, and its ended turns as `turn` has read them."""
        self.error: str | None = None
        """Why the store could not be written; cleared once it was shown."""

    def open(self, path: Path, root: Path) -> None:
        """Open the store, in any thread; ``root``: the folder that is worked in. Raises StoreError if
        that cannot be."""
        from agent.config.text_files import project_name
        from agent.store.conversations import Store
        from agent.store.recorder import TurnRecorder

        self._store = Store(path, folder=project_name(root))
        self.recorder = TurnRecorder(self._store, self._on_error)

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def store(self) -> Store:
        """The store of conversations. Raises UserError if it cannot be used."""
        if self._store is None:
            raise UserError("Conversations are not stored: the store cannot be written.")
        return self._store

    async def read(self, read: Callable[[Store], T]) -> T:
        """Run ``read`` in the store's thread. Raises UserError if there is no store."""
        store = self.store
        return await store.run(lambda: read(store))

    async def write(self, write: Callable[[Store], None]) -> None:
        """Write to the store, in its thread; continue if that fails (a full disk)."""
        import sqlite3

        try:
            if self.is_open:
                await self.read(write)
        except sqlite3.Error as error:
            self._on_error(error)

    def _on_error(self, error: sqlite3.Error) -> None:
        """Note what to tell the person; the next turn writes what is missing."""
        import sqlite3

        log.error("the store cannot be written", exc_info=error)
        follows = "The next turn tries again."
        if isinstance(error, sqlite3.IntegrityError):
            follows = "Later turns are stored without the ones before."
        elif isinstance(error, sqlite3.InterfaceError):
            follows = "Start the app again: nothing is stored until then."
        self.error = f"The conversation could not be stored: {error}. {follows}"

    def damage(self) -> list[str]:
        return self._store.damage.take() if self._store else []

    async def turns(self, conversation_id: str) -> list[StoredTurn]:
        return await self.read(lambda store: store.turns(conversation_id)) if self._store else []

    async def turn(self, conversation_id: str, response_id: str) -> StoredTurn | None:
        """One of them, by its response's id. Ended ones are read once: they do not change."""
        conversation, ended = self._turns_read
        if conversation == conversation_id and response_id in ended:
            return ended[response_id]
        turns = {turn.response.id: turn for turn in await self.turns(conversation_id)}
        ended = {key: turn for key, turn in turns.items() if turn.response.status != "in_progress"}
        self._turns_read = conversation_id, ended
        return turns.get(response_id)

    async def branches_at(self, conversation: Conversation, start: int) -> tuple[int, list[str]]:
        """The conversations that differ from entry ``start`` on, the oldest first, and this one's
        number, from 1; (0, []): there is only one. An unstored branch is the last of its origin's."""
        if self._store is None:
            return 0, []
        return await self.read(lambda store: store.branches_at(conversation, start))

    async def close(self) -> None:
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
