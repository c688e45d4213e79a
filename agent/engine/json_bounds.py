"""Closes endless JSON: strings, lists, and objects with free properties, which few schemas limit. A
part that repeats itself, or exceeds `LoopLimits`, is closed: from then on only tokens are allowed that
end it on the grammar's shortest path. So the text stays valid, and the model continues after it."""

from collections.abc import Sequence

from agent.engine.protocol import LoopLimits

CHECK_INTERVAL_TOKENS = 32
_QUOTE, _ESCAPE = ord('"'), ord("\\")
_OPENING, _CLOSING = frozenset(b"{["), frozenset(b"}]")
_ENDINGS = (b"}", b"]", b",", b":", b'"')
"""First bytes that lead to an end soonest: closing brackets, required separators, a quote."""
_LONGER = b" \t\r\n[{"
"""First bytes of tokens that lead away from an end."""


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


class JsonBounds:
    """Watches one JSON text."""

    def __init__(self, texts: Sequence[bytes], limits: LoopLimits) -> None:
        """``texts``: the bytes of each id of the vocabulary."""
        self._texts, self._limits = texts, limits
        self._ids: list[int] = []
        self._starts: list[int] = []
        """At which token each open list, object and string begins, from the outermost one on."""
        self._in_string = self._escaped = False
        self._checked_tokens = 0
        self._depth_to_reach: int | None = None

    @property
    def is_closing(self) -> bool:
        """Whether something has to end: only what `endings` returns may come next."""
        return self._depth_to_reach is not None

    def push(self, token: int) -> None:
        self._ids.append(token)
        self._read(self._texts[token])
        if self._depth_to_reach is not None and len(self._starts) <= self._depth_to_reach:
            self._depth_to_reach = None
        if self._depth_to_reach is None and self._starts:
            self._depth_to_reach = self._find_depth()

    def endings(self, ids: list[int]) -> list[int]:
        """Return those of the ids that the grammar allows that lead to the end soonest."""
        texts = self._texts
        if self._in_string:
            quotes = [] if self._escaped else [i for i in ids if texts[i] == b'"']
            return quotes or ids
        structural = {texts[i]: i for i in ids if len(texts[i]) == 1}
        for text in _ENDINGS:
            if text in structural:
                return [structural[text]]
        return [i for i in ids if texts[i][:1] not in _LONGER] or ids

    def _read(self, text: bytes) -> None:
        if self._in_string and not self._escaped and b'"' not in text and b"\\" not in text:
            return
        for byte in text:
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif byte == _ESCAPE:
                    self._escaped = True
                elif byte == _QUOTE:
                    self._in_string = False
                    self._starts.pop()
            elif byte == _QUOTE or byte in _OPENING:
                self._in_string = byte == _QUOTE
                self._starts.append(len(self._ids))
            elif byte in _CLOSING and self._starts:
                self._starts.pop()

    def _find_depth(self) -> int | None:
        """Return the number of lists, objects and strings that may stay open; None: all."""
        count, limits = len(self._ids), self._limits
        if count >= limits.max_json_tokens:
            return 0
        if self._in_string and count - self._starts[-1] >= limits.max_string_tokens:
            return len(self._starts) - 1
        if count - self._checked_tokens < CHECK_INTERVAL_TOKENS:
            return None
        self._checked_tokens = count
        period = find_period(self._ids, limits, limits.min_code_tokens)
        if period is None:
            return None
        # The innermost one that the repetition is a part of.
        begin = count - max(limits.min_code_tokens, period * limits.min_periods)
        return max(sum(start <= begin for start in self._starts) - 1, 0)
