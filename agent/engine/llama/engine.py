"""The engine's asyncio face: llama.cpp in a thread of this process, any GGUF that it can load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agent.engine.llama.token_stream import Stream
from agent.engine.llama.worker import Worker
from agent.engine.placement.placement import Placement
from agent.engine.protocol import ContextOverflow, EngineError, Request

if TYPE_CHECKING:
    from agent.engine.llama.thread_tuning import Threads


class LlamaEngine:
    """A GGUF run by llama.cpp; requests are served side by side, and beyond that queue up."""

    name = "llama.cpp"

    def __init__(
        self, path: Path, *, placement: Placement | None = None, threads: Threads | None = None
    ) -> None:
        """Nothing is loaded yet. `threads` are measured unless given."""
        self.placement = placement or Placement()
        self.context_length = self.placement.context
        self.threads = threads
        """As chosen by the last load; the next one goes by it."""
        self._path = Path(path)
        self._worker: Worker | None = None

    @property
    def unfinished(self) -> int:
        """Generations that run or wait for a sequence, but for work ahead."""
        return self._worker.unfinished if self._worker else 0

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Load the model; `progress` gets 0…1 on the event loop. Raises EngineError.

        Who cancels the call that began the load stops the load.
        """
        began = self._worker is None
        worker = self._worker = self._worker or self._start(progress)
        try:
            await asyncio.wrap_future(worker.loaded)
        except BaseException as error:
            if began or isinstance(error, EngineError):
                worker.shut()
                if self._worker is worker:
                    self._worker = None
            raise
        self.context_length = worker.context_length
        self.threads = worker.threads

    def _start(self, progress: Callable[[float], None] | None) -> Worker:
        loop = asyncio.get_running_loop()

        def report(done: float) -> None:
            if progress:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(progress, done)

        worker = Worker(self._path, self.placement, self.threads, report)
        worker.start()
        return worker

    def generate(self, request: Request) -> Stream:
        """Start generating. Raises EngineError when that cannot be, Busy when too many wait."""
        worker = self._worker
        if worker is None or not worker.ready:
            raise EngineError("The model is not loaded yet.")
        if not request.prompt:
            raise EngineError("The prompt is empty.")
        if len(request.prompt) >= worker.context_length:
            raise ContextOverflow(len(request.prompt), worker.context_length)
        if not 0 <= min(request.prompt) <= max(request.prompt) < worker.vocabulary:
            raise EngineError("The prompt has tokens that are not in the model's vocabulary.")
        stream = Stream(worker.interrupt)
        worker.submit(request, stream)
        return stream

    async def close(self) -> None:
        """Free everything; what runs or waits is cancelled. It can be loaded again."""
        worker, self._worker = self._worker, None
        if worker:
            worker.shut()
            await asyncio.to_thread(worker.join)
