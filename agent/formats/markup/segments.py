"""Collects the events of a markup parser in the order that `Parser` promises."""

from __future__ import annotations

from agent.formats.markup.text_buffer import TokenTextBuffer
from agent.formats.protocol import Closed, Delta, Opened, ParseEvent, Repair


class SegmentWriter:
    """Writes one segment after the other; repairs within a segment follow its end."""

    def __init__(self, source: TokenTextBuffer) -> None:
        self.out: list[ParseEvent] = []
        self.open_segment: Opened | None = None
        self._buffer = source
        self._deferred_repairs: list[ParseEvent] = []
        self._spanned_to = 0
        self._content_start = 0

    def open(self, opened: Opened, content_start: int) -> None:
        self.open_segment, self._content_start = opened, content_start
        self.out.append(opened)

    def delta(self, text: str) -> None:
        if text:
            self.out.append(Delta(text))

    def close(self, complete: bool, *, content_end: int, end: int | None = None) -> None:
        """Close the open segment. Its content ends before the token at ``content_end``, its span at
        ``end``, by default after what was taken from the buffer."""
        end = max(self._buffer.last_position + 1 if end is None else end, self._spanned_to)
        tokens = min(max(content_end - self._content_start, 0), end - self._spanned_to)
        self.out.append(Closed(complete, self._spanned_to, end, tokens))
        self.out += self._deferred_repairs
        self._spanned_to, self._deferred_repairs, self.open_segment = end, [], None

    def repair(self, rule: str, at: int, text: str = "") -> None:
        deferred = self.open_segment is not None
        (self._deferred_repairs if deferred else self.out).append(Repair(rule, at, text))

    def take_events(self) -> list[ParseEvent]:
        out, self.out = self.out, []
        return out
