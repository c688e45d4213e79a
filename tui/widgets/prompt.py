"""The text area for prompts and commands. Overrides ``TextArea._on_key``, ``_on_paste`` and reads
``_bindings``: private in Textual 8.2 (``<8.3``)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from agent.config.keys import KeyBindings
from agent.util.images import CANNOT_SEE, is_pasted_image
from tui.guarded import Guarded
from tui.keymap import bind
from tui.state.own_turn import PromptQueue
from tui.state.prompt_history import PromptHistory
from tui.util.attachments import without_attachments
from tui.util.format import clean_text, display_text
from tui.widgets.folding_area import FoldingArea

if TYPE_CHECKING:
    from tui.state.command import CompletionItem
    from tui.state.completion import PromptCompleter, Suggestions

log = logging.getLogger(__name__)
BURST_SECONDS = 0.03
"""Keys that follow each other faster were not pressed: they come from a paste."""
VISIBLE_ROWS, MAX_VISIBLE_PROMPTS = 8, 3
"""Completions, and queued prompts, that are shown at a time."""


class CompletionMenu(Static):
    """Shows completions over the widgets above the prompt, without moving them."""

    DEFAULT_CSS = """
    CompletionMenu {
        overlay: screen; constrain: inside inside; height: auto; width: auto; max-width: 100%;
        min-width: 30; padding: 0 1; border: round $rule; background: $background; display: none;
        border-subtitle-color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._choices: Sequence[CompletionItem] = ()
        self._highlighted = 0

    @property
    def is_open(self) -> bool:
        return bool(self._choices)

    @property
    def highlighted(self) -> CompletionItem:
        """The highlighted choice; only while the menu is open."""
        return self._choices[self._highlighted]

    def show_choices(self, choices: Sequence[CompletionItem]) -> None:
        """Show these choices, the first highlighted; close the menu where there are none."""
        if choices != self._choices:
            self._choices, self._highlighted = choices, 0
            self._update()

    def move(self, by: int) -> None:
        self._highlighted = (self._highlighted + by) % len(self._choices)
        self._update()

    def _update(self) -> None:
        self.display = self.is_open
        centred, last = self._highlighted - VISIBLE_ROWS // 2, len(self._choices) - VISIBLE_ROWS
        first = max(0, min(centred, last))
        seen = self._choices[first : first + VISIBLE_ROWS]
        width = max((len(choice.text) for choice in seen), default=0)
        rows = []
        for number, choice in enumerate(seen, first):
            style = "bold $accent" if number == self._highlighted else ""
            about = f"  {display_text(choice.description)}" if choice.description else ""
            text = f"{display_text(choice.text):{width}}"
            rows.append(Content.assemble((text, style), (about, "$text-muted")))
        self.update(Content("\n").join(rows))
        position = f"{self._highlighted + 1} of {len(self._choices)}"
        self.border_subtitle = Content(position if len(seen) < len(self._choices) else "")
        # Its lower edge on the prompt's upper one, whatever it has to offer.
        self.styles.offset = (0, -len(seen) - 2)


class QueueBar(Static):
    """Shows the queued prompts, and the steering messages that wait."""

    DEFAULT_CSS = "QueueBar { height: auto; padding: 0 2; color: $text-muted; display: none; }"

    def __init__(self, queue: PromptQueue) -> None:
        super().__init__("", markup=False)
        self._queue, self._lines = queue, list[str]()
        queue.on_change = self._update_lines

    def _update_lines(self) -> None:
        waiting = [("to this turn", text) for text in self._queue.steering] + [
            ("queued", text) for text in self._queue.prompts
        ]
        lines = [
            f"{when}: {' '.join(without_attachments(text).split())[:200]}"
            for when, text in waiting[:MAX_VISIBLE_PROMPTS]
        ]
        if (rest := len(waiting) - MAX_VISIBLE_PROMPTS) > 0:
            lines.append(f"… and {rest} more")
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n".join(lines)))
            self.display = bool(lines)


class PromptHints:
    """Chooses the hint: what the keys mean now, unless there is something else to say."""

    def __init__(self, key_bindings: KeyBindings, area: FoldingArea) -> None:
        """``area``: shows the hint in its lower edge."""
        label = key_bindings.label
        self._idle = f"Enter sends · {label('newline')} new line · Esc stops · {label('help')} help"
        now = f"{label('steer')} sends now · {label('answer')} answers now"
        self._busy = f"Enter queues · {now} · Esc stops"
        self._scrolled = f"scrolled up · {label('scroll_bottom')} returns to the end"
        self._text = self._tab = ""
        self._is_busy = self._is_scrolled = False
        self._area = area
        self._update()

    def show(self, text: str = "") -> None:
        """Show a hint until the next one; without text, the default hint."""
        self._text = text
        self._update()

    def set_tab(self, text: str = "") -> None:
        """Show this by default, for the visible tab; without text, the prompt's keys."""
        self._text, self._tab = "", text
        self._update()

    def set_turn_running(self, running: bool) -> None:
        self._is_busy = running
        self._update()

    def set_scrolled_away(self, scrolled_away: bool) -> None:
        self._is_scrolled = scrolled_away
        self._update()

    def _update(self) -> None:
        default = self._tab or (self._busy if self._is_busy else self._idle)
        hint = self._text or (self._scrolled if self._is_scrolled else default)
        self._area.border_subtitle = Content(hint)


class PromptInput(Guarded, FoldingArea):
    """Writes prompts: Enter sends, the arrows at its edges go through what was sent before."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", show=False),
        Binding("up", "earlier", "Earlier prompt", show=False),
        Binding("down", "later", "Later prompt", show=False),
        Binding("alt+d", "delete_word_right", "Delete the next word", show=False),
        Binding("ctrl+c", "app.interrupt_or_leave", "Copy, stop or leave", show=False),
        bind("newline", "newline"),
        bind("mode", "app.command('mode')"),
        bind("scroll_up", "screen.move('page_up')"),
        bind("scroll_down", "screen.move('page_down')"),
        bind("scroll_top", "screen.move('home')"),
        bind("scroll_bottom", "screen.move('end')"),
        bind("previous_tab", "app.served(-1)"),
        bind("next_tab", "app.served(1)"),
        bind("close_tab", "delete_word_or_close"),
        bind("quit", "delete_right_or_leave"),
        bind("select", "screen.pick", priority=True),  # the keys typed next are for the message
        bind("steer", "app.steer"),
        bind("editor", "edit_outside"),
        bind("copy", "app.command('copy')"),
        bind("copy_code", "app.command('copy', 'code')"),
    ]
    DEFAULT_CSS = """
    PromptInput {
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
        """Posted when the person sends a prompt or a command."""

        text: str

    def __init__(
        self, history: PromptHistory, has_queued: Callable[[], bool], key_bindings: KeyBindings
    ) -> None:
        """``has_queued`` returns whether prompts are queued: then Up recalls the latest of them."""
        super().__init__(placeholder="Ask something")
        self.prompt_history = history
        self.completer: PromptCompleter | None = None
        self._blank_added_at: tuple[int, int] | None = None
        """Behind the blank of a completion, which people type too."""
        self.completion_menu = CompletionMenu()
        """The pop-up list, which the app mounts right before the prompt."""
        self._in_burst = False
        self._dismissed = False
        self.last_input_at = 0.0
        """Monotonic time of the last key or paste."""
        self.has_sent = False
        """Whether a text was taken to be sent, whatever has become of it."""
        self._has_queued = has_queued
        self._apply_keymap(key_bindings.chosen)
        self.hints = PromptHints(key_bindings, self)

    def _apply_keymap(self, keymap: Mapping[str, str]) -> None:
        """Bind the person's keys, for `_on_key` looks up no others; those of the app go first."""
        bound = self._bindings.key_to_bindings
        self._bindings.apply_keymap(keymap)
        bound.setdefault("ctrl+w", [Binding("ctrl+w", "delete_word_left", show=False)])
        bound.setdefault("ctrl+d", [Binding("ctrl+d", "delete_right", show=False)])
        for key in ",".join(keymap.values()).split(","):
            if not any(binding.id for binding in bound.get(key, ())):
                bound.pop(key, None)

    async def action_edit_outside(self) -> None:
        # Ctrl-G is BEL, which ends OSC sequences: one in pasted text is not a key.
        if not self._in_burst:
            await self.run_action("screen.edit_outside")

    def action_send(self) -> None:
        if text := self.take_text():
            self.post_message(self.Sent(text))

    def take_text(self) -> str:
        """Clear the prompt and return its text, without line breaks at its end; empty if blank."""
        text = self.full_text.rstrip("\n")
        if not text.strip():
            return ""
        self.prompt_history.add(text)
        self.has_sent = True
        self.load_text("")  # what was sent comes back from the history, not by undoing
        return text

    async def action_delete_word_or_close(self) -> None:
        if self.text:
            self.action_delete_word_left()
        else:
            await self.run_action("screen.close_tab")

    async def action_delete_right_or_leave(self) -> None:
        if self.text:
            self.action_delete_right()
        else:
            await self.run_action("app.leave_if_repeated")

    def replace_with(self, text: str) -> None:
        """Replace the prompt, which undoing brings back; a text too long to be edited is folded."""
        self._dismissed = True  # no completions for a text that was complete before
        super().replace_with(text)

    # --- completion ---

    def set_completer(self, completer: PromptCompleter) -> None:
        """Complete with this from now on, and at once what is typed already."""
        self.completer = completer
        self.on_text_area_changed()

    def on_text_area_changed(self) -> None:
        self._suggest()
        if self.completer and (read := self.completer.begin_reading(self._text_before_cursor())):
            self.run_worker(self._complete_later(read), group="completion")

    def on_focus(self) -> None:
        if self.screen.focused is self:  # a message may have been picked meanwhile
            self.hints.show()

    def on_blur(self) -> None:
        self.completion_menu.show_choices(())

    async def _complete_later(self, read: Callable[[], None]) -> None:
        """Read in a thread what completes the text; what was read before is offered meanwhile."""
        try:
            await asyncio.to_thread(read)
        except Exception:  # of a folder or a configuration: typing continues
            log.warning("there are no completions", exc_info=True)
        if self.has_focus:
            self._suggest()

    def _text_before_cursor(self) -> str:
        """Return the line up to the cursor; if it is not the first, behind a line break."""
        row, column = self.cursor_location
        return ("\n" if row else "") + self.document.get_line(row)[:column]

    def _suggest(self) -> Suggestions | None:
        """Show the completions of the text before the cursor, unless they were dismissed."""
        suggestions = self.completer.suggest(self._text_before_cursor()) if self.completer else None
        if suggestions is None:
            self._dismissed = False
        choices = suggestions.choices if suggestions and not self._dismissed else ()
        self.completion_menu.show_choices(choices)
        return suggestions

    def _press_in_menu(self, key: str) -> bool:
        """Handle a key while the menu is open; return whether the key is used up."""
        match key:
            case "up" | "down":
                self.completion_menu.move(1 if key == "down" else -1)
            case "escape":
                self._dismissed = True
                self.completion_menu.show_choices(())
            case "tab" | "enter":
                suggestions = self._suggest()
                if suggestions is None or not self.completion_menu.is_open:
                    return False
                chosen = self.completion_menu.highlighted.text
                row, column = self.cursor_location
                start = suggestions.start - (1 if row else 0)
                self.replace(chosen, (row, start), (row, column))
                self.move_cursor((row, start + len(chosen)))
                self._blank_added_at = self.cursor_location if chosen.endswith(" ") else None
                return key == "tab" or chosen not in suggestions.submits
            case _:
                return False
        return True

    # --- history ---

    async def action_earlier(self) -> None:
        """Move the cursor up; on the first line, go back in what was sent, first in what is queued."""
        if self.cursor_location[0] > 0 and self.text:
            self.action_cursor_up()
        elif not self.text and self._has_queued():
            await self.run_action("screen.recall")
        elif (text := self.prompt_history.go(-1, self.draft)) is not None:
            self.replace_with(text)

    def action_later(self) -> None:
        if self.cursor_location[0] < self.document.line_count - 1:
            self.action_cursor_down()
        elif (text := self.prompt_history.go(1, self.draft)) is not None:
            self.replace_with(text)

    async def _on_key(self, event: events.Key) -> None:
        """Run the prompt's own bindings at once: Textual looks them up when a key has bubbled to the
        app, and the next keys may be in the text by then."""
        before, self.last_input_at = self.last_input_at, time.monotonic()
        self._in_burst = self.last_input_at - before < BURST_SECONDS
        action = ""
        if self.completion_menu.is_open and self._press_in_menu(event.key):
            pass
        elif event.key == "space" and self.cursor_location == self._blank_added_at:
            self._blank_added_at = None  # a second one is meant
        elif event.character == "?" and not self.text:
            action = "app.help"
        elif bound := self._bindings.key_to_bindings.get(event.key):
            action = bound[0].action
        else:
            return
        event.stop()
        event.prevent_default()
        if action:
            await self.run_action(action)

    async def _on_paste(self, event: events.Paste) -> None:
        self.last_input_at = time.monotonic()
        event.prevent_default()
        if not event.text or is_pasted_image(event.text):
            # Terminals paste nothing where the clipboard has a picture instead of text.
            subject = "That is an image" if event.text else "There is no text to paste"
            self.app.notify(f"{subject}; {CANNOT_SEE}.", severity="warning")
            if not event.text or event.text.lstrip().startswith("data:"):
                return
        # A pasted text may hold sequences that would act on the terminal once it is shown.
        self.paste(clean_text(event.text))
