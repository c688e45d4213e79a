"""Reasoning in the conversation: its last lines while it comes, one line that opens afterwards."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.state.item_view import Part, duration
from tui.util.format import count, seconds
from tui.widgets.text_stream import Stream


class Fold(Static, can_focus=True):
    """The line that opens and folds what stands below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "turn", "Open or fold", show=False)
    ]
    DEFAULT_CSS = """
    Fold { height: 1; color: $text-muted; &:hover, &:focus { color: $accent; } }
    """

    def action_turn(self) -> None:
        thought = self.parent
        assert isinstance(thought, Thought)
        thought.open = not thought.open

    def on_click(self) -> None:
        self.action_turn()


class Thought(Vertical):
    DEFAULT_CSS = """
    Thought {
        height: auto;
        Stream { color: $text-muted; margin-left: 2; max-height: 8; }
        &.-open Stream { max-height: 100%; }
    }
    """

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part
        self._seen = 0
        self._clock = 0.0
        self._fold = Fold("", markup=False)
        self._text: Stream | None = None
        """Only while it is seen."""
        self._open = False

    def compose(self) -> ComposeResult:
        yield self._fold

    def on_mount(self) -> None:
        self.follow()

    @property
    def open(self) -> bool:
        return self._open

    @open.setter
    def open(self, value: bool) -> None:
        self._open = value
        self.set_class(value, "-open")
        self.follow()

    def follow(self, now: float | None = None) -> None:
        """Show what came since the last call; ``now``: for how long it goes on."""
        self._clock = now or self._clock
        if not self._fold.is_attached:
            return
        self._head()
        if self.part.settled and not self._open:
            if self._text is not None:
                self._text.remove()
                self._text = None
            return
        if self._text is None:
            self._text, self._seen = Stream(grows=True), 0
            self.mount(self._text)
        new = self.part.text.after(self._seen)
        if self.part.settled and not self._text.text and not new:
            new = self.part.whole or ""
        self._seen = len(self.part.text)
        self._text.write(new)

    def _head(self) -> None:
        arrow = "▾" if self._open or not self.part.settled else "▸"
        if not self.part.settled:
            spent = seconds(max(0.0, self._clock - self.part.began)) if self._clock else ""
            line = f"{arrow} Thinking {spent}"
        else:
            spent, tokens = duration(self.part), self.part.tokens
            words = [
                f"Thought for {spent}" if spent else "Thought",
                f"{count(tokens)} tokens" if tokens else "",
                "cut off" if self.part.cut else "",
            ]
            line = f"{arrow} {' · '.join(filter(None, words))}"
        self._fold.update(Content(line), layout=False)
