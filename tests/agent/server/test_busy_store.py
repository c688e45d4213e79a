"""The server answers other requests while the store waits for another program or is busy."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.endpoint import Serve, Served, api_error
from tests.support.locked_store import locked, set_busy_timeout, store_long_conversation
from tests.support.scripts import HELLO
from tests.support.waiting import HANG_SECONDS, wait_until


async def answer_health(served: Served, waiting: asyncio.Future[object], requests: int) -> None:
    """Send requests that do not need the store; all are answered before the one that waits for it."""
    for _ in range(requests):
        assert (await served.get("/health")).status_code == 200
        assert not waiting.done()


async def test_server_answers_while_another_program_writes(serve: Serve) -> None:
    served = await serve(HELLO)
    client = served.client()
    name = (await client.conversations.create()).id
    stored = await client.responses.create(input="Hello")
    await set_busy_timeout(served.service.conversations.store.store, HANG_SECONDS)
    requests: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: client.conversations.create(items=[{"role": "user", "content": "Ann"}]),
        lambda: client.conversations.update(name, metadata={"k": "v"}),
        lambda: client.responses.create(conversation=name, input="Hi"),
        lambda: client.responses.delete(stored.id),
        lambda: client.conversations.delete(name),
    )
    for request in requests:
        with locked(served.runtime.paths.store) as other:
            waiting = asyncio.ensure_future(request())
            await answer_health(served, waiting, 20)
            other.execute("rollback")
            await waiting


async def test_store_that_stays_locked_is_an_error_of_the_api(serve: Serve) -> None:
    served = await serve(HELLO)
    name = (await served.client().conversations.create()).id
    await set_busy_timeout(served.service.conversations.store.store, 0)
    with locked(served.runtime.paths.store):
        error = api_error(await served.post({"conversation": name, "input": "Hi"}), 500)
    assert error["message"] == "The conversation cannot be stored: database is locked."
    await wait_until(lambda: not served.service.running)
    assert (await served.client().responses.create(conversation=name, input="Hi")).output_text


@pytest.mark.slow
async def test_server_answers_while_a_long_conversation_is_deleted(serve: Serve) -> None:
    served = await serve(HELLO)
    await served.runtime.ready()
    name = store_long_conversation(served.runtime.paths.store)
    deleting = asyncio.create_task(served.client().conversations.delete(name))
    answered = 0
    while not deleting.done():
        assert (await served.get("/health")).status_code == 200
        answered += 1
    await deleting
    assert answered > 10
