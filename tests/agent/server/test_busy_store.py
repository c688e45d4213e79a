"""Others are answered while the store waits for another program, or has much to do."""

from __future__ import annotations

import asyncio
import sqlite3
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agent.conversation.conversation import Conversation, Entry
from agent.events import Response
from agent.store.conversations import Store
from tests.support.endpoint import Serve, Served, api_error
from tests.support.scripts import HELLO
from tests.support.waiting import HANG_SECONDS, wait_until

ENTRY_IDS, ENTRIES = 250_000, 80
"""Of a conversation of 80 MB."""


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program writes to the store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield other


async def set_patience(served: Served, seconds: float) -> None:
    store = served.service.conversations.store.store
    await store.run(lambda: store.db.execute(f"pragma busy_timeout = {int(seconds * 1000)}"))


async def answer_others(served: Served, waiting: asyncio.Future[object], requests: int) -> None:
    """Answer so many requests that do not need the store, all before the one that waits for it."""
    for _ in range(requests):
        assert (await served.get("/health")).status_code == 200
        assert not waiting.done()


async def test_others_are_answered_while_another_program_writes(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id
    kept = await client.responses.create(input="Hello")
    await set_patience(served, HANG_SECONDS)
    requests: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: client.conversations.create(items=[{"role": "user", "content": "Ann"}]),
        lambda: client.conversations.update(name, metadata={"k": "v"}),
        lambda: client.responses.create(conversation=name, input="Hi"),
        lambda: client.responses.delete(kept.id),
        lambda: client.conversations.delete(name),
    )
    for request in requests:
        with locked(served.runtime.paths.store) as other:
            waiting = asyncio.ensure_future(request())
            await answer_others(served, waiting, 20)
            other.execute("rollback")
            await waiting


async def test_store_that_stays_locked_is_an_error_of_the_api(serve: Serve) -> None:
    served = await serve(HELLO)
    name = (await served.client().conversations.create()).id
    await set_patience(served, 0)
    with locked(served.runtime.paths.store):
        error = api_error(await served.post({"conversation": name, "input": "Hi"}), 500)
    assert error["message"] == "The conversation cannot be stored: database is locked."
    await wait_until(lambda: not served.service.running)
    assert (await served.client().responses.create(conversation=name, input="Hi")).output_text


@pytest.mark.slow
async def test_others_are_answered_while_a_long_conversation_is_deleted(serve: Serve) -> None:
    served = await serve(HELLO)
    await served.runtime.ready()
    store, talk = Store(served.runtime.paths.store), Conversation("conv_" + "7" * 32)
    response = Response(id="resp_1", created_at=0, model="tiny", status="completed")
    store.begin(talk, "Long", response)
    for number in range(ENTRIES):
        ids = list(array("i", [number]) * ENTRY_IDS)
        talk.entries.append(Entry(ids, role="user"))
    store.finish(talk, response)
    store.close()
    path = served.runtime.paths.store
    assert path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size > 80_000_000
    deleting = asyncio.create_task(served.client().conversations.delete(talk.id))
    answered = 0
    while not deleting.done():
        assert (await served.get("/health")).status_code == 200
        answered += 1
    await deleting
    assert answered > 10
