"""Textual's driver of terminals, without its restart after the terminal has gone."""

from __future__ import annotations

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Resumes only what Ctrl-Z has suspended. A terminal that goes sends SIGHUP and SIGCONT, at which
    Textual 8.2 (pinned ``>=8.2.8,<8.3``; the methods are private) starts its threads again, also after
    the app has ended, and they keep the process alive for ever."""

    def _sigcont_application(self, *_: object) -> None:
        if self._must_signal_resume:
            super()._sigcont_application()
