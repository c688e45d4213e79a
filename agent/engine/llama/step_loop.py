"""One step of the model after the other, for everyone who wants something of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import SimpleQueue

from agent.engine.llama.batch import Piece
from agent.engine.llama.model import Model
from agent.engine.llama.prefix_cache import Cache
from agent.engine.llama.sampler import Sampler
from agent.engine.llama.scheduler import Job, Scheduler, Share
from agent.engine.llama.token_stream import Stream
from agent.engine.protocol import EngineError, Finished, Prefill, Reason, Request

log = logging.getLogger(__name__)

Inbox = SimpleQueue[tuple[Request, Stream] | None]
"""New requests; None only wakes the loop to look around."""


class Loop:
    """What the engine's thread does with a loaded model."""

    def __init__(
        self, model: Model, sequences: int, inbox: Inbox, ended: Callable[[Request], None]
    ) -> None:
        """`ended` is called once for each request of the inbox, when nothing comes of it any
        more."""
        self._model = model
        self._cache = Cache(model, sequences)
        self._scheduler = Scheduler(self._cache, model.step)
        self._inbox = inbox
        self._ended = ended
        self.ahead = False
        """What is being computed is work ahead, to be interrupted for everything else."""
        self._idle = True
        """Nobody could do anything: there is nobody, or they wait for their grammars."""

    def turn(self) -> None:
        """One step of everyone who runs; waits while nobody can."""
        self._receive(wait=self._idle)
        try:
            self._advance()
        except Exception as error:
            for job in list(self._scheduler.running):  # the memory is in doubt: nobody can go on
                self._break(job, error)
            self._cache.forget()
            self._idle = False  # others may still wait to begin

    def _advance(self) -> None:
        scheduler = self._scheduler
        for job in scheduler.jobs:
            if job.stream.cancelled:
                self._end(job, "cancelled")
        for job in (begun := scheduler.begin()):
            self._begin(job)
        shares = scheduler.plan()
        self._idle = not (begun or shares)
        if not shares:
            return
        self.ahead = shares[0].job.request.idle
        if len(shares) == 1 and shares[0].job.left == 1 and not scheduler.waiting:
            self._speak_on(shares[0].job)
        else:
            self._step(shares)

    def close(self) -> None:
        """End everything that waits or runs."""
        self._receive(wait=False)
        for job in self._scheduler.jobs:
            self._end(job, "cancelled")

    # --- beginning ---

    def _receive(self, wait: bool) -> None:
        while wait or not self._inbox.empty():
            wait = False
            if new := self._inbox.get():
                request, stream = new
                room = self._model.context_length - len(request.prompt)
                limit = room if request.max_tokens is None else min(room, request.max_tokens)
                job = Job(request, stream, list(request.prompt), limit)
                if dropped := self._scheduler.add(job):
                    self._end(dropped, "cancelled")

    def _begin(self, job: Job) -> None:
        if not job.stream.take():
            self._end(job, "cancelled")
            return
        if job.sequence is None:
            job.stream.push(Prefill(job.cached, job.prompt, job.cached))
            self._end(job, "length")
            return
        job.began = job.began or time.perf_counter()
        job.sampler = job.sampler or Sampler(job.request, self._model.vocabulary)
        if not job.said:
            job.stream.push(Prefill(job.at, job.prompt, job.cached))
        self._watch(job)

    def _watch(self, job: Job) -> None:
        """A grammar that the job needs next wakes the loop when it is compiled."""
        if (constraint := job.request.constraint) and (grammar := constraint.pending):
            grammar.add_done_callback(lambda _: self._inbox.put(None))

    # --- a step ---

    def _step(self, shares: list[Share]) -> None:
        """Feed every job its share; those that have fed all say a token."""
        pieces = []
        for job, count in shares:
            at, last = job.at, count == job.left
            pieces.append(Piece(job.number, job.ids[at : at + count], at, last))
            if len(shares) > 1:
                job.stream.flush()
        start = time.perf_counter()
        if self._feed(pieces):
            self._scheduler.fed(shares, time.perf_counter() - start)
            speakers = [job for job, _ in shares if not job.left]
            for output, job in enumerate(speakers):
                self._say(job, output)
            for job, _ in shares:
                if job.left and not job.said:
                    job.stream.push(Prefill(job.at, job.prompt, job.cached))

    def _speak_on(self, job: Job) -> None:
        """The only one speaks until something else happens: with little around each token."""
        while (
            (sequence := job.sequence)
            and self._inbox.empty()
            and not (job.stream.cancelled or job.held)
        ):
            at = len(sequence.ids)
            token = job.ids[at:]
            if not self._feed([Piece(sequence.number, token, at)]):
                return
            sequence.ids += token
            self._say(job, 0)

    def _feed(self, pieces: list[Piece]) -> bool:
        """Whether it was done; where it was not, what comes next is planned anew."""
        match self._model.decode(pieces):
            case "done":
                return True
            case "stopped":
                self._model.go_on()
            case "full":
                if alone := self._scheduler.make_room():
                    self._end(alone, "context")
        return False

    def _say(self, job: Job, output: int) -> None:
        """Sample one token, and end the job where that was the last."""
        if not job.said:
            job.prefilled = time.perf_counter()
            job.stream.push(Prefill(job.prompt, job.prompt, job.cached))
        if job.limit and job.sampler:
            try:
                token = job.sampler.pick(self._model.logits(output))
            except Exception as error:
                self._break(job, error)
                return
            job.stream.token(token, job.sampler.logprob)
            job.ids.append(token)
            job.said += 1
            self._watch(job)
            if token in job.request.stop:
                self._end(job, "stop")
                return
        if job.said >= job.limit:
            self._end(job, "length" if job.limit == job.request.max_tokens else "context")

    # --- ending ---

    def _end(self, job: Job, reason: Reason) -> None:
        self._leave(job)
        if not job.stream.ended:
            now = time.perf_counter()
            began, prefilled = job.began or now, job.prefilled or now
            measures = prefilled - began, now - prefilled
            job.stream.push(Finished(reason, job.prompt, job.cached, job.said, *measures))

    def _break(self, job: Job, error: Exception) -> None:
        """The job fails alone; what its sequence holds is not trusted any more."""
        if not isinstance(error, EngineError):
            log.exception("A generation failed", exc_info=error)
            error = EngineError(f"The engine failed ({error!r}): see the log.")
        if job.sequence:
            job.sequence.clear()
        self._leave(job)
        job.stream.push(error)

    def _leave(self, job: Job) -> None:
        self._scheduler.remove(job)
        self._ended(job.request)
