"""The work of a runtime that gives way: chores after idle time, what waits for a pause in typing, and
prefetching.

Each chore waits until nothing has happened for a while::

    a turn, a load or a key      WARM_UP_IDLE_SECONDS   PROBE_IDLE_SECONDS    keep_alive
    |----------------------------|----------------------|---------------------|
    timers restart               connect tool servers,  find out whether      unload the
                                 compile a grammar      repacking works       model
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from agent.engine.protocol import EngineError, Generation, Prefill, Request

log = logging.getLogger(__name__)

Chore = Callable[[], Coroutine[Any, Any, None]]

PROBE_IDLE_SECONDS = 20.0
"""Seconds without a turn after which the CPU is probed for repacked weights, where it was not yet."""
WARM_UP_IDLE_SECONDS = 2.0
"""Seconds without a turn or key after which a first tool call is prepared, which blocks."""
PAUSE_SECONDS = 0.3
"""A pause in typing."""
MAX_PAUSE_WAIT_SECONDS = 5.0


class IdleTimers:
    """Runs chores after some idle time; `restart` them at each sign of activity."""

    def __init__(self, *, unload: Chore, warm_up: Callable[[], None], probe: Chore) -> None:
        self._unload, self._warm_up, self._probe = unload, warm_up, probe
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
            self._timers.append(call_later(WARM_UP_IDLE_SECONDS, self._warm_up))
        if probe:
            self._timers.append(call_later(PROBE_IDLE_SECONDS, self._probe_later))

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


class TypingPause:
    """Lets work that blocks Python's lock (openai-harmony: 60 to 180 ms) wait for a pause in typing,
    unless someone waits for the work."""

    def __init__(self) -> None:
        self._last_key = -math.inf
        self._waiting = 0
        """Number of callers that wait for the work."""
        self._hurried = asyncio.Event()
        """Set while someone does."""

    def on_keystroke(self) -> None:
        self._last_key = time.monotonic()

    def hurry(self) -> None:
        """Wait for no pause until `relax` is called: someone waits for the work."""
        self._waiting += 1
        self._hurried.set()

    def relax(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._hurried.clear()

    async def wait(self, loading: asyncio.Future[None]) -> None:
        """Wait for a pause, at most `MAX_PAUSE_WAIT_SECONDS` after ``loading``."""
        ended = math.inf
        while not self._hurried.is_set():
            now = time.monotonic()
            if loading.done():
                ended = min(ended, now)
            until = min(self._last_key + PAUSE_SECONDS, ended + MAX_PAUSE_WAIT_SECONDS)
            if until <= now:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(until - now):
                    await self._hurried.wait()


class Prefetcher:
    """Prefills prompts early, so that the next turn costs only its tokens; only the latest counts."""

    def __init__(self, generate: Callable[[Request], Generation]) -> None:
        """``generate`` starts a generation. Raises EngineError."""
        self._generate = generate
        self._generation: Generation | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, request: Request) -> None:
        """Prefill a prompt in place of the one before; the engine lets other requests go first."""
        self.cancel()
        try:
            self._generation = self._generate(request)
        except EngineError:
            return  # too long to continue; the next turn will say so
        self._task = asyncio.create_task(_read_to_end(self._generation))

    async def cached_tokens(self, ids: list[int]) -> int | None:
        """Tokens of a prompt in the engine's memory; None: unknown. Stops prefilling; must be idle."""
        self.cancel()
        with suppress(EngineError):
            generation = self._generate(Request(ids, max_tokens=0, background=True, private=True))
            async for event in generation:
                generation.cancel()
                if isinstance(event, Prefill):
                    return event.cached
        return None

    def cancel(self) -> None:
        """Stop prefilling; what is in the engine's memory already stays there."""
        if self._generation is not None:
            self._generation.cancel()
            self._generation = None

    @property
    def started(self) -> bool:
        return self._task is not None

    async def wait(self) -> None:
        if self._task is not None:
            await self._task


async def _read_to_end(generation: Generation) -> None:
    try:
        async for _ in generation:
            pass
    except EngineError:
        log.exception("a prefetch failed")
