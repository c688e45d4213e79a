"""Runs the work of commands and screens outside of the app's message loop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tui.app_context import AppContext

SYNCHRONOUS_SECONDS = 0.05
"""Time that work runs before the next key is handled: most work ends within it."""
CLOSING_SECONDS = 1.0


class BackgroundWork:
    """The pieces of work that run; Esc cancels them. ``on_end`` is awaited after each one."""

    def __init__(self, app: AppContext, on_end: Callable[[], Awaitable[None]]) -> None:
        self._app, self._on_end = app, on_end
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether any work runs, other than the caller."""
        return bool(self._running - {asyncio.current_task()})

    async def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a piece of work; returns at its end or before. The app reports what it raises."""
        task = asyncio.create_task(self._run(work))
        self._running.add(task)
        await asyncio.wait({task}, timeout=SYNCHRONOUS_SECONDS)

    def cancel(self) -> bool:
        """Cancel what runs; return whether there was any."""
        for task in self._running:
            task.cancel()
        return bool(self._running)

    async def close(self) -> None:
        self._closed = True
        if self.cancel():
            await asyncio.wait(self._running, timeout=CLOSING_SECONDS)

    async def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await work
        except asyncio.CancelledError:
            if self._closed:
                return
            self._app.notify("Stopped.")
        except Exception as error:
            self._app.report(error)
        finally:
            self._running.discard(task)
        await self._on_end()
