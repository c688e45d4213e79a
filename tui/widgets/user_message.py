"""What was asked, as the conversation repeats it; it can be picked."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from tui.controllers.message_picker import KEYS
from tui.state.turn_view import Said
from tui.util.attachments import attached, folded

LINES = 6
"""Of a longer prompt only so many lines are repeated in the conversation."""


class Asked(Static):
    DEFAULT_CSS = """
    Asked {
        height: auto; padding: 0 1; margin-bottom: 1; color: $text; text-style: bold;
        &.-live { margin-bottom: 0; }
        &.-picked { background: $panel; border-left: outer $accent; padding-left: 0; }
    }
    """

    @dataclass
    class Pressed(Message):
        """A key, while this one is picked."""

        said: Said
        key: str

    def __init__(self, said: Said, *, live: bool) -> None:
        """``live``: panes stand below it."""
        super().__init__(_text(said), markup=False, classes="-live" if live else None)
        self.said = said

    def pick(self) -> None:
        """The next key is for this exchange."""
        self.can_focus = True
        self.add_class("-picked")
        self.screen.set_focus(self, scroll_visible=False)  # at once: the next key is for it
        self.scroll_visible(animate=False, top=True)

    def on_blur(self) -> None:
        self.can_focus = False
        self.remove_class("-picked")

    def on_key(self, event: events.Key) -> None:
        if self.has_focus and event.key in KEYS:
            self.post_message(self.Pressed(self.said, event.key))
            event.stop()


def _text(said: Said) -> Content:
    lines = folded(said.prompt).strip("\n").split("\n")
    if len(lines) > LINES:
        rest = len(lines) - LINES + 1
        lines = [*lines[: LINES - 1], f"… {rest} more lines"]
    mark = "❯" if said.source == "app" else f"{said.source} ❯"
    if said.place:
        lines[-1] += f"  ‹{said.place[0]}/{said.place[1]}›"
    lines += [f"⎘ {path} · {size:,} lines" for path, size in attached(said.prompt)]
    return Content.assemble((f"{mark} ", "$accent"), "\n  ".join(lines))
