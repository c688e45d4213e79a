"""The Textual app, the composition root of ``tui``: composes the main screen, creates the controllers,
which see it as ``AppContext`` and ``CommandContext``, binds keys to actions. At its top it imports only
what the first paint needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.worker import WorkerFailed

from agent.config.keys import KeyBindings
from agent.util import gc_tuning
from agent.util.programs import open_in_browser
from tui import theme as themes
from tui.base_screen import BaseScreen
from tui.commands.context import CommandContext
from tui.controllers.chat import ChatController
from tui.controllers.draft_prefill import DraftPrefill
from tui.controllers.message_picker import MessagePicker
from tui.controllers.navigation import Navigator
from tui.controllers.prompts import PromptCards
from tui.controllers.served_tabs import ServedTabs
from tui.controllers.startup import Startup
from tui.controllers.titles import TitleWriter
from tui.controllers.token_explorer import TokenExplorer
from tui.guarded import Guarded
from tui.keymap import bind
from tui.session import Session
from tui.state.command import Commands
from tui.state.prompt_history import PromptHistory
from tui.terminal.driver import TerminalDriver
from tui.terminal.output_filter import CONTROL_CHAR_FILTER
from tui.widgets.prompt import PromptInput
from tui.widgets.queue_bar import QueueBar
from tui.widgets.status_line import StatusFields, StatusLine
from tui.widgets.tabs import TabBar
from tui.widgets.transcript import Transcript
from tui.widgets.welcome import PromptExamples, WelcomeBanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType
    from textual.app import SystemCommand
    from textual.filter import LineFilter
    from textual.screen import Screen
    from textual.timer import Timer

    from agent.turn.context import RunningTurn
    from tui.app_context import ScreenName
    from tui.state.turn_view import TurnView
    from tui.widgets.token_view import TokenView

log = logging.getLogger(__name__)
REPAINT_SECONDS = 0.04
"""Seconds between two repaints while a turn streams; the events in between are one update."""
CLOCK_TICK_SECONDS = 0.5
"""Seconds between two repaints of elapsed times while a turn runs and no event comes."""
WIDE_COLUMNS = 120
"""Columns from which on transcript and token view are side by side."""
TINY_COLUMNS = 16
"""Columns below which there are no scroll bars."""
SECOND_PRESS_SECONDS = 2.0
"""Seconds within which a second Ctrl-C or Ctrl-D ends the app."""


class AgentApp(Guarded, CommandContext):
    """One conversation of the person, and tabs with those of other programs over HTTP."""

    TITLE = "agent"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", "Quit", priority=True),
        Binding("escape", "stop", "Stop the answer"),
        Binding("ctrl+c", "interrupt_or_leave", "Copy, stop, clear or leave", show=False),
        bind("help", "help"),
        bind("view", "view"),
        bind("next_tab", "served(1)"),
        bind("previous_tab", "served(-1)"),
        bind("theme", "theme"),
        bind("raw", "raw"),
        bind("redraw", "redraw"),
        bind("steer", "steer"),
        # With priority: the keys typed next are meant for the screen, or the search.
        bind("sessions", "open_screen('sessions')", priority=True),
        bind("models", "open_screen('models')", priority=True),
        bind("mcp", "open_screen('servers')", priority=True),
        bind("history", "open_screen('history')", priority=True),
        bind("search", "search", priority=True),
        bind("palette", "command_palette", priority=True),
        bind("fold", "fold"),
        # The prompt has them too, before the keys of a text area.
        bind("scroll_top", "move('home')"),
        bind("scroll_bottom", "move('end')"),
    ]

    max_errors = 20
    """Errors of the program itself after which the app continues; each is in the log file."""

    def __init__(
        self,
        session: Session,
        *,
        history: Path | None = None,
        theme: str | None = None,
        shows_panes: bool = True,
        probability_scale: str | None = None,
        key_bindings: KeyBindings = KeyBindings(),
        save_setting: Callable[[str, str], None] = lambda key, value: None,
        on_first_paint: Callable[[], None] = lambda: None,
    ) -> None:
        """``history``: the file of prompts. ``shows_panes``: show a running turn as live panes.
        ``probability_scale``: by default green to red. ``save_setting``: gets key and value of a chosen
        theme or view; raises UserError. ``on_first_paint``: called once, in a thread."""
        # NO_COLOR: the terminal's own colours, not shades of grey, and a cursor without colour.
        plain = "NO_COLOR" in os.environ
        super().__init__(driver_class=TerminalDriver, ansi_color=True if plain else None)
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE_COLUMNS, "-wide")]
        self.session = session
        self.key_bindings = key_bindings
        self.set_keymap(key_bindings.chosen)
        self.clock = time.monotonic
        self.exit_message = None
        self.session_ready = False
        self._errors = 0
        self._clock_timer: Timer | None = None
        self.chat = ChatController(self, PromptCards(self))
        self.message_picker = MessagePicker(self, self.chat)
        self.draft_prefill = DraftPrefill(self, self.chat)
        self.titles = TitleWriter(self, self.chat)
        self.tokens = TokenExplorer(self, self.chat)
        self.served_tabs = ServedTabs(self)
        self.startup = Startup(self, self.chat, self.served_tabs, self.titles)
        self.navigator = Navigator(self, self.chat, self.startup)
        self._probability_scale = probability_scale
        self.last_input_at = 0.0
        """When a key or the mouse was used last anywhere, by the monotonic clock."""
        self._last_press = ("", 0.0)
        """The key that ends the app if it is pressed again soon, and when it was pressed."""
        self._save_setting, self._on_first_paint = save_setting, on_first_paint
        for own_theme in themes.THEMES:
            self.register_theme(own_theme)
        theme = themes.ANSI.name if plain else theme
        self._unknown_theme = None if theme in self.available_themes else theme
        self.theme = theme if theme in self.available_themes else themes.DARK.name

        # Attributes instead of queries: while the app closes they are on no screen any more.
        self.body = Container(id="body")
        self.transcript = Transcript(id="chat", shows_panes=shows_panes)
        self.token_view: TokenView | None = None
        """Created when it is first opened."""
        self.queue_bar = QueueBar()
        self.status_line = StatusLine(key_bindings.label("next_tab"))
        self.prompt = PromptInput(
            PromptHistory(history), lambda: not self.queue_bar.is_queue_empty, key_bindings
        )

    def get_line_filters(self) -> list[LineFilter]:
        return [*super().get_line_filters(), CONTROL_CHAR_FILTER]

    def get_default_screen(self) -> BaseScreen:
        return BaseScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield TabBar()
        with self.body, self.transcript:
            yield WelcomeBanner()
        yield self.queue_bar
        yield self.prompt.completion_menu
        yield self.prompt
        yield self.status_line

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < TINY_COLUMNS, "-tiny")

    def on_mount(self) -> None:
        self.prompt.focus()
        self._set_probability_scale(self._probability_scale)
        for problem in dict.fromkeys(self.key_bindings.problems.values()):
            self.transcript.add_notice(problem, error=True)
        if self._unknown_theme is not None:
            self.transcript.add_notice(f"There is no theme {self._unknown_theme!r}.", error=True)
        self._clock_timer = self.set_interval(CLOCK_TICK_SECONDS, self._on_clock_tick, pause=True)
        quiet = gc_tuning.IdleCollector()
        self.set_interval(gc_tuning.IDLE_SECONDS, lambda: quiet.collect(self.last_input_at))
        self.call_after_refresh(self.run_worker, self._on_first_paint, thread=True)
        self.call_after_refresh(self.run_worker, self.startup.begin())

    # --- parts of the app ---

    @cached_property
    def commands(self) -> Commands:
        """The slash commands; their modules are imported after the first paint."""
        from tui.commands import app, compare, conversation, navigation, settings, view

        modules = (conversation, compare, settings, navigation, view, app)
        return Commands(command for module in modules for command in module.commands(self))

    @property
    def status(self) -> StatusFields:
        return self.status_line.status

    @property
    def turn(self) -> RunningTurn | None:
        return self.chat.turn

    @property
    def visible_transcript(self) -> Transcript:
        tab = self.served_tabs.visible
        return tab.transcript if tab is not None else self.transcript

    # --- the conversation ---

    async def with_branch_position(self, turn: TurnView) -> TurnView:
        if turn.start is not None:
            session = self.session
            branches = session.storage.branches_at(session.conversation, turn.start)
            position, names = await branches
            turn.branch_position = (position, len(names)) if names else None
        return turn

    async def show_conversation(self) -> None:
        # Completely, also where Esc cancels the command that opened it.
        await asyncio.shield(self._show_conversation())

    async def _show_conversation(self) -> None:
        await self.transcript.clear()
        self.chat.turn_view = self.chat.latest_turn = None
        self.chat.edit(None)
        self.update_token_view()
        await self.startup.show_stored_turns()
        self.startup.show_model()

    # --- the person's turns ---

    async def on_prompt_input_sent(self, message: PromptInput.Sent) -> None:
        if not self.commands.is_for_visible_tab(message.text):
            await self.served_tabs.show_tab(None)
        await self.chat.submit(message.text)

    def on_prompt_examples_taken(self, message: PromptExamples.Taken) -> None:
        self.prompt.replace_with(message.text)
        self.prompt.focus()

    def on_text_area_changed(self) -> None:
        self.draft_prefill.restart_timer()
        self.titles.restart_timer()

    def on_prompt_input_recalled(self) -> None:
        if (text := self.chat.recall()) is not None:
            self.prompt.put_before(text)

    async def follow_turn(
        self, turn: RunningTurn, view: TurnView, repaint: Callable[[], None]
    ) -> None:
        async for batch in turn.log.follow():
            for event in batch:
                view.apply(event)
            with self.batch_update():
                repaint()
                self.update_token_view()
                self.update_queue()
                self.update_status()
            await asyncio.sleep(REPAINT_SECONDS)

    def update_queue(self) -> None:
        self.queue_bar.steering = self.turn.queued_steering() if self.turn is not None else ()
        self.queue_bar.update_lines()

    # --- the visible conversation ---

    def update_token_view(self) -> None:
        if self.token_view is not None and self.token_view.display and self.session_ready:
            tab = self.served_tabs.visible
            if tab is not None:
                turn, conversation = tab.turn, tab.conversation
            else:
                if (turn := self.chat.latest_turn) is None:
                    self.session.next_prompt.refresh_header()
                conversation = turn.conversation if turn else self.session.conversation
            self.token_view.follow(turn, conversation, self.session.runtime.format)

    def restart_token_view(self) -> None:
        if self.token_view is not None:
            self.token_view.restart()
        self.update_token_view()

    def on_transcript_following_changed(self) -> None:
        self.prompt.set_scrolled_away(self.visible_transcript.is_scrolled_away)

    # --- the status line ---

    @property
    def clock_timer(self) -> Timer:
        """Repaints elapsed times. Raises RuntimeError before the app is mounted."""
        if self._clock_timer is None:
            raise RuntimeError("the app is not mounted")
        return self._clock_timer

    def update_clock_timer(self) -> None:
        """Run the timer that repaints elapsed times while a visible turn runs."""
        tab = self.served_tabs.visible
        if self.turn is not None or (tab is not None and tab.state == "running"):
            self.clock_timer.resume()
        else:
            self.clock_timer.pause()

    def _on_clock_tick(self) -> None:
        if self.transcript.newest_exchange is not None:
            self.transcript.follow(self.transcript.newest_exchange.turn)
        self.served_tabs.tick()
        self.update_status()

    def update_status(self) -> None:
        self.status.served_running = self.served_tabs.running_turns
        if self.session_ready:
            counts = self.session.runtime.host.count_servers()
            self.status.ready_servers, self.status.enabled_servers = counts
        running = self.turn is not None
        self.status_line.follow(self.chat.turn_view, running=running, loading=self.startup.loading)

    # --- keys, mouse and actions ---

    async def on_event(self, event: events.Event) -> None:
        """Note the person's last action; drop keys too early for a question (extends Textual's)."""
        if isinstance(event, events.InputEvent):
            self.last_input_at = time.monotonic()
        if isinstance(event, events.Key) and event.key.startswith("alt+"):
            event.character = None  # it writes nothing, wherever the focus is
        if isinstance(event, events.Key) and self.chat.cards.is_early(event):
            return
        if isinstance(event, events.Key) and self._leaves_tokens(event):
            self.screen.set_focus(self.prompt)  # at once: the next letters follow this one
        await super().on_event(event)

    def _leaves_tokens(self, event: events.Key) -> bool:
        """Whether a key that is pressed on the tokens is a letter for the prompt."""
        from textual.widgets import Input

        is_in_tokens = self.token_view is not None and self.token_view.has_focus_within
        if not is_in_tokens or event.is_forwarded or self.screen is not self.default_screen:
            return False
        if isinstance(self.focused, Input) or event.key in self.screen.active_bindings:
            return False
        return event.is_printable and not self.chat.cards.takes_letters

    def on_key(self, event: events.Key) -> None:
        """Insert printable keys into the prompt, wherever the focus is."""
        if self.screen is not self.default_screen or self.chat.cards.takes_letters:
            return
        if event.is_printable and event.character and not self.prompt.has_focus:
            self.prompt.focus()
            self.prompt.insert(event.character)

    def action_focus_next(self) -> None:
        """Move the focus on; from the prompt, to a question, the token view or the newest turn."""
        if not self.prompt.has_focus or not (
            self.chat.cards.enter()
            or (self.token_view is not None and self.token_view.focus_tokens())
            or self.visible_transcript.focus_newest()
        ):
            super().action_focus_next()

    def action_link(self, address: str) -> None:
        """Open a link of the transcript in the browser, if it is a web address."""
        if address.startswith(("http://", "https://")):
            self.open_url(address)
        else:
            self.notify(address, title="Not opened: no web address", markup=False)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        """Open a page in the person's browser, as `open_in_browser` does."""
        open_in_browser(url)

    async def action_steer(self) -> None:
        """Give the prompt's text to the running turn."""
        await self.chat.steer(self.prompt.take_text())

    async def action_edit_outside(self) -> None:
        from agent.errors import UserError
        from tui.terminal.editor import edit_text

        try:
            self.prompt.replace_with(await edit_text(self, self.prompt.full_text))
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable what another screen may have the key for, and the search in one-line inputs."""
        if action not in ("search", "open_screen", "move"):
            return True
        from textual.widgets import Input

        in_tokens = self.token_view is not None and self.token_view.has_focus_within
        is_search_taken = action == "search" and (in_tokens or isinstance(self.focused, Input))
        return self.screen is self.default_screen and not is_search_taken

    async def action_search(self) -> None:
        """Open the search bar over the visible transcript, or go to it."""
        from tui.widgets.search import SearchBar

        if bars := self.default_screen.query(SearchBar):
            bars.first().enter()
        elif self.visible_transcript.newest_exchange is not None:
            await self.default_screen.mount(
                SearchBar(self.visible_transcript), before=self.queue_bar
            )

    async def action_pick(self) -> None:
        await self.message_picker.pick_latest()

    async def action_press_picked(self, key: str) -> None:
        await self.message_picker.handle_key(key)

    async def action_stop(self) -> None:
        """Close the search, else end the editing or what runs, and return to the prompt."""
        from tui.widgets.search import BaseSearchBar

        if bars := self.default_screen.query(BaseSearchBar):
            await bars.first().action_close()
            return
        self.chat.stop()
        if self.focused is not None and self.visible_transcript in self.focused.ancestors:
            self.default_screen.set_focus(self.prompt)  # at once, before the next key

    async def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt_or_leave(self) -> None:
        """Copy the selection, else stop the turn, else clear the prompt, else end the app."""
        selection = self.screen.get_selected_text() or self.prompt.selected_text
        if selection:
            self.copy_to_clipboard(selection)
            self.notify("Copied.")
        elif self.turn is not None or self.chat.shell.running or self.chat.editing is not None:
            self.chat.stop()
        elif self.prompt.text:
            self.prompt.clear()
        else:
            self._leave_if_repeated("Ctrl-C")

    def action_leave_if_repeated(self) -> None:
        """End the app at the second press of the key for that."""
        self._leave_if_repeated(self.key_bindings.label("quit"))

    def _leave_if_repeated(self, key: str) -> None:
        before, self._last_press = self._last_press, (key, self.clock())
        if before[0] == key and self.clock() - before[1] < SECOND_PRESS_SECONDS:
            self.exit(0)
        else:
            self.notify(f"Press {key} again to quit.", timeout=SECOND_PRESS_SECONDS)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy to the terminal's clipboard (OSC 52) and to the desktop's."""
        from tui.terminal.clipboard import copy_to_desktop

        super().copy_to_clipboard(text)
        self.run_worker(asyncio.to_thread(copy_to_desktop, text))

    def on_text_selected(self) -> None:
        if text := self.screen.get_selected_text():
            self.copy_to_clipboard(text)
            self.notify("Copied.", timeout=1)

    async def action_command(self, name: str, argument: str = "") -> None:
        await self.chat.submit(f"/{name} {argument}")

    def action_help(self) -> None:
        from tui.screens.help import HelpScreen

        project = self.session.options.project.files if self.session_ready else ()
        names = [file.name for file in project]
        self.push_screen(HelpScreen(self.commands.all(), self.key_bindings, names))

    async def action_view(self) -> None:
        """Show running turns of the visible transcript as live panes, or item by item."""
        transcript = self.visible_transcript
        await self.message_picker.keep_picked(transcript.toggle_view())
        newest = transcript.newest_exchange
        if newest is None or not newest.turn.running:
            view = "as live panes" if transcript.shows_panes else "as conversation"
            self.notify(f"Running turns are shown {view}.", timeout=2)
        if transcript is self.transcript:
            self._save("view", "panes" if transcript.shows_panes else "conversation")

    async def action_open_screen(self, name: ScreenName) -> None:
        await self.navigator.open(name)

    async def action_served(self, by: int) -> None:
        if self.served_tabs.tabs:
            await self.served_tabs.show_next(by)
        else:
            hint = "" if self.session.serving else " (agent --serve lets them)"
            self.notify(f"No API client has connected{hint}.")

    async def on_tab_bar_pressed(self, message: TabBar.Pressed) -> None:
        tabs = self.served_tabs.tabs
        if not message.closes:
            await self.served_tabs.show_number(message.number)
        elif message.number <= len(tabs):
            await self.served_tabs.close(tabs[message.number - 1])

    async def on_prompt_input_closed(self) -> None:
        await self.served_tabs.close()

    def action_redraw(self) -> None:
        """Paint all of the screen, over what another program has written there."""
        self.screen.refresh(layout=True)
        self._display(self.screen, self.screen._compositor.render_update(full=True))

    def action_theme(self) -> None:
        self.choose_theme(themes.next_theme(self.theme))

    def choose_theme(self, name: str) -> None:
        self.theme = name
        self.clear_notifications()  # the one that names the theme before
        self.notify(f"Theme: {name}", timeout=2, markup=False)
        self._save("theme", name)

    def choose_probability_scale(self, name: str) -> None:
        self._set_probability_scale(name)
        self.notify(f"Probabilities are coloured {name}.", timeout=2, markup=False)
        self._save("probability_scale", name)

    def _set_probability_scale(self, name: str | None) -> None:
        self.default_screen.set_class(name == "blue-orange", "-blue-orange")

    def _save(self, key: str, value: str) -> None:
        from agent.errors import UserError

        try:
            self._save_setting(key, value)
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)

    async def action_raw(self) -> None:
        if self.token_view is None:
            from tui.widgets.token_view import TokenView

            self.token_view = TokenView(self.tokens.choices)
            await self.body.mount(self.token_view)
        self.token_view.toggle()
        self.update_token_view()

    def on_token_view_inspected(self, message: TokenView.Inspected) -> None:
        self.prompt.set_class(message.has_cursor, "-tokens")

    def on_token_view_left(self) -> None:
        self.default_screen.set_focus(self.prompt)  # at once, before the next key

    async def on_token_view_taken(self, message: TokenView.Taken) -> None:
        await self.tokens.take(message.position, message.token)

    async def action_colour_tokens(self) -> None:
        """Colour the texts of the turn whose tokens are shown by probability, or no longer."""
        from agent.errors import UserError

        turns = self.transcript.own_turns
        if self.served_tabs.visible is not None:
            self.notify("Only your own conversation can be coloured.", severity="warning")
            return
        try:
            if turns:
                await self.tokens.toggle_colours(turns[-1])
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULT_VARIABLES

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        from tui.palette import palette_commands

        return palette_commands(self)

    def action_fold(self) -> None:
        self.visible_transcript.toggle_folds()

    def action_move(self, target: Literal["page_up", "page_down", "home", "end"]) -> None:
        """Scroll the visible transcript by a page or to an edge."""
        transcript = self.visible_transcript
        match target:
            case "page_up":
                transcript.scroll_page_up(animate=False)
            case "page_down" if transcript.is_vertical_scroll_end:
                transcript.scroll_end(animate=False)  # keeps following it
            case "page_down":
                transcript.scroll_page_down(animate=False)
            case "home":
                transcript.scroll_home(animate=False)
            case "end":
                transcript.scroll_to_live_end()

    # --- ending ---

    async def shut_down(self) -> None:
        """Stop what runs and close the session; call it after the terminal was restored."""
        self.titles.cancel()
        await self.chat.work.close()
        self.chat.shell.clear()
        if self.turn is not None:
            self.turn.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.turn.done(), 2)
        await self.session.close()

    # --- errors ---

    def _handle_exception(self, error: Exception) -> None:
        """Report an exception of a handler or worker and continue, where Textual ends the app."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.report(cause if isinstance(cause, Exception) else error)

    def report(self, error: Exception) -> None:
        """Show an error to the person and continue; many errors of the program itself end the app."""
        import sqlite3

        from agent.errors import AgentError

        if isinstance(error, OSError) and error.strerror:
            place = f"{error.filename}: " if error.filename else ""
            error = AgentError(f"{place}{error.strerror}.")
        elif isinstance(error, sqlite3.Error):
            error = AgentError(f"The store cannot be used: {error}.")
        if isinstance(error, AgentError):
            self.notify(str(error), severity="warning", markup=False)
            return
        self._errors += 1
        if self._errors > self.max_errors or not self.session_ready:
            super()._handle_exception(error)
            return
        log.error("a handler failed", exc_info=error)
        self.notify(
            "Something went wrong inside the app; the log file has the details.", severity="error"
        )

    def _fatal_error(self) -> None:
        import traceback

        self.panic(traceback.format_exc())

    def panic(self, *renderables: RenderableType) -> None:
        """End the app after an error: the person gets a sentence, the log file the traceback."""
        with self.console.capture() as traceback:
            self.console.print(*renderables, markup=False)
        log.error("the app broke\n%s", traceback.get())
        self.exit_message = "Something went wrong inside the app; the log file has the details"
        if draft := self.prompt.full_text.strip():
            self.prompt.prompt_history.add(draft)
        self._close_messages_no_wait()
