"""Takes fewer threads while other programs hold the cores, as all threads of a step wait for the
slowest one, and more again once they have gone. The time of single tokens tells."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

log = logging.getLogger(__name__)

WINDOW_TOKENS = 8
"""Tokens whose median time is looked at."""
LEAST_WINDOW_TOKENS = 3
"""Tokens that are enough when they took twice as long as a window did at best."""
TRIAL_TOKENS = 4
"""Tokens of a trial with another number of threads, of which the first warms up."""
SLOW_RATIO = 1.5
"""Ratio to the best time from which tokens are slow: fewer threads are tried."""
WORTH_RATIO = 0.9
"""Another number of threads must take at most this share of the time."""
TRIAL_LIMIT = 3.0
"""Ratio to the expected time of the former thread count at which a trial is aborted."""
FIRST_FEWER_WAIT, FIRST_MORE_WAIT, LAST_WAIT = 0.5, 8.0, 60.0
"""Seconds until the next trial in the same direction: twice as long after each that failed."""


@dataclass(slots=True)
class _Direction:
    first_wait: float
    wait: float = 0.0
    next_at: float = 0.0

    def failed(self, now: float) -> None:
        self.wait = min(2 * self.wait or self.first_wait, LAST_WAIT)
        self.next_at = now + self.wait


class ThreadBalance:
    """The number of threads for single tokens, as the load of the machine has it."""

    def __init__(self, count: int, most: int, apply: Callable[[int], None]) -> None:
        """``count`` runs now, ``most`` is the largest to try; ``apply`` sets another."""
        self.count, self._most, self._apply = count, most, apply
        self._best = math.inf
        """Seconds of a token in the best window so far."""
        self._seconds: list[float] = []
        self._fewer, self._more = _Direction(FIRST_FEWER_WAIT), _Direction(FIRST_MORE_WAIT)
        self._before: tuple[int, float] | None = None
        """While a trial runs: the threads before it, and their median seconds."""

    def record(self, seconds: float, now: float) -> None:
        """Take the seconds of a single token, which ended at ``now``; may change the threads."""
        self._seconds.append(seconds)
        if not self._more.next_at:
            self._more.failed(now)  # the count was measured a moment ago
        if self._before is not None:
            before, usual = self._before
            is_late = sum(self._seconds) > TRIAL_LIMIT * TRIAL_TOKENS * usual
            if is_late or len(self._seconds) == TRIAL_TOKENS:
                self._end_trial(before, usual, median(self._seconds[1:] or self._seconds), now)
        elif len(self._seconds) == WINDOW_TOKENS or (
            len(self._seconds) >= LEAST_WINDOW_TOKENS
            and sum(self._seconds) > 2 * WINDOW_TOKENS * self._best
        ):
            usual = median(self._seconds)
            self._seconds.clear()
            # A longer context takes longer, at the same load.
            self._best = min(self._best * 1.01, usual)
            slow = usual > SLOW_RATIO * self._best
            if slow and self.count > 1 and now >= self._fewer.next_at:
                self._begin_trial(self.count // 2, usual)
            elif self.count < self._most and now >= self._more.next_at:
                self._begin_trial(min(2 * self.count, self._most), usual)

    @property
    def trial_seconds(self) -> float | None:
        """Seconds that the next token may take, else its trial has failed; None: no trial runs."""
        if self._before is None:
            return None
        return max(0.0, TRIAL_LIMIT * TRIAL_TOKENS * self._before[1] - sum(self._seconds))

    def end_trial(self, now: float) -> None:
        """End a trial that runs: its token took too long, or a batch follows, perhaps a long prompt."""
        if self._before is not None:
            self._end_trial(*self._before, math.inf, now)

    def _begin_trial(self, count: int, usual: float) -> None:
        self._before = (self.count, usual)
        self._set(count)

    def _end_trial(self, before: int, usual: float, took: float, now: float) -> None:
        directions = (self._fewer, self._more)
        direction, other = directions if self.count < before else directions[::-1]
        self._seconds.clear()
        self._before = None
        if took <= WORTH_RATIO * usual:
            log.info("%d threads instead of %d: %.1f ms a token for %.1f",
                     self.count, before, took * 1e3, usual * 1e3)  # fmt: skip
            direction.wait = 0.0
            other.failed(now)
        else:
            direction.failed(now)
            self._set(before)

    def _set(self, count: int) -> None:
        self.count = count
        self._apply(count)
