"""Calling the person back to a terminal that they do not look at."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tui.util.format import shown

if TYPE_CHECKING:
    from textual.app import App


def call(app: App[int], text: str) -> None:
    """Where the terminal does not have the focus (and tells so): the bell, and a notification of the
    desktop by OSC 9, which terminals that have none ignore."""
    if app.app_focus:
        return
    app.bell()
    line = " ".join(shown(text).split())[:100]
    sequence = f"\x1b]9;agent: {line}\x07"
    if "TMUX" in os.environ:
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if app._driver is not None:
        app._driver.write(sequence)
