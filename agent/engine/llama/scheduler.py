"""Decides which job does what in the next step of the model, which all running jobs share. A job that
decodes feeds its last token, one that still prefills a chunk of its prompt, a small one while others
decode, so that no stream pauses for long. It is pure: it knows neither threads nor llama.cpp."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agent.engine.forced_tokens import ForcedTokens
from agent.engine.llama.prefix_cache import (
    CHECKPOINT_INTERVAL_TOKENS,
    MIN_REUSE_TOKENS,
    KvSequence,
    PrefixCache,
)
from agent.engine.protocol import Request
from agent.util.prefix import common_prefix_length

if TYPE_CHECKING:
    from agent.engine.llama.sampler import Sampler
    from agent.engine.llama.speculation import Drafter
    from agent.engine.llama.token_stream import TokenStream

MAX_CHUNK_SECONDS = 0.05
"""Seconds that a prefill chunk may take while other jobs decode."""
MIN_CHUNK_TOKENS = 32
"""Tokens of a chunk in any case: with fewer, prefill is much slower."""
AUXILIARY_CHECKPOINT_TOKENS = 512
"""Tokens between an auxiliary prompt's checkpoints: the next is often for a neighbouring token."""
MAX_BACKGROUND_JOBS = 4
"""Background jobs that are kept waiting; the oldest are dropped."""


@dataclass(eq=False, slots=True)
class GenerationJob:
    """One request from its arrival to its end."""

    request: Request
    stream: TokenStream
    ids: list[int]
    """The prompt, then the generated tokens."""
    max_generated: int
    sequence: KvSequence | None = None
    checkpoints_at: set[int] = field(default_factory=set)
    """Positions in the prompt where a chunk ends and a checkpoint is saved."""
    last_checkpoint: int = 0
    waits_for: tuple[GenerationJob, int] | None = None
    """(job, n): start only after ``job`` has prefilled ``n`` tokens, the prefix that both share."""
    restoring: Generator[bool] | None = None
    """Reads what is on disk of the prompt, a segment for each step."""
    start_order: int = 0
    """Rank among all jobs by their first start; 0: not started yet."""
    cached_tokens: int = 0
    """Prompt tokens that were in the KV cache at the first start."""
    generated: int = 0
    sampler: Sampler | None = None
    drafter: Drafter | None = None
    drafted: int = 0
    """Drafted tokens that a step verified."""
    accepted: int = 0
    """Number of drafted tokens that were sampled."""
    began_at: float = 0.0
    """perf_counter at the first start."""
    prefilled_at: float = 0.0
    """perf_counter at the end of the prefill."""

    @property
    def prompt_length(self) -> int:
        return len(self.ids) - self.generated

    @property
    def position(self) -> int:
        return len(self.sequence.ids) if self.sequence else 0

    @property
    def remaining(self) -> int:
        """Tokens that are not in the KV cache yet; with one left the job samples in the next step."""
        return len(self.ids) - self.position

    @property
    def is_auxiliary(self) -> bool:
        """Whether it goes back in a conversation whose sequence must stay; it then runs alone."""
        return self.request.background and self.request.auxiliary

    @property
    def forced_tokens(self) -> ForcedTokens | None:
        constraint = self.request.constraint
        return constraint if isinstance(constraint, ForcedTokens) else None

    def upcoming(self, limit: int) -> list[int]:
        """The given tokens behind the next one to feed, ``limit`` at most; the last one is sampled."""
        if (forced := self.forced_tokens) is None:
            return []
        return forced.upcoming(min(limit, self.max_generated - self.generated - 1))

    @property
    def awaiting_grammar(self) -> bool:
        """Whether the job samples next under a grammar that is still being compiled."""
        constraint = self.request.constraint
        if constraint is None or (grammar := constraint.pending) is None:
            return False
        return self.remaining == 1 and not grammar.done()


class StepShare(NamedTuple):
    """Number of tokens that a job feeds in a step."""

    job: GenerationJob
    tokens: int


class Scheduler:
    """Keeps the waiting and running jobs and plans the steps."""

    def __init__(self, cache: PrefixCache, step_tokens: int) -> None:
        self._cache, self._step_tokens = cache, step_tokens
        self._seconds_per_token = MAX_CHUNK_SECONDS / MIN_CHUNK_TOKENS
        """Prefill time of a token, a moving average of the last few steps."""
        self.waiting: deque[GenerationJob] = deque()
        self.running: list[GenerationJob] = []
        self.background: deque[GenerationJob] = deque()
        """Background jobs that wait; they run one at a time, when no other job runs or waits."""
        self._out_of_cells = False
        """The KV cache is full: no job starts before another one has ended."""
        self._started_count = 0

    @property
    def jobs(self) -> list[GenerationJob]:
        return [*self.running, *self.waiting, *self.background]

    def add(self, job: GenerationJob) -> GenerationJob | None:
        """Queue a new job; return a background job that is dropped for it, if any. A foreground job
        stops the background jobs that run; they wait again."""
        if not job.request.background:
            self.waiting.append(job)
            for other in [other for other in self.running if other.request.background]:
                self._requeue(other, self.background)
            return None
        self.background.appendleft(job)
        return self.background.pop() if len(self.background) > MAX_BACKGROUND_JOBS else None

    def start_ready(self) -> list[GenerationJob]:
        """Start the jobs that can start; return them, oldest first. A background prefill whose prompt
        is in the KV cache already is returned without a sequence."""
        started: list[GenerationJob] = []
        for job in list(self.waiting):
            if self._out_of_cells or not self._cache.free_sequences:
                break
            if not self._must_wait(job):
                self.waiting.remove(job)
                self._start(job)
                started.append(job)
        if self.background and not self.running and not self.waiting:
            started.append(job := self.background.popleft())
            cached = (s.ids[: len(job.ids)] == job.ids for s in self._cache.sequences)
            if not job.max_generated and any(cached):
                job.cached_tokens = len(job.ids)
            else:
                self._start(job)
        return started

    def _must_wait(self, job: GenerationJob) -> bool:
        """Whether a running job is prefilling a prefix that this job needs too. Computing the prefix
        once and copying it is faster than prefilling it twice side by side; it has to be longer by
        MIN_REUSE_TOKENS than what is already in the KV cache."""
        if job.waits_for is None:
            prefilling = [other for other in self.running if other.remaining > 1]
            ids = job.ids[:-1]
            prefixes = [(common_prefix_length(other.ids, ids), other) for other in prefilling]
            longest, other = max(prefixes, key=lambda pair: pair[0], default=(0, job))
            if longest < max(other.position, self._cache.reusable(job.ids)) + MIN_REUSE_TOKENS:
                return False
            job.waits_for = (other, longest)
            other.checkpoints_at.add(longest)
        other, prefix_length = job.waits_for
        if other in self.running and other.position < prefix_length:
            return True
        job.waits_for = None
        return False

    def _start(self, job: GenerationJob) -> None:
        self.running.append(job)
        if job.is_auxiliary:
            acquired = self._cache.acquire_spare(job.ids)
        else:
            acquired = self._cache.acquire(job.ids, job.request.background)
        job.sequence = acquired.sequence
        job.last_checkpoint = acquired.cached_tokens
        job.checkpoints_at = {len(job.ids) - 1, job.request.head_tokens}
        job.sequence.savable_tokens = job.request.head_tokens if job.request.private else None
        if acquired.shared_prefix >= acquired.cached_tokens + MIN_REUSE_TOKENS:
            job.checkpoints_at.add(acquired.shared_prefix)
        if not job.start_order:
            self._started_count += 1
            job.start_order, job.cached_tokens = self._started_count, acquired.cached_tokens
        if job.is_auxiliary:
            marks = range(acquired.cached_tokens, len(job.ids), AUXILIARY_CHECKPOINT_TOKENS)
            job.checkpoints_at.update(marks)
        elif stored := self._cache.stored(job.ids, acquired.cached_tokens):
            job.restoring = job.sequence.restore(stored)
            return
        self._checkpoint_if_due(job)

    @property
    def restoring(self) -> bool:
        return any(job.restoring for job in self.running)

    def restore_step(self) -> None:
        """Read a segment for one job; it continues from the length that could be read."""
        job = next(job for job in self.running if job.restoring)
        assert job.restoring is not None and job.sequence is not None
        has_room = next(job.restoring, None)
        if has_room is None or not (has_room or self._cache.evict()):
            job.restoring.close()
            job.restoring = None
            if not job.generated:
                job.cached_tokens = job.position
            job.last_checkpoint = job.position
            self._checkpoint_if_due(job)

    def plan(self) -> list[StepShare]:
        """Plan the next step: one token of each job that decodes, then chunks of those that prefill.
        Returns at most `step_tokens` tokens, none if no job can do anything."""
        shares = [
            StepShare(job, 1)
            for job in self.running
            if job.remaining == 1 and not (job.awaiting_grammar or job.restoring)
        ]
        if len(shares) < len(self.running):
            budget = self._step_tokens - len(shares)
            if shares:
                tokens_in_time = int(MAX_CHUNK_SECONDS / self._seconds_per_token)
                budget = min(budget, max(MIN_CHUNK_TOKENS, tokens_in_time))
            for job in self.running:
                if job.remaining > 1 and budget > 0 and not job.restoring:
                    later = [at for at in job.checkpoints_at if at > job.position]
                    end = min(later, default=len(job.ids) - 1)
                    count = min(budget, end - job.position)
                    shares.append(StepShare(job, count))
                    budget -= count
        return shares

    def step_done(self, shares: list[StepShare], seconds: float) -> None:
        if (tokens := sum(share.tokens for share in shares)) >= MIN_CHUNK_TOKENS:
            self._seconds_per_token += (seconds / tokens - self._seconds_per_token) / 2
        for job, count in shares:
            assert job.sequence is not None
            position = job.position
            job.sequence.ids += job.ids[position : position + count]
            if count < len(job.ids) - position:
                self._checkpoint_if_due(job)
                self.running.remove(job)  # behind those whose prompts had no chunk in this step
                self.running.append(job)

    def _checkpoint_if_due(self, job: GenerationJob) -> None:
        position = job.position
        is_late = position - job.last_checkpoint >= CHECKPOINT_INTERVAL_TOKENS
        if job.sequence and (is_late or position in job.checkpoints_at):
            job.sequence.save_checkpoint()
            job.last_checkpoint = position

    def make_room(self) -> GenerationJob | None:
        """Free cells of the full KV cache: evict an idle sequence, or else requeue the youngest job.
        Returns the only running job if there is nothing else to free."""
        first = self.running[0]
        if self._cache.evict(first.ids if first.is_auxiliary else None):
            return None
        job = max(self.running, key=lambda job: job.start_order)
        if len(self.running) == 1:
            return job
        self._requeue(job, self.waiting)
        self._out_of_cells = True
        return None

    def _requeue(self, job: GenerationJob, queue: deque[GenerationJob]) -> None:
        self.remove(job)
        queue.appendleft(job)

    def remove(self, job: GenerationJob) -> None:
        if job.restoring:
            job.restoring.close()
            job.restoring = None
        if job in self.running:
            self.running.remove(job)
            self._out_of_cells = False
        elif job in self.waiting:
            self.waiting.remove(job)
        elif job in self.background:
            self.background.remove(job)
        if job.sequence:
            self._cache.release(job.sequence)
            job.sequence = None
