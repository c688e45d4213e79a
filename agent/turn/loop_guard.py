"""Recognises a model that repeats itself without end: its latest tokens are one period over and over.
Text with repetitions that ends (a list, a poem) is rarely exact for that long; code and tables may
repeat for longer. Text that a JSON Schema demands is never checked: the grammar ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.engine.json_bounds import find_period
from agent.engine.protocol import LoopLimits

CHECK_INTERVAL_TOKENS = 32


def is_code_or_table(text: str) -> bool:
    """Whether Markdown that grows ends within a code block or a table."""
    lines = text.rsplit("\n", 2)
    return text.count("```") % 2 == 1 or any(line.lstrip().startswith("|") for line in lines[-2:])


class LoopGuard:
    """Watches one generation."""

    def __init__(self, limits: LoopLimits) -> None:
        self._limits = limits
        self.next_check = CHECK_INTERVAL_TOKENS
        """Tokens of the generation from which it is looked at again."""

    def is_too_long(self, tokens: int) -> bool:
        """Whether JSON exceeds the limit of tokens without being closed: its schema allows no end, or
        it is a call, which is cut off rather than closed."""
        return tokens > 4 * self._limits.max_json_tokens

    def loops(self, ids: Sequence[int], text: Callable[[], str] | None) -> bool:
        """Whether the generation loops. ``ids``: all of it so far. ``text``: gives the open message;
        None: it is code."""
        limits = self._limits
        if find_period(ids, limits, limits.min_tokens) is None:
            return False
        if text is not None and not is_code_or_table(text()):
            return True
        return find_period(ids, limits, limits.min_code_tokens) is not None
