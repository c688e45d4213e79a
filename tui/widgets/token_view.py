"""The raw token view: the prompt of a turn and what the model generates, token by token.

Reads ``agent.prompt``, ``agent.tokens`` and ``agent.repair`` from the log of the turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from tui.util.format import format_count
from tui.util.token_text import TokenTextRenderer
from tui.widgets.pane import PaneTitle
from tui.widgets.text_stream import TextStream

if TYPE_CHECKING:
    from agent.conversation.conversation import Conversation
    from agent.events import Event
    from agent.formats.protocol import Format
    from agent.turn.context import RunningTurn

MAX_EARLIER_TOKENS = 20_000
"""Prompt tokens from before the turn that are shown, the latest."""


class TokenView(Vertical):
    """Shows the tokens of a turn and of its prompt; costs nothing while it is not displayed."""

    DEFAULT_CSS = """
    TokenView {
        height: 1fr; display: none;
        & > TextStream { padding: 0 1; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._title_bar, self._stream = PaneTitle(), TextStream()
        self._turn: RunningTurn | None = None
        self._conversation: Conversation | None = None
        self._events_read = 0
        """How many of the turn's events are shown."""
        self._tokens_written = 0
        """How many tokens the turn has generated in all."""
        self._generation_mark = 0
        """Where the last generation begins in the stream."""
        self._generated: list[int] = []
        """The ids of the last generation."""
        self._renderer: TokenTextRenderer | None = None
        """Renders that generation; None before the first."""
        self._repairs: defaultdict[int, list[str]] = defaultdict(list)
        """Names of the repair rules applied in that generation, by the index of the token."""

    def compose(self) -> ComposeResult:
        yield self._title_bar
        yield self._stream

    def follow(
        self, turn: RunningTurn | None, conversation: Conversation, form: Format | None
    ) -> None:
        """Show what came since the last call; begin anew for another turn or conversation.

        Without a turn that has begun to generate, the conversation is shown. ``form`` is None as long
        as no model is loaded.
        """
        if not self.display or form is None:
            self._update_title("the model is not loaded yet" if form is None else "")
            return
        if turn is not None and not _has_prompt(turn):
            turn = None  # its first generation is about to begin
        if self._conversation is not conversation or self._turn is not turn:
            self._turn, self._conversation = turn, conversation
            self._events_read = self._tokens_written = 0
            self._stream.truncate()
            if turn is None:
                self._write_prompt(conversation.ids(), form)
        if turn is not None:
            self._write_events(turn.log.events[self._events_read :], form)
            self._events_read = len(turn.log.events)
        written = self._tokens_written
        self._update_title(f"{format_count(written)} tokens written" if written else "")

    def toggle(self) -> None:
        """Open or close the view."""
        self.display = not self.display
        self.restart()

    def restart(self) -> None:
        """Have the next ``follow`` write everything anew."""
        self._turn = self._conversation = None
        self._stream.truncate()

    def _update_title(self, state: str) -> None:
        self._title_bar.border_title = Content("Raw" + (f" · {state}" if state else ""))

    def _write_events(self, events: Sequence[Event], form: Format) -> None:
        from agent.events import AgentPrompt, AgentRepair, AgentTokens  # after the first paint

        new: list[int] = []
        for event in events:
            match event:
                case AgentPrompt(ids=ids):
                    self._write_tokens(new)
                    new = []
                    self._write_prompt(ids[: len(ids) - len(form.open_assistant())], form)
                    self._generation_mark = self._stream.mark()
                    self._repairs.clear()
                    self._generated = []
                    self._restart_generation(form)
                case AgentTokens(ids=ids):
                    new += ids
                case AgentRepair(rule=rule, at=at):
                    index = min(at, len(self._generated) + len(new) - 1)
                    self._repairs[index].append(rule)
                    if index < len(self._generated):
                        # Its token is written already: write the generation once more.
                        self._stream.truncate(self._generation_mark)
                        renderer = self._restart_generation(form)
                        runs = renderer.runs(self._generated, self._repairs)
                        self._stream.write_runs(runs)
                case _:
                    pass
        self._write_tokens(new)

    def _write_tokens(self, ids: list[int]) -> None:
        if ids and self._renderer is not None:
            self._generated += ids
            self._tokens_written += len(ids)
            self._stream.write_runs(self._renderer.runs(ids, self._repairs))

    def _write_prompt(self, ids: list[int], form: Format) -> None:
        """Write the last ``MAX_EARLIER_TOKENS`` of what the model reads."""
        if (left_out := len(ids) - MAX_EARLIER_TOKENS) > 0:
            self._stream.write_line(f"… {left_out:,} tokens before", "head")
        if latest := ids[-MAX_EARLIER_TOKENS:]:
            self._stream.write_lines(TokenTextRenderer(form, generated=False).runs(latest))

    def _restart_generation(self, form: Format) -> TokenTextRenderer:
        """Write the header that opens the assistant's message; its tokens follow from the first on."""
        header = TokenTextRenderer(form, generated=False).runs(form.open_assistant())
        self._stream.write_runs(header)
        self._renderer = TokenTextRenderer(form, generated=True)
        return self._renderer


def _has_prompt(turn: RunningTurn) -> bool:
    """Whether the turn has begun to generate."""
    from agent.events import AgentPrompt  # after the first paint

    return any(isinstance(event, AgentPrompt) for event in turn.log.events)
