"""Where the person writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from tui.history import History
from tui.words import shown

HINTS = "Enter sends · Ctrl-J new line · Esc stops · F1 help"


class Prompt(TextArea):
    """Enter sends; the arrows at its edges walk through what was sent before."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "New line", show=False),
        Binding("enter", "send", "Send", show=False),
        Binding("up", "earlier", "Earlier prompt", show=False),
        Binding("down", "later", "Later prompt", show=False),
        Binding("pageup", "app.move('page_up')", "Scroll up", show=False),
        Binding("pagedown", "app.move('page_down')", "Scroll down", show=False),
        Binding("ctrl+home", "app.move('home')", "To the beginning", show=False),
        Binding("ctrl+end", "app.move('end')", "To the end", show=False),
        Binding("ctrl+c", "app.interrupt_or_leave", "Copy, stop or leave", show=False),
        Binding("ctrl+y", "app.copy_answer", "Copy the answer", show=False),
    ]
    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 10; padding: 0 1;
        border: round $rule; background: $background; scrollbar-size-vertical: 1;
        border-subtitle-color: $text-muted; border-subtitle-align: right;
        &:focus { border: round $accent; background: $background; }
        & .text-area--placeholder { color: $text-muted; }
        & .text-area--cursor-line { background: $background; }
    }
    """

    @dataclass
    class Sent(Message):
        """The person wants this to be answered."""

        text: str

    @dataclass
    class Recalled(Message):
        """The person wants the latest queued prompt back."""

    def __init__(self, history: History, queued: Callable[[], bool]) -> None:
        """``queued``: whether prompts wait; up gives the latest of them back first."""
        super().__init__(
            placeholder="Ask something",
            show_line_numbers=False,
            soft_wrap=True,
            tab_behavior="focus",
            highlight_cursor_line=False,
        )
        self.sent_before = history
        self.pressed = 0.0
        """When the last key came (monotonic)."""
        self._queued = queued
        self.border_subtitle = HINTS

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def action_send(self) -> None:
        if text := self.take():
            self.post_message(self.Sent(text))

    def take(self) -> str:
        """What was written, which is sent now; empty where there is nothing to send."""
        text = self.text
        if not text.strip():
            return ""
        self.sent_before.add(text)
        self.clear()
        return text

    def replace_with(self, text: str) -> None:
        self.load_text(text)
        self.move_cursor(self.document.end)

    def action_earlier(self) -> None:
        if self.cursor_location[0] > 0 and self.text:
            self.action_cursor_up()
        elif not self.text and self._queued():
            self.post_message(self.Recalled())
        elif (text := self.sent_before.earlier(self.text)) is not None:
            self.replace_with(text)

    def action_later(self) -> None:
        if self.cursor_location[0] < self.document.line_count - 1:
            self.action_cursor_down()
        elif (text := self.sent_before.later()) is not None:
            self.replace_with(text)

    async def _on_key(self, event: events.Key) -> None:
        """Run what is bound here, at once: bindings are looked up only after a key has bubbled to the
        app, and by then what was typed behind it may stand in the text already."""
        self.pressed = time.monotonic()
        if bound := self._bindings.key_to_bindings.get(event.key):
            event.stop()
            event.prevent_default()
            await self.run_action(bound[0].action)

    async def _on_paste(self, event: events.Paste) -> None:
        # What is pasted may carry sequences that would act on the terminal once it is shown.
        event.prevent_default()
        result = self.replace(shown(event.text), *self.selection)
        self.move_cursor(result.end_location)
