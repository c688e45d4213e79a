"""Between Textual and the terminal: no restart once that has gone, no control characters in what is
painted, as a second defence behind ``display_text``, and calls to a person who looks elsewhere. Uses
what is private in Textual 8.2 (pinned ``>=8.2.8,<8.3``)."""

import os

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter

from agent.util.sanitize import strip_controls
from tui.util.format import display_text


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


def notify_unfocused(app: App[int], text: str) -> None:
    """Ring the bell and, within tmux by its passthrough, show a notification (OSC 9,
    https://iterm2.com/documentation-escape-codes.html), if the terminal reports no focus."""
    if app.app_focus:
        return
    app.bell()
    line = " ".join(display_text(text).split())[:100]
    sequence = f"\x1b]9;agent: {line}\x07"
    if "TMUX" in os.environ:
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if app._driver is not None:
        app._driver.write(sequence)
