"""The thread that owns llama.cpp: it loads, serves one request after the other, and frees."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from agent.engine.base import EngineError, Finished, Prefill, Reason, Request
from agent.engine.placement import Placement
from agent.engine.stream import Stream

if TYPE_CHECKING:
    from agent.engine.cache import Prefix
    from agent.engine.native import Model
    from agent.engine.threads import Threads

log = logging.getLogger(__name__)


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
        self._requests: SimpleQueue[tuple[Request, Stream] | None] = SimpleQueue()
        self._current: Stream | None = None
        self._shut = False
        self._model: Model
        self._prefix: Prefix
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
        """Queue a request; its stream gets everything that comes of it."""
        self._requests.put((request, stream))

    def interrupt(self, stream: Stream) -> None:
        """Stop the native call that works for `stream`, which has been cancelled."""
        if self._current is stream:
            self._model.stop()

    def shut(self) -> None:
        """Cancel what is queued and running, stop loading, free everything and end."""
        self._shut = True
        if current := self._current:
            current.cancel()
        self._requests.put(None)

    def _exit(self) -> None:
        self.shut()
        self.join(timeout=5)

    def run(self) -> None:
        try:
            self._load()
        except Exception as error:
            self.loaded.set_exception(error)
        else:
            self.loaded.set_result(None)
            while job := self._requests.get():
                self._serve(*job)
            self._model.close()
        atexit.unregister(self._exit)

    def _load(self) -> None:
        try:
            from agent.engine.cache import Prefix
            from agent.engine.native import Model
            from agent.engine.threads import measure
        except (ImportError, OSError, RuntimeError) as error:
            raise EngineError(
                f"llama.cpp cannot be loaded ({error}): install llama-cpp-python again."
            ) from error
        self._model = Model(self._path, self._placement, self._on_progress)
        self._prefix = Prefix(self._model)
        try:
            self.threads = self.threads or measure(self._model)
        except BaseException:
            self._model.close()
            raise
        self._model.set_threads(self.threads.decode, self.threads.prefill)
        log.info("%s loaded, %s", self._path, self.threads)

    def _on_progress(self, done: float) -> bool:
        if (percent := int(done * 100)) != self._percent:
            self._percent = percent
            self._progress(done)
        return not self._shut

    def _serve(self, request: Request, stream: Stream) -> None:
        if not stream.take():
            return
        self._current = stream
        try:
            stream.push(self._generate(request, stream))
        except Exception as error:
            log.exception("A generation failed")
            self._prefix.forget()
            if not isinstance(error, EngineError):
                error = EngineError(f"The engine failed ({error!r}): see the log.")
            stream.push(error)
        finally:
            self._current = None

    def _generate(self, request: Request, stream: Stream) -> Finished:
        start = time.perf_counter()
        self._model.go_on()
        prompt = list(request.prompt)
        cached = 0 if self._ended(stream) else self._prefix.reuse(prompt)
        output: int = 0
        reason: Reason = "cancelled"
        whole = self._prefill(prompt, cached, stream)
        middle = time.perf_counter()
        if whole:
            output, reason = self._decode(request, stream)
        end = time.perf_counter()
        return Finished(reason, len(prompt), cached, output, middle - start, end - middle)

    def _ended(self, stream: Stream) -> bool:
        return stream.cancelled or self._shut

    def _feed(self, ids: list[int], output: bool, stream: Stream) -> bool:
        """Append `ids` to the sequence in memory; False when the stream has been cancelled."""
        while not self._ended(stream):
            if self._model.decode(ids, len(self._prefix.ids), output):
                self._prefix.ids += ids
                return True
            self._model.go_on()  # or the stop was meant for the one before
        return False

    def _prefill(self, prompt: list[int], cached: int, stream: Stream) -> bool:
        """Feed what is not cached, the last token alone, after a checkpoint to retry from."""
        last = len(prompt) - 1
        stream.push(Prefill(cached, len(prompt), cached))
        at = cached
        while at <= last:
            if at == last:
                self._prefix.checkpoint()
            end = min(at + self._model.step, last) if at < last else len(prompt)
            if not self._feed(prompt[at:end], end > last, stream):
                return False
            at = end
            stream.push(Prefill(at, len(prompt), cached))
        return True

    def _decode(self, request: Request, stream: Stream) -> tuple[int, Reason]:
        """Sample until something ends it; returns the number of tokens and the reason."""
        from agent.engine.sampling import Sampler

        sampler = Sampler(request, self._model.vocabulary)
        room = self._model.context_length - len(request.prompt)
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        count = 0
        while count < limit:
            token = sampler.pick(self._model.logits())
            stream.token(token, sampler.logprob)
            count += 1
            if token in request.stop:
                return count, "stop"
            if count < limit and not self._feed([token], True, stream):
                return count, "cancelled"
        return count, "length" if limit == request.max_tokens else "context"
