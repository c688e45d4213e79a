"""Reasoning in the transcript: its last lines while it streams, afterwards one line that expands."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from tui.guarded import Guarded
from tui.state.item_view import ItemView, duration
from tui.util.format import format_seconds, format_tokens
from tui.widgets.text_stream import TextStream
from tui.widgets.virtual_scroll import Foldable


class FoldToggle(Static, can_focus=True):
    """The line above reasoning, which expands and collapses it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "toggle_fold", "Open or fold", show=False)
    ]
    DEFAULT_CSS = """
    FoldToggle { height: 1; color: $text-muted; &:hover, &:focus { color: $accent; } }
    """

    def action_toggle_fold(self) -> None:
        block = self.parent
        assert isinstance(block, ReasoningBlock)
        block.set_expanded(not block.expanded)

    def on_click(self) -> None:
        self.action_toggle_fold()


class ReasoningBlock(Guarded, Foldable, Vertical):
    """Shows one reasoning item; its text is a widget only while it is seen."""

    DEFAULT_CSS = """
    ReasoningBlock {
        height: auto;
        &:focus-within FoldToggle { color: $accent; }
        TextStream { color: $text-muted; margin-left: 2; max-height: 8; }
        &.-open TextStream { max-height: 100%; }
    }
    """

    def __init__(self, item: ItemView) -> None:
        self._toggle = FoldToggle("", markup=False)
        super().__init__(self._toggle)
        self.item = item
        self._chunks_read = 0
        self._now = 0.0
        self._stream: TextStream | None = None  # the text; None while it is collapsed

    def on_mount(self) -> None:
        self.follow()

    def update_fold(self) -> None:
        self.set_class(self.expanded, "-open")
        self.follow()

    def follow(self, now: float | None = None) -> None:
        """Show what came since the last call. ``now``: the clock's time, for the elapsed time."""
        self._now = now or self._now
        if not self._toggle.is_attached:
            return
        self._update_title()
        if self.item.is_complete and not self.expanded:
            if self._stream is not None:
                self._stream.remove()
                self._stream = None
            return
        if self._stream is None:
            self._stream, self._chunks_read = TextStream(grows=True), 0
            self.mount(self._stream)
        new = self.item.text.read_from(self._chunks_read)
        if self.item.is_complete and not self._stream.text and not new:
            new = self.item.final_text or ""
        self._chunks_read = len(self.item.text)
        if self.item.coloured is not None and not self._stream.text:
            self._stream.write_runs(self.item.coloured)
        else:
            self._stream.write(new)

    def _update_title(self) -> None:
        arrow = "▾" if self.expanded or not self.item.is_complete else "▸"
        if not self.item.is_complete:
            spent = format_seconds(max(0.0, self._now - self.item.began)) if self._now else ""
            line = f"{arrow} Thinking {spent}"
        else:
            spent, tokens = duration(self.item), self.item.tokens
            words = [
                f"Thought for {spent}" if spent else "Thought",
                format_tokens(tokens) if tokens else "",
                "cut off" if self.item.incomplete else "",
            ]
            line = f"{arrow} {' · '.join(filter(None, words))}"
        self._toggle.update(Content(line), layout=False)
