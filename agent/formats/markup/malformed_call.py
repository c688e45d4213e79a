"""Calls that are neither JSON nor tags: code, and what only stands where a call belongs."""

from __future__ import annotations

from agent.formats.markup.json_call import LONGEST_DOUBT, Verdict
from agent.formats.markup.segments import Segments
from agent.formats.markup.text_buffer import Source
from agent.formats.protocol import Kind, Opened
from agent.formats.recipients import Recipients

_CALL, _END = "<tool_call>", "</tool_call>"


class OddCall:
    """What stands in ``<tool_call>`` and cannot be read; prose, unless ``</tool_call>`` follows."""

    raw = ""

    def __init__(self, source: Source, segments: Segments, at: int) -> None:
        self._source, self._segments, self._at = source, segments, at
        self._text = ""

    def read(self, final: bool) -> Verdict | None:
        text = self._source.text
        end, other = text.find(_END), text.find(_CALL)
        if end >= 0 and not 0 <= other < end:
            self._text = self._source.take(end)
            self._source.take(len(_END))
            return Verdict.ENDED
        if final or other >= 0 or len(text) > LONGEST_DOUBT:
            return Verdict.PROSE
        return None

    def close(self, complete: bool, *, until: int, end: int | None = None) -> None:
        self._segments.open(Opened(Kind.TOOL_UNKNOWN, json=True), self._at)
        self._segments.delta(self._text)
        self._segments.close(complete, until=until, end=end)


class CodeCall:
    """Code for the model's own tool; only the end of the generation ends it."""

    raw = ""

    def __init__(self, source: Source, segments: Segments, recipients: Recipients, at: int) -> None:
        self._source, self._segments = source, segments
        called = recipients.known("python")
        kind = Kind.TOOL if called else Kind.TOOL_UNKNOWN
        segments.open(Opened(kind, called, "python"), at)

    def read(self, final: bool) -> Verdict | None:
        self._segments.delta(self._source.take(len(self._source.text)))
        return None

    def close(self, complete: bool, *, until: int, end: int | None = None) -> None:
        self._segments.close(complete, until=until, end=end)
