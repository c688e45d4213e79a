"""The local engine: llama.cpp in a thread of this process runs any GGUF that it can load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agent.engine.forced_tokens import ForcedTokens
from agent.engine.llama.disk_cache import DiskCacheOptions
from agent.engine.llama.token_stream import TokenStream
from agent.engine.llama.worker import EngineWorker
from agent.engine.placement.placement import Placement
from agent.engine.protocol import EngineError, Request

if TYPE_CHECKING:
    from agent.engine.placement.placement import ThreadCounts


class LlamaEngine:
    """A GGUF run by llama.cpp; requests run side by side, and further ones queue up."""

    name = "llama.cpp"

    def __init__(
        self,
        path: Path,
        *,
        placement: Placement | None = None,
        threads: ThreadCounts | None = None,
        disk_cache: DiskCacheOptions | None = None,
        draft: Path | None = None,
    ) -> None:
        """Loads nothing yet. `threads` are measured by the first load if None. ``disk_cache``: where
        prefixes outlive the process; None: nowhere. ``draft``: the file of the draft model."""
        self.placement = placement or Placement()
        self.context_length = self.placement.context
        self.threads = threads
        """Measured by the last load; the next load uses them again."""
        self._path = Path(path)
        self._disk_cache = disk_cache
        self._draft = draft
        self._worker: EngineWorker | None = None

    @property
    def unfinished(self) -> int:
        return self._worker.unfinished if self._worker else 0

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Load the model; stops when the call that began the load is cancelled. Raises EngineError."""
        is_first = self._worker is None
        worker = self._worker = self._worker or self._start(progress)
        try:
            loaded = await asyncio.wrap_future(worker.loaded)
        except BaseException as error:
            if is_first or isinstance(error, EngineError):
                worker.shut_down()
                if self._worker is worker:
                    self._worker = None
            raise
        self.context_length = loaded.model.context_length
        self.threads = worker.threads

    def _start(self, progress: Callable[[float], None] | None) -> EngineWorker:
        loop = asyncio.get_running_loop()

        def report(done: float) -> None:
            if progress:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(progress, done)

        worker = EngineWorker(
            self._path, self.placement, self.threads, report, self._disk_cache, self._draft
        )
        worker.start()
        return worker

    def generate(self, request: Request) -> TokenStream:
        worker = self._worker
        if worker is None or not worker.ready:
            raise EngineError("The model is not loaded yet.")
        model = worker.loaded.result().model
        request.require_room(model.context_length)
        size = model.vocabulary_size
        if not _are_in_vocabulary(request.prompt, size):
            raise EngineError("The prompt has tokens that are not in the model's vocabulary.")
        forced = request.constraint
        if isinstance(forced, ForcedTokens) and not _are_in_vocabulary(forced.ids, size):
            raise EngineError("There are tokens to score that are not in the model's vocabulary.")
        stream = TokenStream(worker.interrupt, live=request.streamed)
        worker.submit(request, stream)
        return stream

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker:
            worker.shut_down()
            await asyncio.to_thread(worker.join)


def _are_in_vocabulary(ids: Sequence[int], size: int) -> bool:
    return not ids or 0 <= min(ids) <= max(ids) < size
