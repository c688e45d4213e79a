"""Drafts for the jobs of a step: what followed the same tokens before, else by the draft model."""

from __future__ import annotations

from collections.abc import Sequence

from agent.engine.llama.draft_model import DraftModel
from agent.engine.llama.scheduler import GenerationJob
from agent.engine.llama.speculation import Candidate, Drafter, DraftPlanner


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
                candidates.append(Candidate(job.drafter, job.ids, limit))
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
