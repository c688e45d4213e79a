"""Calls the person back to a terminal that they do not look at, by ``app._driver``, which is private in
Textual 8.2 (pinned ``>=8.2.8,<8.3``)."""

from __future__ import annotations

import os

from textual.app import App

from tui.util.format import display_text


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
