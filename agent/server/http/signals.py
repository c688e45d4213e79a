"""The server's handlers of SIGINT, SIGTERM and SIGHUP."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from agent.util.process import EXIT_CANCELLED, termination_signals
from tools.process_groups import kill_all


def stop_on_signals(*stops: Callable[[], object]) -> None:
    """Call one of these in the event loop at each termination signal, then end the process. Python's
    own handler, unlike asyncio's, runs even while something blocks the loop."""
    loop, left = asyncio.get_running_loop(), list(stops)

    def on_signal(number: int, _: object) -> None:
        if left and not loop.is_closed():
            loop.call_soon_threadsafe(left.pop(0))
        elif number != signal.SIGHUP:  # a terminal that goes sends several of these
            kill_all()
            os._exit(EXIT_CANCELLED)

    for number in termination_signals():
        signal.signal(number, on_signal)


async def run_until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run to the end, or until a termination signal; return whether it has ended."""
    stopped = asyncio.Event()
    stop_on_signals(stopped.set)
    running, stopping = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if running.done():
        running.result()
    return running.done()
