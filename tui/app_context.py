"""The app as controllers and screens see it: ``AgentApp`` completes it, so that imports point one way.
It is a subclass of Textual's ``App``, as they also need ``notify``, ``run_worker``, ``push_screen``. A
controller that needs another one gets it as an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from tui.keymap import KeymapApp

if TYPE_CHECKING:
    from textual.containers import Container

    from agent.turn.context import RunningTurn
    from tui.live_display import LiveDisplay
    from tui.session import Session
    from tui.state.command import Commands
    from tui.state.own_turn import OwnTurn, PromptQueue
    from tui.widgets.prompt import PromptInput
    from tui.widgets.status_line import StatusFields
    from tui.widgets.transcript import Transcript

ScreenName = Literal["sessions", "models", "servers", "import_servers", "welcome", "history"]
"""Screens that open over the conversation: methods of ``Navigator``."""


class AppContext(KeymapApp):
    """The app as its controllers and screens see it."""

    session: Session
    clock: Callable[[], float]
    """Monotonic time in seconds; tests set their own."""
    session_ready: bool
    """Whether ``session.begin()`` has returned: conversation, store and settings are there."""
    exit_message: str | None
    """One sentence that is printed on the terminal after the app has ended."""
    own_turn: OwnTurn
    queue: PromptQueue
    live: LiveDisplay
    body: Container
    """Holds the transcripts, of which one is displayed, and the token view."""
    transcript: Transcript
    """The person's own conversation."""
    prompt: PromptInput
    status: StatusFields

    @property
    def turn(self) -> RunningTurn | None:
        return self.own_turn.running

    @property
    def commands(self) -> Commands:
        raise NotImplementedError

    def report(self, error: Exception) -> None:
        raise NotImplementedError

    async def action_open_screen(self, name: ScreenName) -> None:
        raise NotImplementedError
