"""Drafts the next tokens of a generation, and decides the number that a step verifies.

A step computes the logits after a generation's last token; with a draft it computes those after each
drafted token too. Tokens are then sampled in order, each from the logits that plain decoding would
sample it from, for as long as the sampled token is the drafted one (Leviathan et al.,
https://arxiv.org/abs/2211.17192, with a draft that is certain of its tokens: the sampled distribution
stays the same). So a draft never changes the output, only the number of steps.

Whether that is faster depends on the text and on the device: a GPU computes 16 tokens about as fast
as one, a CPU may take 9 times as long. Both are measured while the engine runs:

- `Acceptance` learns how far drafts are right. Each draft is compared with what is sampled whether
  or not a step verifies it, so text that does not repeat costs nothing but the search.
- `StepCosts` learns how much longer a step takes, by its number of drafted tokens.

`DraftPlanner.draft` takes the number of drafted tokens that yields most tokens in a second, often 0.
All of this is pure: it knows neither threads nor llama.cpp.
"""

from collections.abc import Sequence

import numpy as np

from agent.engine.placement.placement import MAX_DRAFT_TOKENS

DRAFT_LENGTHS = (2, 4, 8, MAX_DRAFT_TOKENS)
"""Tokens of a draft that are tried."""
MIN_MATCH_TOKENS = 3
"""Tokens before a position that must have come before, for what followed them to be a draft."""
LONG_MATCH_TOKENS = 8
"""Tokens of the longest matches that are looked for; they have an acceptance of their own."""
FIRST_ACCEPTANCE = 0.5
"""Assumed share of drafts that are right, before any was compared."""
ACCEPTANCE_RATE = 0.3
"""Weight of the newest draft in the acceptance."""
COST_RATE = 0.25
"""Weight of the newest step in a cost."""
COST_FADE_STEPS = 1000
"""Plain steps in which a cost that was measured fades, so that it is measured again one day."""
MIN_GAIN = 1.05
"""Minimal speedup over plain decoding that a draft must promise."""
PAUSE_STEPS = 32, 1024
"""Plain steps after which a draft model that did not pay is tried again: at first, and at most."""
PLAIN_STEP_INTERVAL = 50
"""Steps with a draft model's drafts after which a plain one is measured."""


class PromptLookup:
    """Finds what followed the last tokens when they came before, in the prompt or the output."""

    def __init__(self) -> None:
        self._ids = np.zeros(1024, np.int32)
        self._count = 0

    def draft(self, ids: Sequence[int], limit: int) -> tuple[list[int], int]:
        """Return a draft of ``limit`` tokens that follow ``ids``, and the length of the match before
        it; nothing and 0 without a match. ``ids`` has grown since the last call. A draft that would go
        beyond their end repeats itself, as the text does."""
        self._append(ids)
        known = self._ids[: self._count]
        ends, length = np.flatnonzero(known[:-1] == known[-1]), 1
        while length < LONG_MATCH_TOKENS and len(longer := ends[ends >= length]):
            longer = longer[known[longer - length] == known[-1 - length]]
            if not len(longer):
                break
            ends, length = longer, length + 1
        if length < MIN_MATCH_TOKENS:
            return [], 0
        following = known[int(ends[-1]) + 1 :]
        return np.resize(following[:limit], limit).tolist(), length

    def _append(self, ids: Sequence[int]) -> None:
        new = ids[self._count :]
        if (end := self._count + len(new)) > len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(max(end, 1024), np.int32)])
        self._ids[self._count : end] = new
        self._count = end


class Acceptance:
    """The measured acceptance of drafts of one kind, by length."""

    def __init__(self, decay: float = 1.0) -> None:
        """``decay``: how much less often each further token is assumed to be right."""
        self._shares = [FIRST_ACCEPTANCE * decay**n for n in range(MAX_DRAFT_TOKENS)]
        """Share of drafts whose first n + 1 tokens were right; newer ones weigh more."""

    def record(self, accepted: int, drafted: int = MAX_DRAFT_TOKENS) -> None:
        """Record how many tokens of a draft were right; after all of them nothing is known."""
        for n in range(drafted if accepted == drafted else MAX_DRAFT_TOKENS):
            self._shares[n] += ACCEPTANCE_RATE * ((n < accepted) - self._shares[n])

    def expected(self, length: int) -> float:
        """Return how many tokens of a draft of ``length`` will be right, on average."""
        return sum(self._shares[:length])


class Drafter:
    """Drafts the tokens of one generation, and compares its drafts with what is sampled."""

    def __init__(self) -> None:
        self._lookup = PromptLookup()
        self._acceptances = {is_long: Acceptance() for is_long in (False, True)}
        self.acceptance = self._acceptances[False]
        """That of the last draft's kind."""
        self._compared: tuple[list[int], Acceptance] | None = None
        """A draft whose tokens were all sampled so far, until its end, and where it belongs."""
        self._accepted = 0

    def draft(self, ids: Sequence[int]) -> list[int]:
        """Return what may follow ``ids``: MAX_DRAFT_TOKENS, or nothing."""
        draft, match = self._lookup.draft(ids, MAX_DRAFT_TOKENS)
        self.acceptance = self._acceptances[match >= LONG_MATCH_TOKENS]
        if draft and self._compared is None:
            self._compared, self._accepted = (draft, self.acceptance), 0
        return draft

    def observe(self, token: int) -> None:
        if self._compared is None:
            return
        draft, acceptance = self._compared
        is_right = token == draft[self._accepted]
        self._accepted += is_right
        if not is_right or self._accepted == len(draft):
            acceptance.record(self._accepted)
            self._compared = None


class StepCosts:
    """Times of steps with drafts, relative to steps of as many generations without."""

    def __init__(self) -> None:
        self._plain_seconds: dict[int, float] = {}
        """Seconds of a step without drafts, by its number of generations."""
        self._ratios: dict[tuple[int, int], float | None] = {}
        """By generations and the size class of the drafted tokens; None: a first step was not counted,
        as devices prepare themselves for batches of a new size."""

    def record(self, generations: int, drafted: int, seconds: float) -> None:
        plain = self._plain_seconds.get(generations)
        if not drafted:
            plain = seconds if plain is None else plain + COST_RATE * (seconds - plain)
            self._plain_seconds[generations] = plain
            for key, ratio in self._ratios.items():
                if ratio is not None and key[0] == generations:
                    self._ratios[key] = ratio - (ratio - 1) / COST_FADE_STEPS
        elif plain:
            key = generations, _size_class(drafted)
            ratio = self._ratios.get(key, 0.0)
            if ratio == 0.0:
                self._ratios[key] = None
            elif ratio is None:
                self._ratios[key] = seconds / plain
            else:
                self._ratios[key] = ratio + COST_RATE * (seconds / plain - ratio)

    def ratio(self, generations: int, drafted: int) -> float:
        """Return the estimated cost of a step, 1 for one without drafts. An unmeasured size counts as
        cheap as a smaller one, so that it is tried once."""
        sizes = range(_size_class(drafted), -1, -1)
        measured = (self._ratios.get((generations, size)) for size in sizes)
        return max(1.0, next((ratio for ratio in measured if ratio is not None), 1.0))

    def is_measured(self, generations: int, drafted: int) -> bool:
        if not drafted:
            return generations in self._plain_seconds
        return self._ratios.get((generations, _size_class(drafted))) is not None


def _size_class(drafted: int) -> int:
    return (drafted - 1).bit_length()


class DraftPlanner:
    """Decides for an engine's steps how many drafted tokens they verify."""

    def __init__(self, max_tokens: int = MAX_DRAFT_TOKENS) -> None:
        """``max_tokens``: drafted tokens of a step, of all generations together."""
        self.costs = StepCosts()
        self._max_tokens = max_tokens

    def draft(self, candidates: Sequence[tuple[Drafter, Sequence[int], int]]) -> list[list[int]]:
        """``candidates``: each generation's drafter, ids and limit of tokens. Return the drafts that a
        step verifies, one for each generation that decodes; empty where drafts do not pay."""
        drafts = [drafter.draft(ids)[: max(0, limit)] for drafter, ids, limit in candidates]
        count = len(candidates)
        best, best_length = MIN_GAIN * count, 0
        for length in DRAFT_LENGTHS:
            sizes = [min(length, len(draft)) for draft in drafts]
            if not 0 < (total := sum(sizes)) <= self._max_tokens:
                break
            pairs = zip(candidates, sizes, strict=True)
            tokens = count + sum(one.acceptance.expected(size) for (one, *_), size in pairs)
            if (gain := tokens / self.costs.ratio(count, total)) > best:
                best, best_length = gain, length
        return [draft[:best_length] for draft in drafts]


class DraftLengths:
    """Decides how many tokens a draft model drafts before a step. As drafts take time, lengths are
    tried from the shortest on, the next when one pays; where none does it pauses, ever longer."""

    def __init__(self, max_tokens: int = MAX_DRAFT_TOKENS) -> None:
        self.costs = StepCosts()
        """Costs of steps with the drafts that they verify."""
        self.acceptance = Acceptance(decay=FIRST_ACCEPTANCE)
        """Acceptance over all generations: it depends mostly on the draft model, not on the text."""
        self._max_tokens = max_tokens
        self._steps = 0
        """With drafts since the last plain one."""
        self._pause = PAUSE_STEPS[0]
        self._paused_steps = 0

    def choose(self, limits: Sequence[int]) -> int:
        """Return how many tokens to draft for each generation of the next step, or 0. ``limits``: how
        many tokens the drafts of each may have; those are shortened."""
        count = len(limits)
        if not self.costs.is_measured(count, 0) or self._steps >= PLAIN_STEP_INTERVAL:
            self._steps = 0
            return 0
        best, best_length = MIN_GAIN * count, 0
        for length in DRAFT_LENGTHS:
            sizes = [max(0, min(length, limit)) for limit in limits]
            if not 0 < (total := sum(sizes)) <= self._max_tokens:
                break
            tokens = count + sum(map(self.acceptance.expected, sizes))
            if (gain := tokens / self.costs.ratio(count, total)) > best:
                best, best_length = gain, length
            if not self.costs.is_measured(count, total):
                break
        if best_length:
            self._steps += 1
            self._pause, self._paused_steps = PAUSE_STEPS[0], 0
        elif (steps := self._paused_steps + 1) < self._pause:
            self._paused_steps = steps
        elif min(limits) > 0 and count * DRAFT_LENGTHS[0] <= self._max_tokens:
            self._pause, self._paused_steps = min(2 * self._pause, PAUSE_STEPS[1]), 0
            return DRAFT_LENGTHS[0]
        return best_length
