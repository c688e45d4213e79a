"""What the transcript shows between the turns: the entries that belong to no turn."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from tui.util.virtual_list import VirtualEntry


class NoticeEntries:
    """The single entry of a notice of the program, between the turns."""

    turn = None
    """A notice belongs to no turn."""

    def __init__(self, text: str, *, error: bool) -> None:
        classes = "line -error" if error else "line"
        self.entries = [VirtualEntry(lambda: Static(Content(text), classes=classes))]
