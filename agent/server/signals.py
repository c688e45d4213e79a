"""What a server does at SIGINT, SIGTERM and SIGHUP."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from agent.util.process import EXIT_CANCELLED, termination_signals
from tools.process_groups import kill_all


def stop_on_signals(*stops: Callable[[], object]) -> None:
    """Call these in the running event loop, one at each termination signal; at one more signal end the
    process at once, whatever runs.

    The handler is Python's own, not asyncio's: it runs even while something holds the loop up.
    """
    loop, left = asyncio.get_running_loop(), list(stops)

    def on_signal(number: int, _: object) -> None:
        if left and not loop.is_closed():
            loop.call_soon_threadsafe(left.pop(0))
        elif number != signal.SIGHUP:  # a terminal that goes sends several of these
            kill_all()
            os._exit(EXIT_CANCELLED)

    for number in termination_signals():
        signal.signal(number, on_signal)
