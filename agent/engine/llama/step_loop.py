"""Runs the model step by step: `run_step` takes new requests, the scheduler plans the jobs' shares,
`_decode_shares` feeds them to llama.cpp in one batch, and each job whose prompt is complete samples a
token. A job that is alone decodes in `_decode_solo`, with little around each token."""

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from agent.engine.llama.disk_cache import DiskCache
from agent.engine.llama.draft_model import Drafting
from agent.engine.llama.model import BatchSpan, DecodeOutcome, LlamaModel
from agent.engine.llama.prefix_cache import PrefixCache
from agent.engine.llama.sampler import Sampler
from agent.engine.llama.scheduler import GenerationJob, Scheduler, StepShare
from agent.engine.llama.token_stream import TokenStream
from agent.engine.placement.placement import MAX_FORCED_TOKENS
from agent.engine.protocol import EngineError, Finished, FinishReason, Prefill, Request

log = logging.getLogger(__name__)

Inbox = SimpleQueue[tuple[Request, TokenStream] | None]
"""New requests; None only wakes the loop, to see what was cancelled or compiled."""


SAVE_IDLE_SECONDS = 0.5
"""Seconds without a request after which prefixes are written to disk."""
CLOSE_SECONDS = 2.0
"""Seconds that the end may take for what is not on disk yet."""


class StepLoop:
    """The work of the engine's thread with a loaded model."""

    def __init__(
        self,
        model: LlamaModel,
        sequences: int,
        inbox: Inbox,
        on_ended: Callable[[Request], None],
        disk: DiskCache | None = None,
        drafting: Drafting | None = None,
    ) -> None:
        """`on_ended` is called once for each request whose generation has ended. ``disk``: None: no
        prefix outlives the process. ``drafting``: None: no drafts."""
        self._model = model
        self._cache = PrefixCache(model, sequences, disk)
        self._saves = False
        """Whether prefixes are being written to disk, until the next request."""
        self._scheduler = Scheduler(self._cache, model.ubatch)
        self._drafting = drafting if model.can_save_ranges else None
        self._max_forced = 0
        if model.can_save_ranges:
            self._max_forced = max(0, min(MAX_FORCED_TOKENS, model.ubatch - sequences))
        self._inbox, self._on_ended = inbox, on_ended
        self.runs_background = False
        """Whether the running step is a background job's, which any other request interrupts."""
        self._nothing_runnable = True
        """Whether no job is runnable: there are none, or all wait for a grammar."""

    def run_step(self) -> None:
        """Run one step of all running jobs; blocks on the inbox while none is runnable."""
        try:
            if not (self._nothing_runnable and self._cache.unsaved):
                self._receive(wait=self._nothing_runnable)
            elif self._is_idle():
                self._cache.save_step()
                return
            self._advance()
        except Exception as error:
            for job in list(self._scheduler.running):  # the KV cache is in doubt
                self._fail(job, error)
            self._cache.reset()
            self._nothing_runnable = False  # waiting jobs may start now

    def _is_idle(self) -> bool:
        """Wait a moment for a request; return whether none came."""
        try:
            new = self._inbox.get(timeout=0.001 if self._saves else SAVE_IDLE_SECONDS)
        except Empty:
            self._saves = True
            return True
        self._saves = False
        self._take(new)
        self._receive(wait=False)
        return False

    def _advance(self) -> None:
        scheduler = self._scheduler
        for job in scheduler.jobs:
            if job.stream.cancelled:
                self._end(job, "cancelled")
        for job in (started := scheduler.start_ready()):
            self._begin(job)
        if scheduler.restoring:
            scheduler.restore_step()
        shares = scheduler.plan()
        self._nothing_runnable = not (started or shares or scheduler.restoring)
        if not shares:
            return
        self.runs_background = shares[0].job.request.background
        if len(shares) == 1 and shares[0].job.remaining == 1 and not scheduler.waiting:
            self._decode_solo(shares[0].job)
        else:
            began_at = time.perf_counter()
            self._decode_shares(shares, self._draft(shares), began_at)

    def close(self) -> None:
        self._receive(wait=False)
        for job in self._scheduler.jobs:
            self._end(job, "cancelled")
        until = time.monotonic() + CLOSE_SECONDS
        while self._cache.unsaved and time.monotonic() < until:
            self._cache.save_step()
            self._cache.flush(until - time.monotonic())

    # --- starting ---

    def _receive(self, wait: bool) -> None:
        while wait or not self._inbox.empty():
            wait = False
            self._take(self._inbox.get())

    def _take(self, new: tuple[Request, TokenStream] | None) -> None:
        if new is None:
            return
        request, stream = new
        room = self._model.context_length - len(request.prompt)
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        job = GenerationJob(request, stream, list(request.prompt), limit)
        if dropped := self._scheduler.add(job):
            self._end(dropped, "cancelled")

    def _begin(self, job: GenerationJob) -> None:
        if not job.stream.begin():
            self._end(job, "cancelled")
            return
        if job.sequence is None:
            job.stream.put(Prefill(job.cached_tokens, job.prompt_length, job.cached_tokens))
            self._end(job, "length")
            return
        job.began_at = job.began_at or time.perf_counter()
        job.sampler = job.sampler or Sampler(job.request, self._model.vocabulary_size)
        if not job.generated:
            job.stream.put(Prefill(job.position, job.prompt_length, job.cached_tokens))
        self._wake_when_grammar_done(job)

    def _wake_when_grammar_done(self, job: GenerationJob) -> None:
        if (constraint := job.request.constraint) and (grammar := constraint.pending):
            grammar.add_done_callback(lambda _: self._inbox.put(None))

    # --- a step ---

    def _decode_shares(
        self, shares: list[StepShare], drafts: list[list[int]], began_at: float
    ) -> bool:
        """Feed each job's share in one batch, and sample where nothing is left to feed; False: nothing
        was decoded. ``began_at``: perf_counter before the drafts."""
        drafted = sum(map(len, drafts))
        spans = []
        for (job, count), draft in zip(shares, drafts, strict=True):
            assert job.sequence is not None
            start, is_last = job.position, count == job.remaining
            ids = job.ids[start : start + count] + draft
            spans.append(BatchSpan(job.sequence.seq_id, ids, start, is_last + len(draft)))
            if len(shares) > 1:
                job.stream.flush()
        outcome = self._model.decode(spans)
        if outcome == "full" and drafted:
            return self._decode_shares(shares, [[] for _ in shares], began_at)
        if not self._is_done(outcome):
            return False
        # A step tells how long drafts take if every job decodes, and none is given tokens.
        if self._drafting is not None and all(
            job.remaining == 1 and job.forced_tokens is None for job, _ in shares
        ):
            self._model.synchronize()
            self._drafting.step_done(len(shares), drafted, time.perf_counter() - began_at)
        self._scheduler.step_done(shares, time.perf_counter() - began_at)
        complete = [pair for pair in zip(shares, drafts, strict=True) if not pair[0].job.remaining]
        output = 0
        for (job, _), draft in complete:
            self._sample_draft(job, output, draft)
            output += 1 + len(draft)
        for job, _ in shares:
            if job.remaining and not job.generated:
                job.stream.put(Prefill(job.position, job.prompt_length, job.cached_tokens))
        return True

    def _draft(self, shares: list[StepShare]) -> list[list[int]]:
        """Draft for each job, where all decode; tokens that are given are the only drafts."""
        jobs = [job for job, _ in shares]
        if any(job.remaining > 1 for job in jobs):
            return [[] for _ in jobs]
        if forced := sum(job.forced_tokens is not None for job in jobs):
            return [job.upcoming(self._max_forced // forced) for job in jobs]
        if self._drafting is None or jobs[0].is_auxiliary:
            return [[] for _ in jobs]
        return self._drafting.draft(jobs)

    def _sample_draft(self, job: GenerationJob, output: int, draft: list[int]) -> None:
        """Sample a job's tokens for as long as they are those of its draft, and remove the rest of it
        from its sequence. ``output``: the first of its outputs in the batch."""
        sequence = job.sequence
        assert sequence is not None
        is_forced = job.forced_tokens is not None
        job.drafted += 0 if is_forced else len(draft)
        for index, token in enumerate(draft):
            is_accepted = self._sample_token(job, output + index, token)
            is_over = job.sequence is None or job.stream.cancelled or job.awaiting_grammar
            if is_over or not is_accepted:
                sequence.drop_rejected()
                if not is_forced:
                    self._verified(index + is_accepted, index + 1)
                return
            sequence.ids.append(token)
        if not is_forced:
            self._verified(len(draft), len(draft))
        self._sample_token(job, output + len(draft))

    def _verified(self, accepted: int, drafted: int) -> None:
        if self._drafting is not None and drafted:
            self._drafting.verified(accepted, drafted)

    def _decode_solo(self, job: GenerationJob) -> None:
        """Generate for the only running job, until it ends or anything else happens."""
        while (
            (sequence := job.sequence)
            and self._inbox.empty()
            and not (job.stream.cancelled or job.awaiting_grammar)
        ):
            began_at = time.perf_counter()
            if self._drafting is not None or job.forced_tokens is not None:
                if job.remaining > 1:
                    return
                share = [StepShare(job, 1)]
                if (drafts := self._draft(share))[0]:
                    if not self._decode_shares(share, drafts, began_at):
                        return
                    continue
            position = len(sequence.ids)
            token = job.ids[position:]
            if not self._is_done(self._model.decode([BatchSpan(sequence.seq_id, token, position)])):
                return
            if self._drafting is not None:
                self._model.synchronize()
                self._drafting.step_done(1, 0, time.perf_counter() - began_at)
            sequence.ids += token
            self._sample_token(job, 0)

    def _is_done(self, outcome: DecodeOutcome) -> bool:
        """Whether a batch was decoded; else make what it needs, and the step is planned again."""
        match outcome:
            case "done":
                return True
            case "stopped":
                self._model.clear_abort()
            case "full":
                if only_job := self._scheduler.make_room():
                    self._end(only_job, "context")
        return False

    def _sample_token(self, job: GenerationJob, output: int, drafted: int | None = None) -> bool:
        """Sample a token from the batch's ``output``, and end the job if it is the last one; return
        whether it is the ``drafted`` one."""
        is_accepted = False
        if not job.generated:
            job.prefilled_at = time.perf_counter()
            job.stream.put(Prefill(job.prompt_length, job.prompt_length, job.cached_tokens))
        if job.max_generated and job.sampler:
            try:
                token = job.sampler.sample(self._model.logits(output))
            except Exception as error:
                self._fail(job, error)
                return False
            is_accepted = token == drafted
            job.accepted += is_accepted and job.forced_tokens is None
            if job.drafter is not None:
                job.drafter.observe(token)
            job.stream.put_token(token, job.sampler.logprob)
            job.ids.append(token)
            job.generated += 1
            self._wake_when_grammar_done(job)
            if token in job.request.stop_ids:
                self._end(job, "stop")
                return is_accepted
        if job.generated >= job.max_generated:
            self._end(job, "length" if job.max_generated == job.request.max_tokens else "context")
        return is_accepted

    # --- ending ---

    def _end(self, job: GenerationJob, reason: FinishReason) -> None:
        self._release(job)
        if not job.stream.ended:
            now = time.perf_counter()
            began_at, prefilled_at = job.began_at or now, job.prefilled_at or now
            durations = prefilled_at - began_at, now - prefilled_at
            tokens = job.prompt_length, job.cached_tokens, job.generated
            drafts = job.drafted, job.accepted
            job.stream.put(Finished(reason, *tokens, *durations, *drafts))

    def _fail(self, job: GenerationJob, error: Exception) -> None:
        """End one job with an error; its sequence is emptied, as its content is in doubt."""
        if not isinstance(error, EngineError):
            log.exception("A generation failed", exc_info=error)
            error = EngineError(f"The engine failed ({error!r}): see the log.")
        if job.sequence:
            job.sequence.clear()
        self._release(job)
        job.stream.put(error)

    def _release(self, job: GenerationJob) -> None:
        self._scheduler.remove(job)
        self._on_ended(job.request)
