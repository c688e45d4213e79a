"""The local engine: llama.cpp runs any GGUF that it can load, in a thread of this process that loads
the model, runs all generations, and frees the model."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.engine.forced_tokens import ForcedTokens
from agent.engine.llama import disk_cache
from agent.engine.llama.disk_cache import DiskCache, DiskCacheOptions
from agent.engine.llama.token_stream import TokenStream
from agent.engine.placement.placement import MAX_DRAFT_TOKENS, Placement, ThreadCounts
from agent.engine.protocol import EngineBusyError, EngineError, OutOfMemoryError, Request

if TYPE_CHECKING:
    from agent.engine.llama.model import LlamaModel
    from agent.engine.llama.step_loop import StepLoop

log = logging.getLogger(__name__)

MAX_QUEUED_REQUESTS = 64
"""Requests that may wait for a free sequence; more are refused."""


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
        self.path, self.disk_cache, self.draft = Path(path), disk_cache, draft
        self._worker: EngineWorker | None = None

    @property
    def unfinished(self) -> int:
        return self._worker.unfinished if self._worker else 0

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Load the model; stops when the call that began the load is cancelled. Raises EngineError."""
        is_first = self._worker is None
        worker = self._worker = self._worker or self._start(progress)
        try:
            await asyncio.wrap_future(worker.loaded)
        except BaseException as error:
            if is_first or isinstance(error, EngineError):
                worker.shut_down()
                if self._worker is worker:
                    self._worker = None
            raise
        self.context_length, self.threads = worker.model.context_length, worker.threads

    def _start(self, progress: Callable[[float], None] | None) -> EngineWorker:
        loop = asyncio.get_running_loop()

        def report(done: float) -> None:
            if progress:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(progress, done)

        worker = EngineWorker(self, report)
        worker.start()
        return worker

    def generate(self, request: Request) -> TokenStream:
        worker = self._worker
        if worker is None or not worker.ready:
            raise EngineError("The model is not loaded yet.")
        request.require_room(worker.model.context_length)
        size = worker.model.vocabulary_size
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


class EngineWorker(threading.Thread):
    """One model's thread, from its load to its end. All public members are safe from any thread."""

    # The results of the load:
    model: LlamaModel
    loop: StepLoop
    threads: ThreadCounts

    def __init__(self, engine: LlamaEngine, progress: Callable[[float], None]) -> None:
        super().__init__(name="llama.cpp", daemon=True)
        self.loaded: Future[None] = Future()
        """Done after the load; it may have an EngineError."""
        self._models: list[LlamaModel] = []
        """The model, and its draft model if it has one."""
        self.loaded.set_running_or_notify_cancel()
        self._engine, self._placement = engine, engine.placement
        self._progress = progress
        self._percent = -1
        self._inbox: SimpleQueue[tuple[Request, TokenStream] | None] = SimpleQueue()
        self._max_unfinished = engine.placement.sequences + MAX_QUEUED_REQUESTS
        self.unfinished = 0
        """Requests that have not ended, without background ones."""
        self._count_lock = threading.Lock()
        self._shutting_down = False
        atexit.register(self._at_exit)

    @property
    def ready(self) -> bool:
        return self.loaded.done() and self.loaded.exception() is None

    def submit(self, request: Request, stream: TokenStream) -> None:
        """Queue a request, whose output goes to its stream. Raises EngineBusyError."""
        if not request.background:
            with self._count_lock:
                if self.unfinished >= self._max_unfinished and not request.continues_turn:
                    raise EngineBusyError(
                        f"{self.unfinished} requests are being served: try again later."
                    )
                self.unfinished += 1
            if self.loop.runs_background:
                self._abort()
        self._inbox.put((request, stream))

    def interrupt(self, stream: TokenStream) -> None:
        """Abort the native call that works for `stream`, which was cancelled."""
        if stream.begun:
            self._abort()
        self._inbox.put(None)

    def shut_down(self) -> None:
        """Cancel all generations, abort a load, free everything and end the thread."""
        self._shutting_down = True
        if self.ready:
            self._abort()
        self._inbox.put(None)

    def _abort(self) -> None:
        for model in self._models:
            model.abort()

    def _at_exit(self) -> None:
        self.shut_down()
        if self.is_alive():  # there may have been no memory to start it
            self.join(timeout=5)

    def run(self) -> None:
        try:
            self._load()
        except Exception as error:
            # llama.cpp's threads need memory too.
            if isinstance(error, MemoryError) or "can't start new thread" in str(error):
                path = self._engine.path
                error = OutOfMemoryError(f"There is not enough memory to load {path}.")
            self.loaded.set_exception(error)
        else:
            self.loaded.set_result(None)
            try:
                while not self._shutting_down:
                    self.loop.run_step()
            finally:
                try:
                    self.loop.close()
                finally:
                    self._close_models()
        atexit.unregister(self._at_exit)

    def _close_models(self) -> None:
        for model in self._models:
            model.close()

    def _load(self) -> None:
        try:  # imported here, since this loads the native library
            from agent.engine.llama.draft_model import Drafting, DraftModel
            from agent.engine.llama.model import LlamaModel
            from agent.engine.llama.processor import usable_cores
            from agent.engine.llama.speculation import DraftPlanner
            from agent.engine.llama.step_loop import StepLoop
            from agent.engine.llama.thread_tuning import measure_threads
        except (ImportError, OSError, RuntimeError) as error:
            raise EngineError(
                f"llama.cpp cannot be loaded ({error}): install llama-cpp-python again."
            ) from error
        engine = self._engine
        self.model = model = LlamaModel(engine.path, self._placement, self._on_progress)
        self._models.append(model)
        try:
            sequences = self._placement.sequences
            max_drafted = min(MAX_DRAFT_TOKENS, model.ubatch - sequences)
            is_off, draft_model = self._placement.speculation == "off", None
            lookup = None if is_off else DraftPlanner(max_drafted)
            if engine.draft is not None and model.can_save_ranges:
                draft = self._load_draft(engine.draft, model.vocabulary_size)
                self._models.append(draft)
                draft_model = DraftModel(draft, sequences, max_drafted)
            drafting = Drafting(lookup, draft_model) if lookup or draft_model else None
            disk = self._open_disk_cache() if model.can_save_ranges else None
            self.loop = StepLoop(model, sequences, self._inbox, self._on_ended, disk, drafting)
            self.threads = threads = engine.threads or measure_threads(model)
            for each in self._models:
                each.set_threads(threads.decode, threads.prefill)
                if engine.threads is None and not self._placement.gpu_layers:
                    each.balance_threads(threads, usable_cores())
        except BaseException:
            self._close_models()
            raise
        log.info("%s loaded, %s", engine.path, threads)

    def _load_draft(self, path: Path, vocabulary_size: int) -> LlamaModel:
        from agent.engine.llama.model import LlamaModel

        placement = self._placement.draft or replace(self._placement, speculation="off")
        model = LlamaModel(path, placement, lambda done: not self._shutting_down)
        reason = ""
        if model.vocabulary_size != vocabulary_size:
            reason = f"it has {model.vocabulary_size:,} tokens and the model {vocabulary_size:,}"
        elif not model.can_save_ranges:
            reason = "it has recurrent layers"
        if reason:
            model.close()
            raise EngineError(f"{path} cannot be the draft model: {reason}.")
        log.info("%s loaded, the draft model", path)
        return model

    def _open_disk_cache(self) -> DiskCache | None:
        if (options := self._engine.disk_cache) is None:
            return None
        import llama_cpp

        try:
            limit = disk_cache.byte_limit(options)
            name = disk_cache.fingerprint(self._engine.path, self._placement, llama_cpp.__version__)
        except OSError as error:
            log.warning("the prefix cache on disk is not used: %s", error)
            return None
        return DiskCache(options.folder / name, limit) if limit > 0 else None

    def _on_ended(self, request: Request) -> None:
        if not request.background:
            with self._count_lock:
                self.unfinished -= 1

    def _on_progress(self, done: float) -> bool:
        if (percent := int(done * 100)) != self._percent:
            self._percent = percent
            self._progress(done)
        return not self._shutting_down
