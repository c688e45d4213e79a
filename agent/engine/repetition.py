"""Finds out whether token ids repeat themselves."""

from __future__ import annotations

from collections.abc import Sequence

from agent.engine.protocol import LoopLimits


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
