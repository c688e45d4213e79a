"""Reads calls that are neither JSON nor tags: unreadable text in ``<tool_call>``, and code."""

from __future__ import annotations

from agent.formats.markup.dialects import CALL, CALL_END
from agent.formats.markup.json_call import MAX_UNDECIDED_CHARS, CallOutcome
from agent.formats.markup.segments import SegmentWriter
from agent.formats.markup.text_buffer import TokenTextBuffer
from agent.formats.protocol import Opened, SegmentKind
from agent.formats.recipients import PYTHON_TOOL, Recipients


class MalformedCall:
    """Reads unknown text after ``<tool_call>``: prose, unless ``</tool_call>`` follows."""

    raw = ""
    """Prose is left in the buffer."""

    def __init__(self, buffer: TokenTextBuffer, segments: SegmentWriter, start: int) -> None:
        self._buffer, self._segments, self._start = buffer, segments, start
        self._text = ""

    def read(self, final: bool) -> CallOutcome | None:
        text = self._buffer.text
        end, next_call = text.find(CALL_END), text.find(CALL)
        if end >= 0 and not 0 <= next_call < end:
            self._text = self._buffer.take(end)
            self._buffer.take(len(CALL_END))
            return CallOutcome.ENDED
        if final or next_call >= 0 or len(text) > MAX_UNDECIDED_CHARS:
            return CallOutcome.PROSE
        return None

    def close(self, complete: bool, *, content_end: int, end: int | None = None) -> None:
        self._segments.open(Opened(SegmentKind.TOOL_UNKNOWN, json=True), self._start)
        self._segments.delta(self._text)
        self._segments.close(complete, content_end=content_end, end=end)


class CodeCall:
    """Reads code for the python tool; only the end of the generation ends it."""

    raw = ""
    """Prose is left in the buffer."""

    def __init__(
        self, buffer: TokenTextBuffer, segments: SegmentWriter, recipients: Recipients, start: int
    ) -> None:
        self._buffer, self._segments = buffer, segments
        recipient = recipients.resolve_recipient(PYTHON_TOOL)
        kind = SegmentKind.TOOL if recipient else SegmentKind.TOOL_UNKNOWN
        segments.open(Opened(kind, recipient, PYTHON_TOOL), start)

    def read(self, final: bool) -> CallOutcome | None:
        self._segments.delta(self._buffer.take(len(self._buffer.text)))
        return None

    def close(self, complete: bool, *, content_end: int, end: int | None = None) -> None:
        self._segments.close(complete, content_end=content_end, end=end)
