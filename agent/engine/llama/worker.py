"""The thread that owns llama.cpp: it loads, serves all requests side by side, and frees."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.engine.llama.token_stream import Stream
from agent.engine.placement.placement import Placement
from agent.engine.protocol import Busy, EngineError, OutOfMemory, Request

if TYPE_CHECKING:
    from agent.engine.llama.model import Model
    from agent.engine.llama.step_loop import Loop
    from agent.engine.llama.thread_tuning import Threads

log = logging.getLogger(__name__)

QUEUE = 64
"""Requests that may wait for a free sequence."""


class Worker(threading.Thread):
    """One model's thread, from its load to its end. Everything public is safe from any thread."""

    def __init__(
        self,
        path: Path,
        placement: Placement,
        threads: Threads | None,
        progress: Callable[[float], None],
    ) -> None:
        super().__init__(name="llama.cpp", daemon=True)
        self.loaded: Future[None] = Future()
        """Done when the model is there, or EngineError."""
        self.loaded.set_running_or_notify_cancel()
        self._path = path
        self._placement = placement
        self.threads = threads
        self._progress = progress
        self._percent = -1
        self._inbox: SimpleQueue[tuple[Request, Stream] | None] = SimpleQueue()
        self._most = placement.sequences + QUEUE
        self.unfinished = 0
        """Requests that have not ended, but for work ahead."""
        self._counting = threading.Lock()
        self._shut = False
        self._model: Model
        self._loop: Loop
        atexit.register(self._exit)

    @property
    def ready(self) -> bool:
        return self.loaded.done() and self.loaded.exception() is None

    @property
    def context_length(self) -> int:
        return self._model.context_length

    @property
    def vocabulary(self) -> int:
        return self._model.vocabulary

    def submit(self, request: Request, stream: Stream) -> None:
        """Queue a request; its stream gets everything that comes of it. Raises Busy."""
        if not request.idle:
            with self._counting:
                if self.unfinished >= self._most and not request.follows:
                    raise Busy(f"{self.unfinished} requests are being served: try again later.")
                self.unfinished += 1
            if self._loop.ahead:
                self._model.stop()
        self._inbox.put((request, stream))

    def interrupt(self, stream: Stream) -> None:
        """Stop the native call that works for `stream`, which has been cancelled."""
        if stream.taken:
            self._model.stop()
        self._inbox.put(None)

    def shut(self) -> None:
        """Cancel what is queued and running, stop loading, free everything and end."""
        self._shut = True
        if self.ready:
            self._model.stop()
        self._inbox.put(None)

    def _exit(self) -> None:
        self.shut()
        self.join(timeout=5)

    def run(self) -> None:
        try:
            self._load()
        except Exception as error:
            # Threads need memory too.
            if isinstance(error, MemoryError) or "can't start new thread" in str(error):
                error = OutOfMemory(f"There is not enough memory to load {self._path}.")
            self.loaded.set_exception(error)
        else:
            self.loaded.set_result(None)
            try:
                while not self._shut:
                    self._loop.turn()
            finally:
                self._loop.close()
                self._model.close()
        atexit.unregister(self._exit)

    def _load(self) -> None:
        try:
            from agent.engine.llama.model import Model
            from agent.engine.llama.step_loop import Loop
            from agent.engine.llama.thread_tuning import measure
        except (ImportError, OSError, RuntimeError) as error:
            raise EngineError(
                f"llama.cpp cannot be loaded ({error}): install llama-cpp-python again."
            ) from error
        self._model = Model(self._path, self._placement, self._on_progress)
        self._loop = Loop(self._model, self._placement.sequences, self._inbox, self._ended)
        try:
            self.threads = self.threads or measure(self._model)
        except BaseException:
            self._model.close()
            raise
        self._model.set_threads(self.threads.decode, self.threads.prefill)
        log.info("%s loaded, %s", self._path, self.threads)

    def _ended(self, request: Request) -> None:
        if not request.idle:
            with self._counting:
                self.unfinished -= 1

    def _on_progress(self, done: float) -> bool:
        if (percent := int(done * 100)) != self._percent:
            self._percent = percent
            self._progress(done)
        return not self._shut
