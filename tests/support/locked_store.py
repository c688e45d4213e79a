"""Stores that another program has locked, or that hold a long conversation."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agent.conversation.conversation import Conversation, Entry
from agent.events import Response
from agent.store.conversations import Store

ENTRY_COUNT, ENTRY_TOKENS = 80, 250_000
"""The size of a conversation of 80 MB."""


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Write to the store as another program; ``rollback`` ends that."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield other


async def set_busy_timeout(store: Store, seconds: float) -> None:
    """Set the seconds that a write waits for another program."""
    await store.run(lambda: store.db.execute(f"pragma busy_timeout = {int(seconds * 1000)}"))


def store_long_conversation(path: Path) -> str:
    """Store a conversation of 80 MB; return its id."""
    store, talk = Store(path), Conversation("conv_" + "7" * 32)
    response = Response(id="resp_long", created_at=0, model="tiny", status="completed")
    store.begin(talk, "Long", response)
    talk.entries += [Entry([number] * ENTRY_TOKENS, role="user") for number in range(ENTRY_COUNT)]
    store.finish(talk, response)
    store.close()
    log = path.with_name(f"{path.name}-wal")
    assert path.stat().st_size + (log.stat().st_size if log.exists() else 0) > 80_000_000
    return talk.id
