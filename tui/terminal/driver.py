"""Between Textual and the terminal: no restart once that has gone, no control characters in what is
painted, as a second defence behind ``display_text``, and calls to a person who looks elsewhere. Uses
what is private in Textual 8.2 (pinned ``>=8.2.8,<8.3``)."""

import asyncio
import math
import os
import select
import signal
import time
from contextlib import suppress

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter

from agent.util.sanitize import strip_controls
from tui.terminal.bracketed_paste import PasteXTermParser
from tui.util.format import display_text

RESUME_SECONDS = 0.3
"""Time after the app continues in which a second Ctrl-Z counts as pressed before it stopped."""


class TerminalDriver(LinuxDriver):
    """Stops with its job, and repaints when that continues, from the event loop: Textual's handlers may
    interrupt a paint, and start threads after a terminal has gone, which sends SIGHUP and SIGCONT."""

    _resumed_at = 0.0

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        for number, sent in ((signal.SIGTSTP, signal.SIGTSTP), (signal.SIGCONT, 0)):
            asyncio.get_running_loop().add_signal_handler(number, self._pause, sent)

    def _pause(self, number: int) -> None:
        """Give the terminal back, stop the whole job with ``number``, and take the terminal again."""
        if self._app._exit or time.monotonic() - self._resumed_at < RESUME_SECONDS:
            return
        try:
            os.tcgetpgrp(self.fileno)
        except OSError:  # the terminal has gone
            return
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        if self._auto_restart:
            with suppress(OSError):
                self.finish_reading()
                with self._app.suspend():
                    os.kill(0, number)
                    while os.tcgetpgrp(self.fileno) != os.getpgrp():  # continued by bg
                        os.kill(os.getpid(), signal.SIGSTOP)
            self._resumed_at = math.inf  # until keys read before the stop are handled
            self._app.call_later(self._note_resumed)
        elif number:  # an editor has the terminal
            os.kill(os.getpid(), number)

    def _note_resumed(self) -> None:
        self._resumed_at = time.monotonic()

    def finish_reading(self) -> None:
        """End the reading of keys, and pass on those typed meanwhile, which Textual would discard."""
        self.exit_event.set()
        if self._key_thread is not None:
            self._key_thread.join()
        self.exit_event.clear()
        parser, data = PasteXTermParser(), b""
        while select.select([self.fileno], [], [], 0)[0] and (read := os.read(self.fileno, 4096)):
            data += read
        if data:
            for event in (*parser.feed(data.decode(errors="replace")), *parser.feed("")):
                self.process_message(event)


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
    sequence = f"\x1b]9;agent: {' '.join(display_text(text).split())[:100]}\x07"
    if "TMUX" in os.environ:
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if app._driver is not None:
        app._driver.write(sequence)
