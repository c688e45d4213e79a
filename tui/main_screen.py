"""The screen of the conversation: its widgets, and the keys and messages that belong to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, TextArea

from agent.errors import UserError
from tui.base_screen import BaseScreen
from tui.keymap import bind
from tui.widgets.prompt import PromptInput, QueueBar
from tui.widgets.tabs import TabBar
from tui.widgets.transcript import Transcript
from tui.widgets.welcome import PromptExamples, WelcomeBanner

if TYPE_CHECKING:
    from tui.commands.context import CommandContext
    from tui.widgets.token_view import TokenView

DOUBLE_ESCAPE_SECONDS = 1.0


class MainScreen(BaseScreen):
    """One conversation of the person, and tabs with those of other programs over HTTP."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop the answer"),
        Binding("tab", "focus_next", show=False),
        # With priority: the keys typed next are meant for the screen, or the search.
        bind("sessions", "app.open_screen('sessions')", priority=True),
        bind("models", "app.open_screen('models')", priority=True),
        bind("mcp", "app.open_screen('servers')", priority=True),
        bind("history", "app.open_screen('history')", priority=True),
        bind("search", "search", priority=True),
        # The prompt has them too, before the keys of a text area.
        bind("scroll_top", "move('home')"),
        bind("scroll_bottom", "move('end')"),
    ]

    def __init__(self, owner: CommandContext, on_start: Callable[[], None]) -> None:
        """``on_start``: called once the widgets are mounted."""
        super().__init__(id="_default")
        self._owner, self._on_start = owner, on_start
        self._queue_bar = QueueBar(owner.queue)
        self._is_covered = False
        self._escaped_at = self._resumed_at = float("-inf")
        """When Esc was pressed in an empty prompt, and when a screen above closed (the app's clock)."""

    def compose(self) -> ComposeResult:
        owner = self._owner
        yield TabBar()
        with owner.body, owner.transcript:
            yield WelcomeBanner()
        yield self._queue_bar
        yield owner.prompt.completion_menu
        yield owner.prompt
        yield owner.live.status_line

    def on_mount(self) -> None:
        self._owner.prompt.focus()
        self._on_start()

    async def on_prompt_input_sent(self, message: PromptInput.Sent) -> None:
        if not self._owner.commands.is_for_visible_tab(message.text):
            await self._owner.served_tabs.show_tab(None)
        await self._owner.chat.submit(message.text)

    async def on_paste(self, event: events.Paste) -> None:
        """Put into the prompt what no field takes."""
        if not isinstance(self.focused, TextArea | Input):
            await self._owner.prompt._on_paste(event)

    def action_recall(self) -> None:
        if (text := self._owner.chat.recall()) is not None:
            self._owner.prompt.put_before(text)

    async def action_close_tab(self) -> None:
        await self._owner.served_tabs.close()

    def on_prompt_examples_taken(self, message: PromptExamples.Taken) -> None:
        self._owner.prompt.replace_with(message.text)
        self._owner.prompt.focus()

    def on_transcript_following_changed(self) -> None:
        transcript = self._owner.live.visible_transcript
        self._owner.prompt.hints.set_scrolled_away(transcript.is_scrolled_away)

    def on_token_view_inspected(self, message: TokenView.Inspected) -> None:
        self._owner.prompt.set_class(message.has_cursor, "-tokens")

    def on_token_view_left(self) -> None:
        self.set_focus(self._owner.prompt)  # at once, before the next key

    async def on_token_view_taken(self, message: TokenView.Taken) -> None:
        await self._owner.tokens.take(message.position, message.token)

    async def on_tab_bar_pressed(self, message: TabBar.Pressed) -> None:
        tabs = self._owner.served_tabs
        if not message.closes:
            await tabs.show_number(message.number)
        elif message.number <= len(tabs.tabs):
            await tabs.close(tabs.tabs[message.number - 1])

    def on_key(self, event: events.Key) -> None:
        prompt = self._owner.prompt
        if self._owner.chat.cards.takes_letters or prompt.has_focus:
            return
        if event.is_printable and event.character:
            prompt.focus()
            prompt.insert(event.character)

    def leave_tokens(self, event: events.Key) -> None:
        """Give the prompt the focus where a letter is pressed on the tokens: before the next key."""
        view = self._owner.live.token_view
        if view is None or not view.has_focus_within or event.is_forwarded:
            return
        if isinstance(self.focused, Input) or event.key in self.active_bindings:
            return
        if event.is_printable and not self._owner.chat.cards.takes_letters:
            self.set_focus(self._owner.prompt)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the key of the search to one-line inputs (extends Textual's)."""
        if action == "search" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_focus_next(self) -> None:
        """Move the focus on; from the prompt, to a question, the token view or the newest turn."""
        owner, view = self._owner, self._owner.live.token_view
        if not owner.prompt.has_focus or not (
            owner.chat.cards.enter()
            or (view is not None and view.focus_tokens())
            or owner.live.visible_transcript.focus_newest()
        ):
            self.focus_next()

    async def action_stop(self) -> None:
        """Close the search, else end the editing or what runs, and return to the prompt."""
        from tui.widgets.search import BaseSearchBar

        if bars := self.query(BaseSearchBar):
            await bars.first().action_close()
            return
        owner = self._owner
        if not owner.chat.stop() and owner.prompt.has_focus and not owner.prompt.text:
            await self._offer_rewind()
        if self.focused and owner.live.visible_transcript in self.focused.ancestors:
            self.set_focus(owner.prompt)  # at once, before the next key

    def on_screen_suspend(self) -> None:
        self._is_covered = True

    def on_screen_resume(self) -> None:
        if self._is_covered:  # not at the start
            self._resumed_at = self._owner.clock()

    async def _offer_rewind(self) -> None:
        """Open the list of messages to go back to, at the second Esc in an empty prompt."""
        owner, now = self._owner, self._owner.clock()
        if now - self._resumed_at < DOUBLE_ESCAPE_SECONDS:
            return  # it was meant for the screen above
        is_second = now - self._escaped_at < DOUBLE_ESCAPE_SECONDS
        self._escaped_at = float("-inf") if is_second else now
        if owner.transcript.own_turns:
            if is_second:
                await owner.chat.submit("/rewind")
            else:
                owner.prompt.hints.show("Esc again: go back to a message")

    async def action_search(self) -> None:
        from tui.widgets.search import SearchBar

        transcript, tokens = self._owner.live.visible_transcript, self._owner.live.token_view
        if tokens is not None and tokens.has_focus_within:
            await tokens.open_search()
        elif bars := self.query(SearchBar):
            bars.first().enter()
        elif transcript.newest_exchange is not None:
            await self.mount(SearchBar(transcript), before=self._queue_bar)

    def action_move(self, target: Literal["page_up", "page_down", "home", "end"]) -> None:
        transcript: Transcript = self._owner.live.visible_transcript
        if target == "end":
            transcript.scroll_to_live_end()
        elif target == "page_down" and transcript.is_vertical_scroll_end:
            transcript.scroll_end(animate=False)  # keeps following it
        else:
            getattr(transcript, f"scroll_{target}")(animate=False)

    async def action_pick(self) -> None:
        await self._owner.message_picker.pick_latest()

    async def action_press_picked(self, key: str) -> None:
        await self._owner.message_picker.handle_key(key)

    async def action_colour_tokens(self) -> None:
        owner, turns = self._owner, self._owner.transcript.own_turns
        if owner.live.tab is not None:
            raise UserError("Only your own conversation can be coloured.")
        if turns:
            await owner.tokens.toggle_colours(turns[-1])

    async def action_edit_outside(self) -> None:
        from tui.terminal.own_programs import edit_text

        prompt = self._owner.prompt
        try:
            prompt.replace_with(await edit_text(self._owner, prompt.full_text))
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)
