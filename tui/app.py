"""The terminal app. Imports only what the first paint needs; the rest comes with the session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from agent.util import gc_tuning
from tui import theme as themes
from tui.base_screen import Paper
from tui.controllers.chat import Talk
from tui.controllers.draft_prefill import Drafting
from tui.controllers.message_picker import Picking
from tui.controllers.navigation import Rooms
from tui.controllers.prompts import Asking
from tui.controllers.served_tabs import Watching
from tui.controllers.startup import Starting
from tui.session import Session
from tui.state.prompt_history import History
from tui.terminal.output_filter import NET
from tui.widgets.prompt import Prompt
from tui.widgets.queue_bar import Queued
from tui.widgets.status_line import Status, StatusLine
from tui.widgets.tabs import Tabs
from tui.widgets.transcript import Transcript
from tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType
    from textual.app import SystemCommand
    from textual.filter import LineFilter
    from textual.screen import Screen

    from agent.turn.loop import Turn
    from tui.state.turn_view import Said
    from tui.widgets.token_view import Raw
    from tui.widgets.user_message import Asked

T = TypeVar("T")
log = logging.getLogger(__name__)
TICK = 0.04
"""Seconds between two paints of what streams; whatever came meanwhile is one update."""
PULSE = 0.5
"""Seconds between two looks at the clock while a turn runs and nothing comes."""
WIDE = 120
"""From so many columns on two things stand side by side."""
AGAIN = 2.0
"""Within so many seconds a second Ctrl-C leaves."""


class AgentApp(App[int]):
    """One conversation, live; turns of the HTTP face beside it, to watch."""

    TITLE = "agent"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", "Leave", priority=True),
        Binding("escape", "stop", "Stop the answer"),
        Binding("ctrl+c", "interrupt_or_leave", "Copy, stop, clear or leave", show=False),
        Binding("f1", "help", "All keys"),
        Binding("f2", "view", "Panes or conversation"),
        Binding("f3,ctrl+pagedown", "served(1)", "Watch turns of other programs"),
        Binding("shift+f3,ctrl+pageup", "served(-1)", "The tab before", show=False),
        Binding("f4", "theme", "Another theme"),
        Binding("f8", "raw", "What the model reads and writes"),
        Binding("ctrl+s", "steer", "Say it now, to the turn that runs"),
        # At once: what is typed behind it is meant for the room, or the search.
        Binding("f5", "room('sessions')", "Conversations", priority=True),
        Binding("f6", "room('models')", "Models", priority=True),
        Binding("f7", "room('servers')", "MCP servers and tools", priority=True),
        Binding("ctrl+f", "search", "Search what was said", priority=True),
        Binding("ctrl+o", "fold", "Open or fold reasoning and results"),
    ]

    def __init__(
        self,
        session: Session,
        *,
        history: Path | None = None,
        theme: str | None = None,
        keep_theme: Callable[[str], None] = lambda name: None,
        painted: Callable[[], None] = lambda: None,
    ) -> None:
        """``keep_theme``: called with the name of the theme that the person chose. ``painted``: called
        once, in a thread, after the first paint."""
        # Without colour means the terminal's own, not shades of grey; and a cursor that needs none.
        plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if plain else None)
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
        self.session = session
        self.clock = time.monotonic
        self.trouble: str | None = None
        """One sentence for the terminal, once the app is gone."""
        self.talk = Talk(self)
        self.rooms: Rooms = Rooms(self)
        self.picking = Picking(self)
        self.drafting = Drafting(self)
        self.asking = Asking(self)
        self.begun = False
        """The session is there: conversation, store, settings."""
        self.starting = Starting(self)
        self._asked_to_leave = -AGAIN
        self._history = History(history)
        self._keep_theme, self._painted = keep_theme, painted
        for made in themes.ALL:
            self.register_theme(made)
        theme = themes.ANSI.name if plain else theme
        self.theme = theme if theme in self.available_themes else themes.DARK.name

        # Held here: while the app leaves they are on no screen any more.
        self.body = Container(id="body")
        self.chat = Transcript(id="chat")
        self.watching = Watching(self)
        self.raw: Raw | None = None
        """Made when it is first opened."""
        self.queued, self.status_line = Queued(), StatusLine()
        self.prompt = Prompt(self._history, lambda: not self.queued.empty)

    def get_line_filters(self) -> list[LineFilter]:
        return [*super().get_line_filters(), NET]

    def get_default_screen(self) -> Paper:
        return Paper(id="_default")

    def compose(self) -> ComposeResult:
        yield Tabs()
        with self.body, self.chat:
            yield Welcome()
        yield self.queued
        yield self.prompt.choices
        yield self.prompt
        yield self.status_line

    def on_mount(self) -> None:
        self.prompt.focus()
        self.pulse = self.set_interval(PULSE, self._beat, pause=True)
        quiet = gc_tuning.Quiet()
        self.set_interval(gc_tuning.UNHURRIED, lambda: quiet.collect(self.prompt.pressed))
        self.call_after_refresh(self.run_worker, self._painted, thread=True)
        self.call_after_refresh(self.run_worker, self.starting.begin())

    # --- parts of the screen ---

    @property
    def status(self) -> Status:
        """What the last line tells."""
        return self.status_line.status

    @property
    def turn(self) -> Turn | None:
        """The person's own turn that runs."""
        return self.talk.turn

    @property
    def looking_at(self) -> Transcript:
        looked = self.watching.looked
        return looked.transcript if looked is not None else self.chat

    # --- the conversation ---

    def placed(self, said: Said) -> Said:
        """With the number of its branches."""
        place, others = self.session.alternatives(said.start) if said.start is not None else (0, [])
        said.place = (place, len(others)) if others else None
        return said

    async def show_conversation(self) -> None:
        """The session's, instead of the one before."""
        await self.chat.clear()
        self.talk.said = self.talk.latest = None
        self.follow_raw()
        await self.starting.recall()
        self.starting.show_model()

    # --- the person's turns ---

    async def on_prompt_sent(self, message: Prompt.Sent) -> None:
        if not self.talk.commands.looks(message.text):
            await self.watching.look(None)
        await self.talk.take(message.text)

    def on_text_area_changed(self) -> None:
        self.drafting.written()

    def on_prompt_recalled(self) -> None:
        if (text := self.talk.recall()) is not None:
            self.prompt.replace_with(text)

    async def follow(self, turn: Turn, said: Said, show: Callable[[], None]) -> None:
        """``show``: what came, each time that something has."""
        async for batch in turn.log.follow():
            for event in batch:
                said.take(event)
            said.count(sum(map(len, turn.generated)))
            with self.batch_update():
                show()
                self.follow_raw()
                self.queued.show()
                self.show_status()
            await asyncio.sleep(TICK)

    # --- what is looked at ---

    def follow_raw(self) -> None:
        if self.raw is not None and self.raw.display and self.begun:
            looked = self.watching.looked
            if looked is not None:
                turn, conversation = looked.turn, looked.conversation
            else:
                turn = self.talk.latest
                conversation = turn.conversation if turn else self.session.conversation
            self.raw.follow(turn, conversation, self.session.form)

    # --- the status line ---

    def pace(self) -> None:
        """Where something runs, time is shown as it passes."""
        looked = self.watching.looked
        if self.turn is not None or (looked is not None and looked.state == "running"):
            self.pulse.resume()
        else:
            self.pulse.pause()

    def _beat(self) -> None:
        if self.chat.newest is not None:
            self.chat.follow(self.chat.newest.said)
        self.watching.beat()
        self.show_status()

    def show_status(self) -> None:
        self.status.watched = self.watching.running
        if self.begun:
            self.status.count_servers(self.session.runtime.host.servers())
        running = self.turn is not None
        self.status_line.follow(self.talk.said, running=running, loading=self.starting.loading)

    # --- what the person does ---

    def on_key(self, event: events.Key) -> None:
        """Whoever writes, writes into the prompt, wherever the focus is."""
        if self.screen is not self.default_screen:
            return
        if event.is_printable and event.character and not self.prompt.has_focus:
            self.prompt.focus()
            self.prompt.insert(event.character)

    def action_link(self, address: str) -> None:
        if address.startswith(("http://", "https://")):
            self.open_url(address)
        else:
            self.notify(address, title="Not opened: no web address", markup=False)

    async def action_steer(self) -> None:
        await self.talk.steer(self.prompt.take())

    async def action_edit_outside(self) -> None:
        from agent.errors import UserError
        from tui.terminal.editor import edited

        try:
            self.prompt.replace_with(await edited(self, self.prompt.whole))
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Rooms and one-line inputs have a Ctrl-F of their own."""
        if action != "search":
            return True
        from textual.widgets import Input

        return self.screen is self.default_screen and not isinstance(self.focused, Input)

    async def action_search(self) -> None:
        from tui.widgets.search import Search

        if self.looking_at.newest is not None:
            await self.default_screen.mount(Search(self.looking_at), before=self.queued)

    async def action_pick(self) -> None:
        await self.picking.latest()

    async def on_asked_pressed(self, message: Asked.Pressed) -> None:
        await self.picking.press(message.said, message.key)

    def action_stop(self) -> None:
        self.talk.stop()

    async def action_leave(self) -> None:
        self.exit(0)

    def action_interrupt_or_leave(self) -> None:
        now = self.clock()
        chosen = self.screen.get_selected_text() or self.prompt.selected_text
        if chosen:
            self.copy_to_clipboard(chosen)
            self.notify("Copied.")
        elif self.turn is not None:
            self.talk.stop()
        elif self.prompt.text:
            self.talk.edit(None)
            self.prompt.clear()
        elif now - self._asked_to_leave < AGAIN:
            self.exit(0)
        else:
            self._asked_to_leave = now
            self.notify("Ctrl-C once more leaves.", timeout=AGAIN)

    def copy_to_clipboard(self, text: str) -> None:
        """The terminal's, and the desktop's."""
        from tui.terminal.clipboard import put

        super().copy_to_clipboard(text)
        self.run_worker(asyncio.to_thread(put, text))

    def on_text_selected(self) -> None:
        """The mouse marked something."""
        if text := self.screen.get_selected_text():
            self.copy_to_clipboard(text)
            self.notify("Copied.", timeout=1)

    async def action_command(self, name: str, argument: str = "") -> None:
        await self.talk.take(f"/{name} {argument}")

    def action_help(self) -> None:
        from tui.screens.help import Help

        self.push_screen(Help(self.talk.commands.all()))

    async def action_view(self) -> None:
        await self.picking.keep(self.looking_at.switch())

    async def action_room(self, name: str) -> None:
        await self.rooms.enter(name)

    async def action_served(self, by: int) -> None:
        if self.watching.tabs:
            await self.watching.step(by)
        else:
            hint = "" if self.session.serving else " (agent --serve lets them)"
            self.notify(f"No other program has asked anything yet{hint}.")

    async def on_tabs_pressed(self, message: Tabs.Pressed) -> None:
        tabs = self.watching.tabs
        if not message.closes:
            await self.watching.pick(message.number)
        elif message.number <= len(tabs):
            await self.watching.close(tabs[message.number - 1])

    async def on_prompt_closed(self) -> None:
        await self.watching.close()

    def action_theme(self) -> None:
        self.choose_theme(themes.after(self.theme))

    def choose_theme(self, name: str) -> None:
        """From now on, and the next time."""
        from agent.errors import UserError

        self.theme = name
        self.clear_notifications()  # of the one before
        self.notify(f"Theme: {name}", timeout=2, markup=False)
        try:
            self._keep_theme(name)
        except UserError as error:
            self.notify(str(error), severity="warning", markup=False)

    async def action_raw(self) -> None:
        if self.raw is None:
            from tui.widgets.token_view import Raw

            self.raw = Raw()
            await self.body.mount(self.raw)
        self.raw.turn_over()
        self.follow_raw()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.VARIABLES

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        from tui.palette import commands

        return commands(self)

    def action_fold(self) -> None:
        self.looking_at.fold()

    def action_move(self, where: Literal["page_up", "page_down", "home", "end"]) -> None:
        getattr(self.looking_at, f"scroll_{where}")(animate=False)

    # --- ending ---

    async def shut_down(self) -> None:
        """After the screen was given back: end what still runs, keep what was said."""
        if self.turn is not None:
            self.turn.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.session.finish(self.turn), 2)
        await self.session.close()

    def _fatal_error(self) -> None:
        import traceback

        self.panic(traceback.format_exc())

    def panic(self, *renderables: RenderableType) -> None:
        """People get a sentence, the log file the traceback."""
        with self.console.capture() as shown:
            self.console.print(*renderables, markup=False)
        log.error("the app broke\n%s", shown.get())
        self.trouble = "Something went wrong inside the app; the log file has the details"
        self._close_messages_no_wait()
