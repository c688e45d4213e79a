"""An exchange as a conversation has it: its parts one below the other, in the order they came."""

from __future__ import annotations

from textual.containers import Vertical
from textual.widget import Widget

from tui.part import Part
from tui.said import Said
from tui.widgets.call import Call
from tui.widgets.interjection import Interjection
from tui.widgets.message import Message
from tui.widgets.stream import Stream
from tui.widgets.thought import Thought


class Record(Vertical):
    DEFAULT_CSS = """
    Record { height: auto; max-width: 120; & > * { margin-bottom: 1; } }
    """

    def __init__(self, said: Said) -> None:
        super().__init__()
        self.said = said
        self._widgets: dict[Part, Thought | Call | Message | Interjection] = {}
        self._finished: set[Part] = set()
        self._ready = False

    def on_mount(self) -> None:
        self._ready = True
        self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        if not self._ready:
            return
        for part in self.said.parts:
            if part in self._finished:
                continue
            widget = self._widgets.get(part)
            if widget is None:
                widget = self._widgets[part] = _widget(part)
                self.mount(widget)
            if isinstance(widget, Thought | Call):
                widget.follow(self.said.clock())
            else:
                widget.follow()
            if part.settled:
                self._finished.add(part)

    def reveal(self, part: Part) -> list[Widget]:
        """What shows this part, opened."""
        match self._widgets.get(part):
            case Thought() | Call() as widget:
                widget.open = True
                return list(widget.query(Stream))
            case None:
                return []
            case widget:
                return [widget]


def _widget(part: Part) -> Thought | Call | Message | Interjection:
    match part.kind:
        case "interjection":
            return Interjection(part)
        case "reasoning":
            return Thought(part)
        case "call":
            return Call(part)
        case _:
            return Message(part)
