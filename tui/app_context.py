"""The interface of the app for controllers and screens: ``AgentApp`` implements it, so that imports
point one way. It is a subclass of Textual's ``App``, not a ``Protocol``, as they also need ``notify``,
``run_worker``, ``push_screen``. A controller that needs another one gets it as an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tui.keymap import KeymapApp

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.containers import Container
    from textual.timer import Timer

    from agent.turn.context import RunningTurn
    from tui.session import Session
    from tui.state.command import Commands
    from tui.state.turn_view import TurnView
    from tui.widgets.prompt import PromptInput
    from tui.widgets.queue_bar import QueueBar
    from tui.widgets.status_line import StatusFields
    from tui.widgets.token_view import TokenView
    from tui.widgets.transcript import Transcript

ScreenName = Literal["sessions", "models", "servers", "approvals", "import", "welcome", "history"]
"""The screens that open over the conversation; ``import`` is the import of MCP servers."""


class AppContext(KeymapApp):
    """The app as its controllers and screens see it."""

    session: Session
    clock: Callable[[], float]
    """Monotonic time in seconds; tests set their own."""
    session_ready: bool
    """Whether ``session.begin()`` has returned: conversation, store and settings are there."""
    exit_message: str | None
    """One sentence that is printed on the terminal after the app has ended."""
    body: Container
    """Holds the transcripts, of which one is displayed, and the token view."""
    transcript: Transcript
    """The person's own conversation."""
    token_view: TokenView | None
    """None: it was not opened yet."""
    queue_bar: QueueBar
    prompt: PromptInput

    @property
    def commands(self) -> Commands:
        raise NotImplementedError

    @property
    def status(self) -> StatusFields:
        """The fields of the status line; ``update_status`` paints them."""
        raise NotImplementedError

    @property
    def turn(self) -> RunningTurn | None:
        """The person's own turn that is running."""
        raise NotImplementedError

    @property
    def visible_transcript(self) -> Transcript:
        """The transcript on the screen: the person's own, or that of the visible tab."""
        raise NotImplementedError

    async def with_branch_position(self, turn: TurnView) -> TurnView:
        """Set the turn's position among the branches that start where it starts."""
        raise NotImplementedError

    async def show_conversation(self) -> None:
        """Replace the transcript by the session's conversation, after the session has opened one."""
        raise NotImplementedError

    async def follow_turn(
        self, turn: RunningTurn, view: TurnView, repaint: Callable[[], None]
    ) -> None:
        """Apply the turn's events to ``view`` until its end; call ``repaint`` after each batch."""
        raise NotImplementedError

    def update_queue(self) -> None:
        """Repaint the queue bar with the messages that the running turn has not read yet."""
        raise NotImplementedError

    def update_token_view(self) -> None:
        """Show the tokens of the visible turn, where the token view is open."""
        raise NotImplementedError

    def restart_token_view(self) -> None:
        """Have the token view show what the model reads next, after the prompt was changed."""
        raise NotImplementedError

    @property
    def clock_timer(self) -> Timer:
        """Repaints elapsed times; paused while no visible turn runs."""
        raise NotImplementedError

    def update_clock_timer(self) -> None:
        """Run ``clock_timer`` while a visible turn runs."""
        raise NotImplementedError

    def update_status(self) -> None:
        raise NotImplementedError

    def report(self, error: Exception) -> None:
        """Show an error to the person and continue."""
        raise NotImplementedError

    async def action_open_screen(self, name: ScreenName) -> None:
        raise NotImplementedError
