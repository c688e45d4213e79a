"""Waits for an app under test until it has nothing to do, instead of for a fixed time.

Textual's pilot waits 20 ms or more after each key and pause, until the process uses little CPU time.
That is most of the time of a test, and too short on a busy machine.
"""

import asyncio

import pytest
from textual import app as textual_app
from textual import pilot
from textual._context import active_app

from tests.support.waiting import HANG_SECONDS
from tui.util import file_index

MAX_ROUNDS = 2000
"""Rounds of the event loop, where something always has more to do, as a stream of tokens."""
QUIET_ROUNDS = 3
"""Rounds with nothing else to do: the first may lie between two callbacks of one message."""


async def wait_for_quiet_loop(min_sleep: float = 0, max_sleep: float = 0) -> None:
    """Wait until all that is due is done and painted: the event loop waits for timers and streams.

    The arguments are those of the function that it replaces, and ignored.
    """
    loop = asyncio.get_running_loop()
    quiet = 0
    for _ in range(MAX_ROUNDS):
        await asyncio.sleep(0)
        quiet = 0 if loop._ready else quiet + 1  # type: ignore[attr-defined]
        if quiet >= QUIET_ROUNDS and not _painted():
            return


def _painted() -> bool:
    """Do what the app would do within a sixtieth of a second: resize, paint. Return whether it did."""
    app = active_app.get()
    if app._resize_event is not None:
        app._check_resize()
        return True
    timer = app.screen._update_timer if app.screen_stack else None
    if timer is None or not timer._active.is_set():
        return False
    app.screen._on_timer_update()
    return True


@pytest.fixture(scope="session", autouse=True)
def quiet_pilot() -> None:
    """Let Textual's pilot wait like this, and let the app wait for git's list of files."""
    file_index._LISTING_SECONDS = HANG_SECONDS
    textual_app.wait_for_idle = pilot.wait_for_idle = wait_for_quiet_loop
