"""The idle work of a runtime: unload the model, warm up, probe the CPU.

Each chore waits until nothing has happened for a while::

    a turn, a load or a key      WARM_UP_IDLE_SECONDS   PROBE_IDLE_SECONDS    keep_alive
    |----------------------------|----------------------|---------------------|
    timers restart               connect tool servers,  find out whether      unload the
                                 compile a grammar      repacking works       model
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Chore = Callable[[], Coroutine[Any, Any, None]]

PROBE_IDLE_SECONDS = 20.0
"""Seconds without a turn after which the CPU is probed for repacked weights, where it was not yet."""
WARM_UP_IDLE_SECONDS = 2.0
"""Seconds without a turn or key after which a first tool call is prepared, which blocks."""


class IdleTimers:
    """Runs chores after some idle time; `restart` them at each sign of activity."""

    def __init__(
        self,
        *,
        unload: Chore,
        warm_up: Callable[[], None],
        probe: Chore,
        warm_up_seconds: float = WARM_UP_IDLE_SECONDS,
        probe_seconds: float = PROBE_IDLE_SECONDS,
    ) -> None:
        self._unload, self._warm_up, self._probe = unload, warm_up, probe
        self._warm_up_seconds, self._probe_seconds = warm_up_seconds, probe_seconds
        self._timers: list[asyncio.TimerHandle] = []
        self._unloading: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[None] | None = None

    @property
    def due_times(self) -> list[float]:
        """When the waiting chores are due, in seconds of the event loop's clock."""
        return [timer.when() for timer in self._timers]

    def restart(self, *, keep_alive: float | None, warm_up: bool, probe: bool) -> None:
        """Restart the timers; the model is unloaded after ``keep_alive`` seconds (None: never)."""
        self.cancel()
        call_later = asyncio.get_running_loop().call_later
        if keep_alive is not None:
            self._timers.append(call_later(keep_alive, self._unload_later))
        if warm_up:
            self._timers.append(call_later(self._warm_up_seconds, self._warm_up))
        if probe:
            self._timers.append(call_later(self._probe_seconds, self._probe_later))

    def _unload_later(self) -> None:
        self._unloading = asyncio.create_task(self._unload())

    def _probe_later(self) -> None:
        self._probing = asyncio.create_task(self._probe())

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._probing is not None:
            self._probing.cancel()

    async def close(self) -> None:
        self.cancel()
        if running := {task for task in (self._probing, self._unloading) if task is not None}:
            await asyncio.wait(running)
