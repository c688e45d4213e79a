"""The display of running turns on the main screen: transcripts, token view, queue, status line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tui.next_prompt import turn_effort
from tui.widgets.status_line import StatusLine
from tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from textual.app import App
    from textual.timer import Timer

    from agent.turn.context import RunningTurn
    from tui.session import Session
    from tui.state.own_turn import OwnTurn, PromptQueue
    from tui.state.turn_view import TurnView
    from tui.widgets.served_conversation import ServedConversation
    from tui.widgets.token_view import TokenView

REPAINT_SECONDS = 0.04
"""Seconds between two repaints while a turn streams; the events in between are one update."""
CLOCK_TICK_SECONDS = 0.5
"""Seconds between two repaints of elapsed times while a turn runs and no event comes."""


class LiveDisplay:
    """Brings the widgets up to date with the person's own turn and that of the visible tab."""

    def __init__(
        self, app: App[int], session: Session, own: OwnTurn, queue: PromptQueue, tab_key: str
    ) -> None:
        self._app, self._session, self._own, self._queue = app, session, own, queue
        # Attributes instead of queries: while the app closes they are on no screen any more.
        self.transcript = Transcript(id="chat")
        self.token_view: TokenView | None = None
        self.status_line = StatusLine(tab_key)
        self.tab: ServedConversation | None = None
        """The tab on the screen; None while the person's own conversation is."""
        self.loading = "starting"
        """The load that the status line shows; empty: none."""
        self._timer: Timer | None = None

    @property
    def visible_transcript(self) -> Transcript:
        return self.tab.transcript if self.tab is not None else self.transcript

    async def follow_turn(self, turn: RunningTurn, view: TurnView) -> None:
        """Apply the own turn's events to ``view`` until its end, and repaint after each batch."""
        async for batch in turn.log.follow():
            for event in batch:
                view.apply(event)
            with self._app.batch_update():
                self.transcript.follow(view)
                self.update_token_view()
                self.update_queue()
                self.update_status()
            await asyncio.sleep(REPAINT_SECONDS)

    def update_queue(self) -> None:
        running = self._own.running
        self._queue.set_steering(running.queued_steering() if running is not None else ())

    def update_token_view(self, *, restart: bool = False) -> None:
        """Show the visible turn's tokens, if the token view is open; ``restart``: from the first."""
        if (view := self.token_view) is None:
            return
        if restart:
            view.writer.forget()
        if view.display and self._session.has_begun:
            if self.tab is not None:
                turn, conversation = self.tab.turn, self.tab.conversation
            else:
                if (turn := self._own.latest) is None:
                    self._session.next_prompt.refresh_header()
                conversation = turn.conversation if turn else self._session.conversation
            form = self._session.next_prompt.format
            if form is not None and turn is not None and (own := turn_effort(turn.response)):
                form = form.with_effort(own)
            view.follow(turn, conversation, form)

    def update_timer(self) -> None:
        if self._timer is None:
            self._timer = self._app.set_interval(CLOCK_TICK_SECONDS, self.tick, pause=True)
        if self._own.running or (self.tab is not None and self.tab.state == "running"):
            self._timer.resume()
        else:
            self._timer.pause()

    def tick(self) -> None:
        if self.transcript.newest_exchange is not None:
            self.transcript.follow(self.transcript.newest_exchange.turn)
        if self.tab is not None:
            self.tab.update()
        self.update_status()

    def update_status(self) -> None:
        if self._session.has_begun:
            counts = self._session.runtime.host.count_servers()
            self.status_line.status.ready_servers, self.status_line.status.enabled_servers = counts
            mode = self._session.options.mode
            self.status_line.status.mode = "" if mode == "ask" else mode
        is_running = self._own.running is not None
        self.status_line.follow(self._own.view, running=is_running, loading=self.loading)
