"""Decides when Python's cyclic garbage collector runs: `defer` at the start, `resume` when all is
loaded, `disable` at the end; an app collects in pauses of typing (`IdleCollector`). A leaf."""

import gc
import time

STARTUP_THRESHOLD = 200_000
"""New objects before a collection: more than a start makes, whose time it would add a tenth to."""
INTERACTIVE_THRESHOLDS = 2_000, 5, 2_000
"""`gc.set_threshold` of the app. A full collection takes 0.1 s and more, one of 100,000 new objects 35
ms, which is felt while typing: so the middle one comes after 10,000."""
HEADLESS_THRESHOLDS = 2_000, 5, 20
"""`gc.set_threshold` of a server: full collections come by themselves, or its memory would grow."""

MIN_YOUNG_COLLECTIONS = 20
"""Collections of 10,000 new objects each, after which a full one is worth it."""
IDLE_SECONDS = 2.0
"""Seconds without a key after which a full collection is not expected to be noticed."""
MAX_TIME_SHARE = 0.1
"""Share of the time that full collections take at most."""


def defer() -> None:
    gc.set_threshold(STARTUP_THRESHOLD)


def resume(thresholds: tuple[int, int, int] = INTERACTIVE_THRESHOLDS) -> None:
    """Collect again, but leave existing objects alone. Without `defer` before it, do nothing."""
    if gc.get_threshold()[0] == STARTUP_THRESHOLD:
        gc.freeze()
        gc.set_threshold(*thresholds)


def disable() -> None:
    """Leave all objects to the end of the process; the interpreter looks through none at exit."""
    gc.freeze()


class IdleCollector:
    """Makes full collections in pauses of typing; without them garbage grows to hundreds of MB."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def collect(self, last_key: float) -> None:
        """Collect where it is worth it. ``last_key``: `time.monotonic()` of the last key press."""
        now = time.monotonic()
        if (
            now - last_key > IDLE_SECONDS
            and now > self._not_before
            and gc.get_count()[2] >= MIN_YOUNG_COLLECTIONS
        ):
            gc.collect()
            ended = time.monotonic()
            self._not_before = ended + (ended - now) / MAX_TIME_SHARE
