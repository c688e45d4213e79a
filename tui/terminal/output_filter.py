"""Strips control characters from every painted line: defence in depth behind ``display_text``."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from agent.util.sanitize import strip_controls


class ControlCharFilter(LineFilter):
    """A Textual line filter that deletes characters which would steer the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(strip_controls(text), style, control) for text, style, control in segments]


CONTROL_CHAR_FILTER = ControlCharFilter()
