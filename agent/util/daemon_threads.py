"""Threads that may hang in the file system, without a program's end having to wait for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, ParamSpec, TypeVar

CLOSE_SECONDS = 1.0
"""So long the end waits for what still runs."""
P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a thread of its own, so that none waits behind those that hang.

    To be an event loop's default executor, which has to be a `ThreadPoolExecutor`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        future.set_running_or_notify_cancel()
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        Thread(target=run, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what runs, but not for ever (in place of the base class's)."""
        if wait:
            futures.wait(list(self._running), CLOSE_SECONDS)
