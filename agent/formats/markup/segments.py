"""The text that a markup parser has not decided on, and the events that it has written so far."""

from __future__ import annotations

from collections import deque

from agent.formats.protocol import Closed, Delta, Opened, ParseEvent, Repair


class TokenTextBuffer:
    """Text that is added at the end and taken from the beginning."""

    def __init__(self) -> None:
        self.text = ""
        self.last_position = -1
        """The position of the token whose character was taken last; -1 at first."""
        self._token_spans: deque[tuple[int, int, int]] = deque()
        """Each token's first character, the one after its last, and the token's position."""
        self._added = self._taken = 0

    def add(self, text: str, position: int) -> None:
        if text:
            start, self._added = self._added, self._added + len(text)
            self.text += text
            self._token_spans.append((start, self._added, position))

    def take(self, count: int) -> str:
        taken, self.text = self.text[:count], self.text[count:]
        self._taken += len(taken)
        while self._token_spans and self._token_spans[0][1] <= self._taken:
            self.last_position = self._token_spans.popleft()[2]
        if self._token_spans and self._token_spans[0][0] < self._taken:
            self.last_position = self._token_spans[0][2]
        return taken

    @property
    def next_position(self) -> int:
        """The position of the token with the next character, or of the next token if none is left."""
        return self._token_spans[0][2] if self._token_spans else self.last_position + 1


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
