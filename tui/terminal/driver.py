"""Between Textual and the terminal: no restart once that has gone, and no control characters in what is
painted, as a second defence behind ``display_text``."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter

from agent.util.sanitize import strip_controls


class TerminalDriver(LinuxDriver):
    """Resumes only what Ctrl-Z has suspended. A terminal that goes sends SIGHUP and SIGCONT, at which
    Textual 8.2 (pinned ``>=8.2.8,<8.3``; the methods are private) starts its threads again, also after
    the app has ended, and they keep the process alive for ever."""

    def _sigcont_application(self, *_: object) -> None:
        if self._must_signal_resume:
            super()._sigcont_application()


class ControlCharFilter(LineFilter):
    """A Textual line filter that deletes characters which would steer the terminal."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [Segment(strip_controls(text), style, control) for text, style, control in segments]


CONTROL_CHAR_FILTER = ControlCharFilter()
