"""Where the person writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from tui.state.paste_folding import Pasted
from tui.state.prompt_history import History
from tui.util.attachments import folded
from tui.util.format import shown
from tui.widgets.completion_menu import Choices

if TYPE_CHECKING:
    from tui.util.completion import Completion, Offer

BURST = 0.03
"""Seconds: keys that follow each other faster were not pressed."""
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
        Binding("ctrl+pageup", "app.served(-1)", "The tab before", show=False),
        Binding("ctrl+pagedown", "app.served(1)", "The next tab", show=False),
        Binding("ctrl+w", "delete_word_or_close", "Delete the word", show=False),
        Binding("ctrl+c", "app.interrupt_or_leave", "Copy, stop or leave", show=False),
        Binding("ctrl+up,alt+up", "app.pick", "An earlier message", show=False),
        Binding("ctrl+s", "app.steer", "Say it now", show=False),
        Binding("ctrl+g", "edit_outside", "Write in $EDITOR", show=False),
        Binding("ctrl+y", "app.command('copy')", "Copy the answer", show=False),
        Binding("alt+y", "app.command('copy', 'code')", "Copy the last code block", show=False),
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

    @dataclass
    class Closed(Message):
        """The person is done with the tab that is looked at."""

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
        self.completion: Completion | None = None
        """What may be offered, once that is known."""
        self.choices = Choices()
        """The list, for the app to put right before the prompt."""
        self._pasted = Pasted()
        self._burst = False
        self._dismissed = False
        self.pressed = 0.0
        """When the last key or paste came (monotonic)."""
        self._queued = queued
        self.hint_usually()

    async def action_edit_outside(self) -> None:
        # Ctrl-G is also the BEL that ends a sequence: one in a pasted text is not meant.
        if not self._burst:
            await self.run_action("app.edit_outside")

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def action_send(self) -> None:
        if text := self.take():
            self.post_message(self.Sent(text))

    def take(self) -> str:
        """What was written, which is sent now; empty where there is nothing to send."""
        text = self.whole
        if not text.strip():
            return ""
        self.sent_before.add(text)
        self.clear()
        return text

    def hint(self, words: str = "") -> None:
        """Beside the prompt; by itself, what is usually there."""
        self.border_subtitle = Content(words or self._usual)

    def hint_usually(self, words: str = HINTS) -> None:
        """From now on; by itself, what its keys are."""
        self._usual = words
        self.hint()

    def action_delete_word_or_close(self) -> None:
        """Where nothing is written, a tab is closed, as in browsers."""
        if self.text:
            self.action_delete_word_left()
        else:
            self.post_message(self.Closed())

    @property
    def whole(self) -> str:
        """What is written, pasted texts included."""
        return self._pasted.unfold(self.text)

    def replace_with(self, text: str) -> None:
        """Write this instead; what is too long to be edited here is folded."""
        self._dismissed = True  # nothing is offered for what was whole before
        self.load_text(self._pasted.fold(folded(text), times=10))
        self.move_cursor(self.document.end)

    # --- what it could go on with ---

    def on_text_area_changed(self) -> None:
        self._offer()
        if self.completion and self.completion.wants_files(self._before()):
            self.run_worker(self._look(), group="files")

    def on_focus(self) -> None:
        if self.screen.focused is self:  # an exchange may have been picked meanwhile
            self.hint()

    def on_blur(self) -> None:
        self.choices.offer(())

    async def _look(self) -> None:
        """For files; those that were there a moment ago are offered meanwhile."""
        files = self.completion.files if self.completion else None
        if files is not None and files.stale:
            await asyncio.to_thread(files.look)
            self._offer()

    def _before(self) -> str:
        """The line up to the cursor; where it is not the first, with the break before it."""
        row, column = self.cursor_location
        return ("\n" if row else "") + self.document.get_line(row)[:column]

    def _offer(self) -> Offer | None:
        offer = self.completion.offer(self._before()) if self.completion else None
        if offer is None:
            self._dismissed = False
        self.choices.offer(offer.choices if offer and not self._dismissed else ())
        return offer

    def _choose(self, key: str) -> bool:
        """A key for the choices; false where it is not meant for them."""
        match key:
            case "up" | "down":
                self.choices.move(1 if key == "down" else -1)
            case "escape":
                self._dismissed = True
                self.choices.offer(())
            case "tab" | "enter":
                offer = self._offer()
                if offer is None or not self.choices.offered:
                    return False
                chosen = self.choices.chosen.text
                row, column = self.cursor_location
                start = offer.start - (1 if row else 0)
                self.replace(chosen, (row, start), (row, column))
                self.move_cursor((row, start + len(chosen)))
                return key == "tab" or chosen not in offer.sends
            case _:
                return False
        return True

    # --- what was said before ---

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
        before, self.pressed = self.pressed, time.monotonic()
        self._burst = self.pressed - before < BURST
        if self.choices.offered and self._choose(event.key):
            event.stop()
            event.prevent_default()
        elif event.key == "backspace" and (size := self._pasted.ends(self._before())):
            event.stop()
            event.prevent_default()
            row, column = self.cursor_location
            self.delete((row, column - size), (row, column))
        elif event.character == "?" and not self.text:
            event.stop()
            event.prevent_default()
            await self.run_action("app.help")
        elif bound := self._bindings.key_to_bindings.get(event.key):
            event.stop()
            event.prevent_default()
            await self.run_action(bound[0].action)

    async def _on_paste(self, event: events.Paste) -> None:
        self.pressed = time.monotonic()
        # What is pasted may carry sequences that would act on the terminal once it is shown.
        event.prevent_default()
        text = "\t".join(map(shown, event.text.split("\t")))  # tabs are harmless, and may be meant
        result = self.replace(self._pasted.fold(text), *self.selection)
        self.move_cursor(result.end_location)
