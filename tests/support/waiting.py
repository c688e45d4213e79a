"""Waits for conditions, never for a fixed time; what is not met in the end is described."""

import asyncio
import inspect
import reprlib
import time
from collections.abc import Callable

HANG_SECONDS = 300.0
"""Seconds after which any wait of a test is given up. Only what hangs takes that long, also on a
machine that is busy with much else."""
POLL_SECONDS = 0.005
"""Seconds between the first looks at a condition; later ones are further apart."""
POLL_SHARE = 0.05
"""The time to the next look, as a share of the time waited so far."""


def describe(condition: Callable[..., object]) -> str:
    """Return the source of a condition and the values that it reads, for the message of a failure."""
    try:
        source = " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        source = repr(condition)
    try:
        values = inspect.getclosurevars(condition).nonlocals
    except (TypeError, ValueError):
        values = {}
    shown = (f"\n  {name} = {reprlib.repr(value)}" for name, value in values.items())
    return f"{source}{''.join(shown)}"


async def wait_until(
    condition: Callable[[], object], state: Callable[[], object] = lambda: ""
) -> None:
    """Wait until a condition is true.

    Raises AssertionError with the condition, the values that it reads, and ``state()``.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > HANG_SECONDS:
            raise AssertionError(f"never true: {describe(condition)}\n{state()}")
        await asyncio.sleep(max(POLL_SECONDS, POLL_SHARE * waited))
