"""The Textual app, the composition root of ``tui``: composes the main screen, creates the controllers,
which see it as ``AppContext`` and ``CommandContext``, binds keys to actions. At its top it imports only
what the first paint needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.worker import WorkerFailed

from agent.config.keys import KeyBindings
from agent.errors import AgentError
from agent.util import gc_tuning
from agent.util.programs import open_in_browser
from tui import theme as themes
from tui.commands.context import CommandContext
from tui.controllers.appearance import Appearance
from tui.controllers.chat import ChatController
from tui.controllers.idle_work import DraftPrefill, TitleWriter
from tui.controllers.message_picker import MessagePicker
from tui.controllers.navigation import Navigator
from tui.controllers.prompts import PromptCards
from tui.controllers.served_tabs import ServedTabs
from tui.controllers.startup import Startup
from tui.controllers.token_explorer import TokenExplorer
from tui.guarded import Guarded
from tui.keymap import bind
from tui.live_display import LiveDisplay
from tui.main_screen import MainScreen
from tui.session import Session
from tui.state.command import Command, Commands
from tui.state.own_turn import OwnTurn, PromptQueue
from tui.state.prompt_history import PromptHistory
from tui.terminal.driver import CONTROL_CHAR_FILTER, TerminalDriver
from tui.widgets.prompt import PromptInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType
    from textual.filter import LineFilter
    from textual.screen import Screen

    from tui.app_context import ScreenName

log = logging.getLogger(__name__)
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
        Binding("ctrl+c", "interrupt_or_leave", "Copy, stop, clear or leave", show=False),
        bind("help", "help"),
        bind("view", "view"),
        bind("next_tab", "served(1)"),
        bind("previous_tab", "served(-1)"),
        bind("theme", "theme"),
        bind("raw", "raw"),
        bind("redraw", "redraw"),
        bind("suspend", "suspend_process", priority=True),
        bind("undo", "focused.undo"),
        bind("steer", "steer"),
        bind("answer", "command('answer')"),
        bind("palette", "command_palette", priority=True),
        bind("fold", "fold"),
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
        self.own_turn, self.queue = OwnTurn(), PromptQueue()
        tab_key = key_bindings.label("next_tab")
        self.live = LiveDisplay(self, session, self.own_turn, self.queue, tab_key)
        # Attributes instead of queries: while the app closes they are on no screen any more.
        self.body = Container(id="body")
        self.transcript, self.status = self.live.transcript, self.live.status_line.status
        self.transcript.shows_panes = shows_panes
        self.prompt = PromptInput(
            PromptHistory(history, session.launch.root),
            lambda: not self.queue.is_empty,
            key_bindings,
        )
        self.chat = ChatController(self, PromptCards(self))
        self.draft_prefill = DraftPrefill(self, self.chat)
        self.titles = TitleWriter(self, self.chat)
        self.tokens = TokenExplorer(self, self.chat)
        self.served_tabs = ServedTabs(self)
        self.startup = Startup(self, self.chat, self.served_tabs, self.titles)
        self.navigator = Navigator(self, self.chat, self.startup)
        self.message_picker = MessagePicker(self, self.chat, self.startup)
        self.appearance = Appearance(self, self.message_picker, save_setting)
        self._probability_scale = probability_scale
        self.last_input_at = 0.0
        """When a key or the mouse was used last anywhere, by the monotonic clock."""
        self._last_press = ("", 0.0)
        """The key that ends the app if it is pressed again soon, and when it was pressed."""
        self._on_first_paint = on_first_paint
        for own_theme in themes.THEMES:
            self.register_theme(own_theme)
        theme = themes.ANSI.name if plain else theme
        self._unknown_theme = None if theme in self.available_themes else theme
        self.theme = theme if theme in self.available_themes else themes.DARK.name

    def get_line_filters(self) -> list[LineFilter]:
        return [*super().get_line_filters(), CONTROL_CHAR_FILTER]

    def get_default_screen(self) -> MainScreen:
        return MainScreen(self, self._start)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < TINY_COLUMNS, "-tiny")

    def _start(self) -> None:
        self.appearance.set_probability_scale(self._probability_scale)
        for problem in dict.fromkeys(self.key_bindings.problems.values()):
            self.transcript.add_notice(problem, error=True)
        if self._unknown_theme is not None:
            self.transcript.add_notice(f"There is no theme {self._unknown_theme!r}.", error=True)
        quiet = gc_tuning.IdleCollector()
        self.set_interval(gc_tuning.IDLE_SECONDS, lambda: quiet.collect(self.last_input_at))
        self.app_resume_signal.subscribe(self, lambda _: self.chat.cards.resume(), immediate=True)
        self.call_after_refresh(self.run_worker, self._on_first_paint, thread=True)
        self.call_after_refresh(self.run_worker, self.startup.begin())
        if not self.session.choose_conversation:  # else they are for that screen
            self.call_later(self.navigator.release)

    @cached_property
    def commands(self) -> Commands:
        """The slash commands; their modules are imported after the first paint."""
        from tui.commands import changes, compare, conversation, navigation, settings, view

        modules = (conversation, changes, compare, settings, navigation, view)
        return Commands(each.bind(self) for module in modules for each in module.COMMANDS)

    def on_text_area_changed(self) -> None:
        self.draft_prefill.restart_timer()
        self.titles.restart_timer()

    async def on_event(self, event: events.Event) -> None:
        """Note the person's last action; drop or hold keys that come too early (extends Textual's)."""
        if isinstance(event, events.InputEvent):
            self.last_input_at = time.monotonic()
        if isinstance(event, events.Key | events.Paste) and self.navigator.holds(event):
            return
        if isinstance(event, events.Key):
            if event.key.startswith("alt+"):
                event.character = None  # it writes nothing, wherever the focus is
            if self.chat.cards.is_early(event):
                return
            if isinstance(self.screen, MainScreen):
                self.screen.leave_tokens(event)
        await super().on_event(event)

    def action_link(self, address: str) -> None:
        if address.startswith(("http://", "https://")):
            self.open_url(address)
        else:
            self.notify(address, title="Not opened: no web address", markup=False)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        open_in_browser(url)

    async def action_steer(self) -> None:
        await self.chat.steer(self.prompt.take_text())

    async def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt_or_leave(self) -> None:
        """Copy the selection, else stop the turn, else clear the prompt, else end the app."""
        if selection := self.screen.get_selected_text() or self.prompt.selected_text:
            self.copy_to_clipboard(selection)
            self.notify("Copied.")
        elif self.turn is not None or self.chat.shell.running or self.chat.editing is not None:
            self.chat.stop()
        elif self.prompt.text:
            self.prompt.clear()
        else:
            self.action_leave_if_repeated("Ctrl-C")

    def action_leave_if_repeated(self, key: str = "") -> None:
        key = key or self.key_bindings.label("quit")
        before, self._last_press = self._last_press, (key, self.clock())
        if before[0] == key and self.clock() - before[1] < SECOND_PRESS_SECONDS:
            self.exit(0)
        else:
            self.notify(f"Press {key} again to quit.", timeout=SECOND_PRESS_SECONDS)

    def copy_to_clipboard(self, text: str) -> None:
        from tui.terminal.own_programs import copy_to_desktop

        super().copy_to_clipboard(text)
        self.run_worker(asyncio.to_thread(copy_to_desktop, text))

    def on_text_selected(self) -> None:
        if text := self.screen.get_selected_text():
            self.copy_to_clipboard(text)
            self.notify("Copied.", timeout=1)

    async def action_command(self, name: str, argument: str = "") -> None:
        await self.chat.submit(f"/{name} {argument}")

    async def action_help(self) -> None:
        await self.navigator.help()

    async def action_view(self) -> None:
        await self.appearance.toggle_view()

    async def action_open_screen(self, name: ScreenName) -> None:
        await self.navigator.open(name)

    async def action_served(self, by: int) -> None:
        await self.served_tabs.show_next(by)

    def action_redraw(self) -> None:
        self.screen.refresh(layout=True)
        self._display(self.screen, self.screen._compositor.render_update(full=True))

    def action_theme(self) -> None:
        self.appearance.choose_theme()

    async def action_raw(self) -> None:
        await self.tokens.toggle_view()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULT_VARIABLES

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for command in self.commands.all():
            # The palette searches the title alone, so the summary is part of it.
            title = f"/{command.name}: {command.summary}"
            yield SystemCommand(title, "", partial(self._choose_command, command))

    def _choose_command(self, command: Command) -> None:
        if command.arguments and not command.arguments.startswith("["):
            self.prompt.replace_with(f"/{command.name} ")
        else:
            self.run_worker(self.chat.submit(f"/{command.name}"))

    def action_fold(self) -> None:
        self.live.visible_transcript.toggle_folds()

    async def shut_down(self) -> None:
        """Stop what runs and close the session; call it after the terminal was restored."""
        if (draft := self.prompt.full_text).strip():  # for the next start: ↑
            self.prompt.prompt_history.add(draft)
        self.titles.cancel()
        await self.chat.work.close()
        self.chat.shell.clear()
        if self.turn is not None:
            self.turn.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.turn.done(), 2)
        await self.session.close()

    def _handle_exception(self, error: Exception) -> None:
        """Report an exception of a handler or worker and continue, where Textual ends the app."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        self.report(cause if isinstance(cause, Exception) else error)

    def report(self, error: Exception) -> None:
        """Show an error to the person and continue; many errors of the program itself end the app."""
        import sqlite3

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
