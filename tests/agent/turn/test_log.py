"""Any number of listeners; each gets every event, in order, at its own pace."""

from __future__ import annotations

import asyncio

from agent.events import AgentNotice
from agent.runtime.hub import Log


def notice(number: int) -> AgentNotice:
    return AgentNotice(level="info", message=str(number))


async def read(log: Log, start: int = 0) -> list[str]:
    return [
        event.message
        async for batch in log.follow(start)
        for event in batch
        if isinstance(event, AgentNotice)
    ]


async def test_early_late_and_slow_listeners_get_the_same() -> None:
    log = Log()
    gate = asyncio.Event()

    async def slow() -> list[str]:
        seen: list[str] = []
        async for batch in log.follow():
            await gate.wait()
            seen += [event.message for event in batch if isinstance(event, AgentNotice)]
        return seen

    early, stalled = asyncio.create_task(read(log)), asyncio.create_task(slow())
    for number in range(1000):
        log.append(notice(number))
        if number % 100 == 0:
            await asyncio.sleep(0)
    late = asyncio.create_task(read(log))
    log.close()
    expected = [str(number) for number in range(1000)]
    assert await early == await late == expected
    assert not stalled.done(), "a stalled listener holds up nobody"
    gate.set()
    assert await stalled == expected
    assert await read(log, 990) == expected[990:]


async def test_a_listener_that_goes_away_leaves_nothing_behind() -> None:
    log = Log()
    task = asyncio.create_task(read(log))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    log.append(notice(1))
    log.close()
    assert await read(log) == ["1"]
