"""Which job does what in the next step: all that run share each step of the model.

A job that speaks feeds its last token; one that still reads its prompt feeds a chunk. Beside others
who speak the chunks are small, so that nobody's stream stands still for long.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from agent.engine.llama.prefix_cache import APART, WORTH, Cache, Sequence, common
from agent.engine.protocol import Request

if TYPE_CHECKING:
    from agent.engine.llama.sampler import Sampler
    from agent.engine.llama.token_stream import Stream

STANDSTILL = 0.05
"""Seconds that a chunk may take while others speak."""
LEAST = 32
"""Tokens of a chunk in any case: with fewer, prompts are read much slower."""
AHEAD = 4
"""Requests for work ahead that are remembered; the oldest go first."""


@dataclass(eq=False, slots=True)
class Job:
    """One request on its way."""

    request: Request
    stream: Stream
    ids: list[int]
    """The prompt, then what was said."""
    limit: int
    """Tokens to say at most."""
    sequence: Sequence | None = None
    marks: set[int] = field(default_factory=set)
    """Places in the prompt where a chunk ends and the sequence is remembered."""
    saved: int = 0
    """The last such place."""
    after: tuple[Job, int] | None = None
    """It waits until that job has read so far, because their prompts begin alike."""
    order: int = 0
    """When it was begun first."""
    cached: int = 0
    said: int = 0
    sampler: Sampler | None = None
    began: float = 0.0
    prefilled: float = 0.0

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.ids) - self.said

    @property
    def number(self) -> int:
        """Of its sequence."""
        assert self.sequence is not None
        return self.sequence.number

    @property
    def at(self) -> int:
        """Tokens in memory."""
        return len(self.sequence.ids) if self.sequence else 0

    @property
    def left(self) -> int:
        """Tokens that are not in memory yet; a job with one is about to speak."""
        return len(self.ids) - self.at

    @property
    def held(self) -> bool:
        """It is about to speak under a grammar that is still being compiled."""
        constraint = self.request.constraint
        if constraint is None or (grammar := constraint.pending) is None:
            return False
        return self.left == 1 and not grammar.done()


class Share(NamedTuple):
    """How many tokens a job feeds in a step."""

    job: Job
    tokens: int


class Scheduler:
    """Who waits and who runs; it knows nothing of threads or llama.cpp."""

    def __init__(self, cache: Cache, step: int) -> None:
        """`step`: tokens of a step at most."""
        self._cache = cache
        self._step = step
        self._pace = STANDSTILL / LEAST
        """Seconds in which a token of a prompt is read, by the last few steps."""
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.ahead: deque[Job] = deque()
        self._held = False
        """No cells were left: nobody begins before somebody has ended."""
        self._orders = 0

    @property
    def jobs(self) -> list[Job]:
        """All that have not ended."""
        return [*self.running, *self.waiting, *self.ahead]

    def add(self, job: Job) -> Job | None:
        """A new job waits for its turn; returns one that is to be dropped for it, if any."""
        if not job.request.idle:
            self.waiting.append(job)
            for other in [other for other in self.running if other.request.idle]:
                self._put_back(other, self.ahead)
            return None
        self.ahead.appendleft(job)
        return self.ahead.pop() if len(self.ahead) > AHEAD else None

    def begin(self) -> list[Job]:
        """Let those begin that can; returns them, oldest first."""
        begun: list[Job] = []
        for job in list(self.waiting):
            if self._held or not self._cache.free:
                break
            if not self._waits(job):
                self.waiting.remove(job)
                self._start(job)
                begun.append(job)
        if self.ahead and not self.running and not self.waiting:
            begun.append(job := self.ahead.popleft())
            if not job.limit and self._cache.holds(job.ids):
                job.cached = len(job.ids)
            else:
                self._start(job)
        return begun

    def _waits(self, job: Job) -> bool:
        """Whether a running job reads what this one needs as well."""
        if job.after is None:
            reading = [other for other in self.running if other.left > 1]
            same = [(common(other.ids, job.ids[:-1]), other) for other in reading]
            most, other = max(same, key=lambda pair: pair[0], default=(0, job))
            if most < max(other.at, self._cache.usable(job.ids)) + WORTH:
                return False
            job.after = (other, most)
            other.marks.add(most)
        other, until = job.after
        if other in self.running and other.at < until:
            return True
        job.after = None
        return False

    def _start(self, job: Job) -> None:
        self.running.append(job)
        place = self._cache.take(job.ids, job.request.idle)
        job.sequence = place.sequence
        job.saved = place.kept
        job.marks = {len(job.ids) - 1}
        if place.fork >= place.kept + WORTH:
            job.marks.add(place.fork)
        if not job.order:
            self._orders += 1
            job.order, job.cached = self._orders, place.kept
        self._remember(job)

    def plan(self) -> list[Share]:
        """The next step: a token of everyone who speaks, and a chunk of those who read, in turn."""
        shares = [Share(job, 1) for job in self.running if job.left == 1 and not job.held]
        if len(shares) < len(self.running):
            room = self._step - len(shares)
            if shares:
                room = min(room, max(LEAST, int(STANDSTILL / self._pace)))
            for job in self.running:
                if job.left > 1 and room > 0:
                    count = min(room, self._stretch(job))
                    shares.append(Share(job, count))
                    room -= count
        return shares

    def _stretch(self, job: Job) -> int:
        """Tokens until the next place to stop at."""
        at = job.at
        return min((mark for mark in job.marks if mark > at), default=len(job.ids) - 1) - at

    def fed(self, shares: list[Share], seconds: float) -> None:
        """The step was done and took so long: everyone has that much more in memory."""
        if (tokens := sum(share.tokens for share in shares)) >= LEAST:
            self._pace += (seconds / tokens - self._pace) / 2
        for job, count in shares:
            assert job.sequence is not None
            at = job.at
            job.sequence.ids += job.ids[at : at + count]
            if count < len(job.ids) - at:
                self._remember(job)
                self.running.remove(job)  # behind those who did not read in this step
                self.running.append(job)

    def _remember(self, job: Job) -> None:
        at = job.at
        if job.sequence and (at in job.marks or at - job.saved >= APART):
            job.sequence.checkpoint()
            job.saved = at

    def make_room(self) -> Job | None:
        """No cells were left for the step: what is idle goes first, then the youngest job waits
        again. Returns the only job, if there is nobody else to make room."""
        if self._cache.evict():
            return None
        job = max(self.running, key=lambda job: job.order)
        if len(self.running) == 1:
            return job
        self._put_back(job, self.waiting)
        self._held = True
        return None

    def _put_back(self, job: Job, queue: deque[Job]) -> None:
        self.remove(job)
        queue.appendleft(job)

    def remove(self, job: Job) -> None:
        """The job has ended, wherever it was; its sequence is free."""
        if job in self.running:
            self.running.remove(job)
            self._held = False
        elif job in self.waiting:
            self.waiting.remove(job)
        elif job in self.ahead:
            self.ahead.remove(job)
        if job.sequence:
            self._cache.give_back(job.sequence)
            job.sequence = None
