"""What was asked and what came of it, in one of two views: live panes, or the record."""

from __future__ import annotations

from functools import partial

from textual.widget import Widget

from tui.state.item_view import Part
from tui.state.turn_view import Said
from tui.util.virtual_list import Entry
from tui.widgets.assistant_message import Message
from tui.widgets.panes import Panes
from tui.widgets.reasoning_block import Thought
from tui.widgets.steering_message import Interjection
from tui.widgets.tool_call_card import FOLDED, Call
from tui.widgets.turn_footer import Ending
from tui.widgets.user_message import LINES, Asked


class Exchange:
    """Its entries in the conversation: what was asked, then its panes, or its parts one below the
    other in the order they came, and how it ended."""

    def __init__(self, said: Said, width: int, *, panes: bool) -> None:
        """``width``: columns that there are, for the estimates."""
        self.said, self.panes = said, panes
        self._width = width
        self._asked = Entry(
            lambda: Asked(said, live=self.panes), 1 + min(LINES, said.prompt.count("\n") + 1)
        )
        self._panes = Entry(lambda: Panes(said))
        self._ending = Entry(lambda: Ending(said, live=self.panes), 2)
        self._parts: dict[Part, Entry] = {}
        self._growing: list[Part] = []
        self.follow()

    @property
    def entries(self) -> list[Entry]:
        return [self._asked, *([self._panes] if self.panes else self._parts.values()), self._ending]

    def entry(self, part: Part | None) -> Entry:
        """What shows this part (None: the prompt) in the record."""
        return self._asked if part is None else self._parts[part]

    def follow(self) -> None:
        """Show what came since the last call."""
        for part in self.said.parts[len(self._parts) :]:
            self._parts[part] = Entry(partial(_widget, part))
            self._growing.append(part)
        growing = [(part, self._parts[part]) for part in self._growing]
        for part, entry in growing:
            match entry.widget:
                case None:
                    entry.height = estimated(part, self._width)
                case Thought() | Call() as widget:
                    widget.follow(self.said.clock())
                case Message() as widget:
                    widget.follow()
        self._growing = [part for part in self._growing if not part.settled]
        for entry in (self._panes, self._ending):
            if isinstance(entry.widget, Panes | Ending):
                entry.widget.follow()

    def fit(self, height: int) -> None:
        """Panes fill the screen; ``height``: rows that there are for the whole exchange."""
        if self._panes.widget is not None:
            around = [entry.widget for entry in (self._asked, self._ending)]
            taken = sum(one.size.height for one in around if one is not None and one.display)
            self._panes.widget.styles.height = max(8, height - max(1, taken))


def _widget(part: Part) -> Widget:
    match part.kind:
        case "interjection":
            return Interjection(part)
        case "reasoning":
            return Thought(part)
        case "call":
            return Call(part)
        case _:
            return Message(part)


def estimated(part: Part, width: int) -> int:
    """About how many rows it takes in the record."""
    text = part.whole or str(part.text)
    match part.kind:
        case "reasoning":
            return 2
        case "call":
            code = 1 + text.count("\\n")
            return 3 + code + min(FOLDED + 1, (part.result or "").count("\n") + 1)
        case _:
            return 1 + text.count("\n") + len(text) // max(1, min(width or 120, 120))
