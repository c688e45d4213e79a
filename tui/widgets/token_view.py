"""The raw token view: the prompt of a turn and what the model generates, token by token, from
``agent.prompt``, ``agent.tokens`` and ``agent.repair`` in its log."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import OptionList

from agent.conversation.conversation import Conversation
from agent.errors import AgentError
from agent.events import AgentPrompt
from agent.formats.protocol import Format
from agent.turn.context import RunningTurn
from agent.turn.token_choices import TokenChoices
from tui.guarded import Guarded, run_latest
from tui.util.format import format_count
from tui.widgets.panes import PaneTitle
from tui.widgets.search import BaseSearchBar
from tui.widgets.token_browser import TokenBrowser
from tui.widgets.token_panel import TokenPanel
from tui.widgets.token_writer import TokenLog, TokenWriter

log = logging.getLogger(__name__)
REST_SECONDS = 0.15
"""Seconds on a token before its probabilities are computed: a held arrow key passes most tokens."""
MIN_COLUMNS_BESIDE, MIN_ROWS_BESIDE = 84, 15
"""Columns and rows from which on the panel is next to the tokens, not below them."""


@dataclass(frozen=True, slots=True)
class TokenPosition:
    """A token of the view, and where the model read or wrote it."""

    turn: RunningTurn | None
    """None: no turn of this run of the app has it."""
    conversation: Conversation
    number: int
    """Its number among all that the model has read and written, from 0."""
    log: TokenLog

    @property
    def token(self) -> int:
        return self.log.ids[self.number]

    @property
    def generation(self) -> int | None:
        """The index of the turn's generation that wrote it; None: it is of the prompt."""
        return self.log.generation_of(self.number)


class TokenSearchBar(BaseSearchBar):
    """Moves the cursor of a token stream to the tokens with which the hits begin."""

    PLACEHOLDER = "Search the tokens"

    def __init__(self, stream: TokenBrowser) -> None:
        super().__init__()
        self._stream = stream

    async def find(self, query: str) -> Sequence[int]:
        return self._stream.find_tokens(query.casefold())

    async def show_hit(self, hit: int, query: str) -> None:
        self._stream.move_cursor_to(hit)

    def leave(self) -> None:
        self._stream.focus()


class TokenView(Guarded, Vertical):
    """Shows the tokens of a turn and of its prompt; costs nothing while it is not displayed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "show_alternatives", show=False),
        Binding("escape", "leave", show=False),
    ]
    DEFAULT_CSS = """
    TokenView {
        height: 1fr; display: none;
        & > .tokens { height: 1fr; layout: vertical; }
        & TokenBrowser { padding: 0 1; height: 1fr; }
        & TokenPanel { max-height: 62%; }
        &.-beside > .tokens { layout: horizontal; }
        &.-beside TokenPanel { width: 46; height: 1fr; max-height: 100%; }
    }
    """

    @dataclass
    class Taken(Message):
        """Posted when the person wants the turn to continue from another token."""

        position: TokenPosition
        token: int

    @dataclass
    class Inspected(Message):
        """Posted when the cursor comes to the tokens, or goes."""

        has_cursor: bool

    class Left(Message):
        """Posted when the person leaves the tokens."""

    def __init__(self, choices: Callable[[TokenPosition], Awaitable[TokenChoices]]) -> None:
        """``choices``: computes what could be in the place of a token. Raises AgentError."""
        super().__init__()
        self._choices = choices
        self._title_bar, self._stream, self._panel = PaneTitle(), TokenBrowser(), TokenPanel()
        self.writer = TokenWriter(self._stream)
        self._rest_timer: Timer | None = None
        self._awaited: tuple[Sequence[int], RunningTurn | None, RunningTurn | None] | None = None
        """The ids that the next turn begins with, whose last token gets the cursor; the turn before it;
        that turn once it has begun."""
        self._state = self._title = ""
        """State and title of the tokens."""

    def compose(self) -> ComposeResult:
        yield self._title_bar
        with Container(classes="tokens"):
            yield self._stream
            yield self._panel

    # --- tokens ---

    def follow(
        self, turn: RunningTurn | None, conversation: Conversation, form: Format | None
    ) -> None:
        """Show what came since the last call; begin again for another turn or conversation. The latter
        is shown without a turn that generates. ``form``: None: no model is loaded."""
        if not self.display or form is None:
            self._update_title("the model is not loaded yet" if form is None else "")
            return
        if turn is not None and not any(isinstance(e, AgentPrompt) for e in turn.log.events):
            turn = None  # its first generation is about to begin
        writer, number = self.writer, self.cursor_number
        if is_other := not writer.shows(turn, conversation):
            writer.begin(turn, conversation, form)
        writer.write_events()
        if is_other:
            self._restore_cursor(number)
        if self._awaited is not None:
            self._move_to_awaited(turn, *self._awaited)
        written = sum(generation.count for generation in writer.log.generations)
        self._update_title(f"{format_count(written)} tokens written" if written else "")

    def _move_to_awaited(
        self,
        turn: RunningTurn | None,
        ids: Sequence[int],
        before: RunningTurn | None,
        awaited: RunningTurn | None,
    ) -> None:
        """Put the cursor on the token that was taken, once the branch's turn has it."""
        if awaited is None:
            if turn is None or turn is before or turn.source != "app":
                return
            self._awaited = ids, before, turn
        elif turn is not awaited:
            self._awaited = None
            return
        first = self.writer.log.generations[0]
        if first.count < len(ids):
            return
        self._awaited = None
        end = first.start + len(ids)
        if self.writer.log.ids[first.start : end] == list(ids):  # else the branch never began
            self._stream.move_cursor_to(end - 1 - self.writer.left_out)
            self._stream.follows_last = False

    def colour(self, turn: RunningTurn | None, chances: Sequence[Sequence[float]]) -> None:
        """Colour a turn's tokens, and no others. ``chances``: their probabilities, by generation."""
        number = self.cursor_number
        if self.writer.colour(turn, chances):
            self._restore_cursor(number)

    def toggle(self) -> None:
        """Open or close the view; what has the focus in it gives it up."""
        had_focus = self.has_focus_within
        self.display = not self.display
        self.query(TokenSearchBar).remove()
        if had_focus:
            self.post_message(self.Left())
        self.close_panel()
        self._stream.truncate()
        self.writer.forget()

    def _update_title(self, state: str | None = None) -> None:
        """Show ``state``, or the last one, and how to get to the tokens."""
        self._state = state = self._state if state is None else state
        hint = "" if self._stream.cursor is not None else "Tab: go through the tokens"
        title = " · ".join(filter(None, ["Raw", state, hint]))
        if title != self._title:
            self._title = title
            self._title_bar.border_title = Content(title)

    # --- the cursor and its token ---

    @property
    def cursor_number(self) -> int | None:
        cursor = self._stream.cursor
        return None if cursor is None else cursor + self.writer.left_out

    def _restore_cursor(self, number: int | None) -> None:
        """Put the cursor back on the token with this number in the log, unless it follows the last."""
        if number is None:
            self._stream.anchor()
        elif not self._stream.follows_last:
            self._stream.move_cursor_to(max(0, number - self.writer.left_out))
        self._on_moved()

    def on_token_browser_moved(self, message: TokenBrowser.Moved) -> None:
        message.stop()
        self._on_moved()

    def _on_moved(self) -> None:
        """Show the token that the cursor is on now; compute what is not known once it rests."""
        if self._rest_timer is not None:
            self._rest_timer.stop()
            self._rest_timer = None
        self.workers.cancel_group(self, "choices")
        self._update_title()
        position, form = self.position, self.writer.form
        if (has_cursor := position is not None) != self.has_class("-inspected"):
            self._panel.set_class(has_cursor, "-open")
            self.set_class(has_cursor, "-inspected")
            self.post_message(self.Inspected(has_cursor))
        if position is None or form is None:
            return
        number, raw = position.number, form.token_bytes(position.token)
        kind = "prompt" if position.generation is None else "generated"
        state = "" if number else "The first token follows nothing."
        self._panel.show_token(position.token, raw, number, kind, state)
        if position.number:
            self._rest_timer = self.set_timer(
                REST_SECONDS, partial(run_latest, self, "choices", self._show_choices)
            )

    @property
    def position(self) -> TokenPosition | None:
        number, conversation = self.cursor_number, self.writer.conversation
        if number is None or conversation is None or number >= len(self.writer.log.ids):
            return None
        return TokenPosition(self.writer.turn, conversation, number, self.writer.log)

    async def _show_choices(self) -> None:
        if (position := self.position) is None or (form := self.writer.form) is None:
            return
        self._panel.show_state("computing …")
        try:
            choices = await self._choices(position)
        except AgentError as error:
            self._panel.show_state(str(error))
        except Exception:  # of an engine, or a format: the app continues
            log.exception("the probabilities of token %d failed", position.number)
            self._panel.show_state("The probabilities cannot be computed; the log has the details.")
        else:
            listed = (choices.chosen, *choices.alternatives)
            texts = {choice.token: form.token_bytes(choice.token) for choice in listed}
            self._panel.show_choices(choices, texts)

    def action_show_alternatives(self) -> None:
        if self._panel.has_alternatives:
            self._panel.alternatives.focus()

    def action_leave(self) -> None:
        """Go back from the alternatives to the tokens, or leave these."""
        if self._panel.has_focus_within:
            self._stream.focus()
        else:
            self.close_panel()
            self.post_message(self.Left())

    async def open_search(self) -> None:
        if bars := self.query(TokenSearchBar):
            bars.first().enter()
        else:
            await self.mount(TokenSearchBar(self._stream))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if (position := self.position) is not None and event.option_id is not None:
            self._stream.focus()
            self.post_message(self.Taken(position, int(event.option_id)))

    def close_panel(self) -> None:
        self._awaited = None
        self._stream.move_cursor_to(None)
        self._stream.anchor()
        self._on_moved()

    def await_turn(self, ids: Sequence[int]) -> None:
        """Put the cursor on the last of these tokens once the next turn has begun with them."""
        self._awaited = ids, self.writer.turn, None

    def focus_tokens(self) -> bool:
        """Give the tokens the focus, and with it a cursor; return whether there are any."""
        if not (self.display and self._stream.token_count):
            return False
        self.screen.set_focus(self._stream)  # at once, before the next key
        return True

    def on_resize(self, event: events.Resize) -> None:
        is_large = event.size.width >= MIN_COLUMNS_BESIDE and event.size.height >= MIN_ROWS_BESIDE
        self.set_class(is_large, "-beside")
