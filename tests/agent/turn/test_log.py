"""An event log has any number of readers; each gets every event, in order, at its own pace."""

import asyncio

from agent.events import AgentNotice, Event, Response, ResponseCompleted, Terminal
from agent.turn.log import EventLog


def notice(number: int) -> AgentNotice:
    return AgentNotice(level="info", message=str(number))


def messages(batch: list[Event]) -> list[str]:
    return [event.message for event in batch if isinstance(event, AgentNotice)]


async def read(log: EventLog, start: int = 0) -> list[str]:
    return [
        event.message
        async for batch in log.follow(start)
        for event in batch
        if isinstance(event, AgentNotice)
    ]


async def test_early_late_and_slow_readers_get_all_events() -> None:
    log = EventLog()
    gate = asyncio.Event()

    async def slow() -> list[str]:
        messages: list[str] = []
        async for batch in log.follow():
            await gate.wait()
            messages += [event.message for event in batch if isinstance(event, AgentNotice)]
        return messages

    early, stalled = asyncio.create_task(read(log)), asyncio.create_task(slow())
    for number in range(1000):
        log.append(notice(number))
        if number % 100 == 0:
            await asyncio.sleep(0)
    late = asyncio.create_task(read(log))
    log.close()
    expected = [str(number) for number in range(1000)]
    assert await early == await late == expected
    assert not stalled.done(), "a stalled reader holds up nobody"
    gate.set()
    assert await stalled == expected
    assert await read(log, 990) == expected[990:]


async def test_cancelled_reader_does_not_disturb_others() -> None:
    log = EventLog()
    task = asyncio.create_task(read(log))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    log.append(notice(1))
    log.close()
    assert await read(log) == ["1"]


async def test_append_callbacks_run_before_readers() -> None:
    log, calls = EventLog(), list[str]()
    log.on_append(lambda event: calls.append("first"))
    log.on_append(lambda event: calls.append("second"))
    reader = asyncio.create_task(read(log))
    await asyncio.sleep(0)
    log.append(notice(1))
    assert calls == ["first", "second"] and not reader.done()
    log.close()
    log.append(notice(2))
    assert await reader == ["1"] and len(calls) == 2


async def test_hold_keeps_event_and_later_ones_from_readers_until_release() -> None:
    log = EventLog()
    for number in range(5):
        log.append(notice(number))
        if number in (1, 3):
            log.hold()
    batches = log.follow()
    assert messages(await anext(batches)) == ["0"]
    ahead = log.follow(unstored=True)
    assert len(await anext(ahead)) == 5, "who stores them reads them"
    log.release(2)
    assert messages(await anext(batches)) == ["1", "2"]
    log.release()
    assert messages(await anext(batches)) == ["3", "4"]


async def test_hold_ends_by_itself() -> None:
    log = EventLog()
    log.append(notice(0))
    log.hold()
    reader = asyncio.create_task(read(log))
    while not log.closed:
        if not log._unstored:
            log.close()
        await asyncio.sleep(0)
    assert await reader == ["0"]


async def test_last_event_is_saved_although_its_turn_is_cancelled() -> None:
    log, saved = EventLog(), asyncio.Event()
    first, late = (asyncio.get_running_loop().create_future() for _ in range(2))
    event = ResponseCompleted(response=Response(id="resp_1", created_at=1, model="m"))

    def save(last: Terminal) -> asyncio.Future[None]:
        assert last is event
        log.before_end(lambda _: late)  # whoever comes now is waited for too
        return first

    async def end() -> None:
        try:
            await log.save(event)
        finally:
            saved.set()

    log.before_end(save)
    task = asyncio.create_task(end())
    for future in (first, late):
        for _ in range(9):
            await asyncio.sleep(0)
            task.cancel()
        assert not saved.is_set()
        future.set_result(None)
    await asyncio.gather(task, return_exceptions=True)
    assert saved.is_set() and task.cancelled()
