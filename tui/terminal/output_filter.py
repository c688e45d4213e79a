"""The last look at what is painted: nothing in it steers the terminal, whichever widget has left out to
see to that."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from agent.util.sanitize import bare


class Net(LineFilter):
    """Of every line of every widget."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(bare(text), style, control) for text, style, control in segments]


NET = Net()
