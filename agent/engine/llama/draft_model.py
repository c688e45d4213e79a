"""Drafts tokens with a second, small model of the same vocabulary, a sequence of which follows each job
that decodes, a chunk of the prompt before each step. The step verifies its likeliest next tokens
(`agent.engine.llama.speculation`); rejected ones are removed before the next draft."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from agent.engine.llama.model import BatchSpan, LlamaModel
from agent.engine.llama.prefix_cache import KvSequence, PrefixCache
from agent.engine.llama.scheduler import MAX_CHUNK_SECONDS, MIN_CHUNK_TOKENS, GenerationJob
from agent.engine.llama.speculation import Drafter, DraftLengths, DraftPlanner
from agent.engine.placement.placement import MAX_DRAFT_TOKENS

log = logging.getLogger(__name__)

MAX_LAG_TOKENS = 4
"""Tokens that may be read with a draft's first one: two after a right draft; all fit into a batch."""


@dataclass(slots=True)
class _Followed:
    sequence: KvSequence
    confirmed: int = 0
    """Tokens of the sequence that are the job's."""


class DraftModel:
    """The draft model of an engine, used in the engine's thread."""

    def __init__(
        self, model: LlamaModel, sequences: int, max_tokens: int = MAX_DRAFT_TOKENS
    ) -> None:
        """``sequences``: jobs that run side by side. ``max_tokens``: as of `DraftLengths`."""
        self.lengths = DraftLengths(max_tokens)
        self.has_read = False
        """Whether the last call of `draft` has read what it should draft for, too."""
        self._model = model
        self._cache = PrefixCache(model, sequences)
        self._followed: dict[GenerationJob, _Followed] = {}
        self._seconds_per_token = MAX_CHUNK_SECONDS / MIN_CHUNK_TOKENS
        """Time to read a token, a moving average."""
        self._failed = False

    def draft(self, jobs: Sequence[GenerationJob], limits: Sequence[int]) -> list[list[int]]:
        """Return drafts for the jobs, empty if drafting fails or does not pay. ``limits``: tokens."""
        self.has_read = False
        if not self._failed and (length := self.lengths.choose(limits)):
            try:
                return self._draft(jobs, [min(length, limit) for limit in limits])
            except Exception:
                log.exception("The draft model failed and is not used any more")
                self._failed = True
        return [[] for _ in jobs]

    def _draft(self, jobs: Sequence[GenerationJob], sizes: list[int]) -> list[list[int]]:
        for job in [job for job in self._followed if job.sequence is None]:  # it runs no more
            self._cache.release(self._followed.pop(job).sequence)
        drafts: list[list[int]] = [[] for _ in jobs]
        ready = [index for index, job in enumerate(jobs) if sizes[index] and self._follow(job)]
        while ready := [index for index in ready if len(drafts[index]) < sizes[index]]:
            spans = []
            for index in ready:
                sequence = self._followed[jobs[index]].sequence
                ids = drafts[index][-1:] or jobs[index].ids[len(sequence.ids) :]
                spans.append(BatchSpan(sequence.seq_id, ids, len(sequence.ids)))
            if not self._decode(spans):
                break
            for output, index in enumerate(ready):
                self._followed[jobs[index]].sequence.ids += spans[output].ids
                drafts[index].append(int(self._model.logits(output).argmax()))
        return drafts

    def _follow(self, job: GenerationJob) -> bool:
        """Read a chunk of a job's ids where more than a few are missing; return whether few are now."""
        if len(job.ids) + MAX_DRAFT_TOKENS > self._model.context_length:
            return False
        if (followed := self._followed.get(job)) is None:
            followed = self._followed[job] = _Followed(self._cache.acquire(job.ids).sequence)
            followed.confirmed = len(followed.sequence.ids)
        sequence = followed.sequence
        self._drop_rejected(followed, job.ids)
        end = len(job.ids) - 1
        if end - len(sequence.ids) >= MAX_LAG_TOKENS:
            start, prompt_end = len(sequence.ids), job.prompt_length - 1
            chunk = max(MIN_CHUNK_TOKENS, int(MAX_CHUNK_SECONDS / self._seconds_per_token))
            end = min(end, start + min(chunk, self._model.ubatch))
            end = prompt_end if start < prompt_end < end else end
            began_at = time.perf_counter()
            self.has_read = True
            if not self._decode([BatchSpan(sequence.seq_id, job.ids[start:end], start)]):
                return False
            self._model.synchronize()
            seconds = (time.perf_counter() - began_at) / (end - start)
            self._seconds_per_token += (seconds - self._seconds_per_token) / 2
            sequence.ids += job.ids[start:end]
            followed.confirmed = end
            if end == prompt_end:  # the conversation's next prompt comes back there
                sequence.save_checkpoint()
        return len(job.ids) - len(sequence.ids) <= MAX_LAG_TOKENS

    def _drop_rejected(self, followed: _Followed, ids: list[int]) -> None:
        sequence, count = followed.sequence, followed.confirmed
        limit = min(len(sequence.ids), len(ids) - 1)
        while count < limit and sequence.ids[count] == ids[count]:
            count += 1
        if count < len(sequence.ids):
            del sequence.ids[count:]
            sequence.drop_rejected()
        followed.confirmed = len(sequence.ids)

    def _decode(self, spans: list[BatchSpan]) -> bool:
        """Compute a batch; return False where there was no room for it, or it was aborted."""
        match self._model.decode(spans):
            case "done":
                return True
            case "stopped":
                self._model.clear_abort()
            case "full":
                self._cache.evict()  # for the next draft
        return False


class Drafting:
    """Drafts tokens, and learns from every step how often that pays."""

    def __init__(self, lookup: DraftPlanner | None, model: DraftModel | None = None) -> None:
        self._lookup, self._model = lookup, model
        self._model_drafted = False
        """Whether the last drafts are the draft model's."""

    def draft(self, jobs: Sequence[GenerationJob]) -> list[list[int]]:
        """Return drafts for jobs that all decode; empty ones where drafts do not pay."""
        limits = [job.max_generated - job.generated - 1 for job in jobs]
        drafts: list[list[int]] = [[] for _ in jobs]
        if self._lookup is not None:
            candidates = []
            for job, limit in zip(jobs, limits, strict=True):
                job.drafter = job.drafter or Drafter()
                candidates.append((job.drafter, job.ids, limit))
            drafts = self._lookup.draft(candidates)
        self._model_drafted = self._model is not None and not any(drafts)
        if self._model is not None and self._model_drafted:
            drafts = self._model.draft(jobs, limits)
        return drafts

    def step_done(self, generations: int, drafted: int, seconds: float) -> None:
        """Record the time of drafting and the step, by number of generations and drafted tokens."""
        if self._lookup is not None and not (drafted and self._model_drafted):
            self._lookup.costs.record(generations, drafted, seconds)
        if self._model is not None and self._model_drafted and not self._model.has_read:
            self._model.lengths.costs.record(generations, drafted, seconds)

    def verified(self, accepted: int, drafted: int) -> None:
        if self._model is not None and self._model_drafted:
            self._model.lengths.acceptance.record(accepted, drafted)
