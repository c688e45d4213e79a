"""Ends a server's work early: at SIGINT, SIGTERM or SIGHUP while a loop runs, or at an event."""

import asyncio
import math
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from agent.util.process import EXIT_CANCELLED, termination_signals
from tools.process_groups import kill_all

SAME_SIGNAL_SECONDS = 0.3
"""A signal this soon after another is the same one: timeout(1) sends its own twice."""


def stop_on_signals(*stops: Callable[[int], object], same_seconds: float = 0.0) -> None:
    """Call one of these in the event loop, with its number, at each termination signal, then end the
    process; a signal within ``same_seconds`` of another is passed over. Python's own handler, unlike
    asyncio's, runs even while something blocks the loop."""
    loop, left = asyncio.get_running_loop(), list(stops)
    last_signal = -math.inf

    def on_signal(number: int, _: object) -> None:
        nonlocal last_signal
        before, last_signal = last_signal, time.monotonic()
        if last_signal - before < same_seconds:
            return
        if left and not loop.is_closed():
            loop.call_soon_threadsafe(left.pop(0), number)
        elif number != signal.SIGHUP:  # a terminal that goes sends several of these
            kill_all()
            os._exit(EXIT_CANCELLED)

    for number in termination_signals():
        signal.signal(number, on_signal)


async def ends_before(work: Awaitable[None], stop: Awaitable[object]) -> bool:
    """Whether work ends before ``stop``, which cancels it. Raises what the work raises."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop)
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if has_ended := working.done():
            working.result()
        return has_ended
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def run_until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run to the end, or until a termination signal; return whether it has ended."""
    stopped = asyncio.Event()
    stop_on_signals(lambda _: stopped.set())
    running, stopping = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if running.done():
        running.result()
    return running.done()
