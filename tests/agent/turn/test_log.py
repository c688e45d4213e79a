"""An event log has any number of readers; each gets every event, in order, at its own pace."""

from __future__ import annotations

import asyncio

from agent.events import AgentNotice
from agent.turn.log import EventLog


def notice(number: int) -> AgentNotice:
    return AgentNotice(level="info", message=str(number))


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
