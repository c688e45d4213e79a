"""Recognises a model that repeats itself without end, so that its generation can be stopped.

A generation loops if its latest tokens are one period over and over, token for token. Text that
repeats itself and yet goes on (a list, a poem, a table of zeros) is rarely exact for that long; where
it is more often, in code and tables, it may go on for longer. What a JSON Schema demands is never
checked: the grammar ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.engine.protocol import LoopLimits

CHECK_INTERVAL_TOKENS = 32
"""Tokens between two checks."""


def find_period(ids: Sequence[int], limits: LoopLimits, min_tokens: int) -> int | None:
    """The period in tokens with which ``ids`` end, if that is a loop; else None."""
    count = len(ids)
    if count < min_tokens:
        return None
    last = ids[-1]
    for period in range(1, min(limits.max_period, count // limits.min_periods) + 1):
        if ids[-1 - period] != last:
            continue
        length = max(min_tokens, period * limits.min_periods)
        tail = ids[-length:]
        if length <= count and tail[period:] == tail[:-period]:
            return period
    return None


def is_code_or_table(text: str) -> bool:
    """Whether Markdown that grows ends within a code block or a table."""
    lines = text.rsplit("\n", 2)
    return text.count("```") % 2 == 1 or any(line.lstrip().startswith("|") for line in lines[-2:])


class LoopGuard:
    """Watches one generation."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self._checked_tokens = 0

    def loops(self, ids: Sequence[int], text: Callable[[], str] | None) -> bool:
        """Whether the generation loops. ``ids``: all of it so far; ``text``: gives the open message,
        None where it is code. Most calls return at once: it is checked every
        `CHECK_INTERVAL_TOKENS`."""
        if len(ids) - self._checked_tokens < CHECK_INTERVAL_TOKENS:
            return False
        self._checked_tokens = len(ids)
        limits = self._limits
        if find_period(ids, limits, limits.min_tokens) is None:
            return False
        if text is not None and not is_code_or_table(text()):
            return True
        return find_period(ids, limits, limits.min_code_tokens) is not None
