"""The raw token view: the prompt of a turn and what the model generates, token by token, from
``agent.prompt``, ``agent.tokens`` and ``agent.repair`` in its log."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message

from tui.guarded import Guarded
from tui.state.token_log import TokenLog
from tui.util.format import format_count
from tui.util.token_text import TokenRun, TokenTextRenderer
from tui.widgets.pane import PaneTitle
from tui.widgets.token_browser import TokenBrowser
from tui.widgets.token_panel import TokenFacts, TokenPanel

if TYPE_CHECKING:
    from textual.timer import Timer

    from agent.conversation.conversation import Conversation
    from agent.events import Event
    from agent.formats.protocol import Format
    from agent.turn.context import RunningTurn
    from agent.turn.token_choices import TokenChoices

log = logging.getLogger(__name__)
MAX_EARLIER_TOKENS = 20_000
"""Prompt tokens from before the turn that are shown, the latest."""
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


class TokenView(Guarded, Vertical):
    """Shows the tokens of a turn and of its prompt; costs nothing while it is not displayed."""

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

    @dataclass
    class Left(Message):
        """Posted when the person leaves the tokens."""

    def __init__(self, choices: Callable[[TokenPosition], Awaitable[TokenChoices]]) -> None:
        """``choices``: computes what could be in the place of a token. Raises AgentError."""
        super().__init__()
        self._choices = choices
        self._title_bar, self._stream, self._panel = PaneTitle(), TokenBrowser(), TokenPanel()
        self._turn: RunningTurn | None = None
        self._conversation: Conversation | None = None
        self._format: Format | None = None
        self._log = TokenLog()
        self._left_out = 0
        """Number of the log's first tokens that are not shown."""
        self._events_read = 0
        """Number of the turn's events that are shown."""
        self._turn_mark = self._generation_mark = 0
        """Where the first and the last generation begin in the stream."""
        self._renderer: TokenTextRenderer | None = None
        """Renders that generation; None before the first."""
        self._repairs: defaultdict[int, list[str]] = defaultdict(list)
        """Names of the repair rules applied in that generation, by the index of the token."""
        self._rest_timer: Timer | None = None
        self._awaited: tuple[Sequence[int], RunningTurn | None, RunningTurn | None] | None = None
        """The ids that the next turn begins with, whose last token gets the cursor; the turn before it;
        that turn once it has begun."""
        self._state = self._title = ""
        """State and title of the tokens."""
        self._coloured: tuple[RunningTurn | None, Sequence[Sequence[float]]] = (None, ())
        """A turn, and the probabilities that colour its tokens, by generation."""

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
        if turn is not None and not _has_prompt(turn):
            turn = None  # its first generation is about to begin
        is_other, number = self._conversation is not conversation or self._turn is not turn, None
        if is_other:
            number = self._cursor_number
            self._begin(turn, conversation, form)
        if turn is not None:
            self._write_events(turn.log.events[self._events_read :], form)
            self._events_read = len(turn.log.events)
        if is_other:
            self._restore_cursor(number)
        if self._awaited is not None:
            self._move_to_awaited(turn, *self._awaited)
        written = sum(generation.count for generation in self._log.generations)
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
        first = self._log.generations[0]
        if first.count < len(ids):
            return
        self._awaited = None
        end = first.start + len(ids)
        if self._log.ids[first.start : end] == list(ids):  # else the branch never began
            self._stream.move_cursor_to(end - 1 - self._left_out)
            self._stream.follows_last = False

    def _begin(self, turn: RunningTurn | None, conversation: Conversation, form: Format) -> None:
        self._turn, self._conversation, self._format = turn, conversation, form
        self._log, self._left_out, self._events_read = TokenLog(), 0, 0
        self._stream.truncate()
        if turn is None:
            self._log = TokenLog(conversation.ids())
            self._write_prompt(self._log.ids, form)

    def toggle(self) -> None:
        """Open or close the view; what has the focus in it gives it up."""
        from tui.widgets.token_search import TokenSearchBar  # as where it is opened

        had_focus = self.has_focus_within
        self.display = not self.display
        self.query(TokenSearchBar).remove()
        if had_focus:
            self.post_message(self.Left())
        self.close_panel()
        self._stream.truncate()
        self.restart()

    def restart(self) -> None:
        """Have the next ``follow`` write everything again."""
        self._turn = self._conversation = None

    def colour(self, turn: RunningTurn | None, chances: Sequence[Sequence[float]]) -> None:
        """Colour a turn's tokens, and no others. ``chances``: their probabilities, by generation."""
        if turn is not None:
            # A branch begins with what an earlier turn wrote, which is not in its events.
            counts = _count_tokens(turn)
            own = chances[max(0, len(chances) - len(counts)) :]
            chances = [
                values[max(0, len(values) - count) :]
                for values, count in zip(own, counts, strict=False)
            ]
        before, self._coloured = self._coloured[0], (turn, chances)
        if self._turn is not None and (self._turn is before or self._turn is turn):
            self._rewrite_turn(self._turn)

    def _rewrite_turn(self, turn: RunningTurn) -> None:
        """Write what follows the turn's first prompt once more, as it looks now."""
        from agent.events import AgentPrompt  # after the first paint

        assert self._format is not None, "it has written the turn"
        number, start = self._cursor_number, self._log.generations[0].start
        self._stream.truncate(self._turn_mark)
        self._log = TokenLog(self._log.ids[:start])
        self._begin_generation((), self._format)
        events = turn.log.events[: self._events_read]
        first = next(n for n, event in enumerate(events) if isinstance(event, AgentPrompt))
        self._write_events(events[first + 1 :], self._format)
        self._restore_cursor(number)

    def _update_title(self, state: str | None = None) -> None:
        """Show ``state``, or the last one, and how to get to the tokens."""
        self._state = state = self._state if state is None else state
        hint = "" if self._stream.cursor is not None else "Tab: go through the tokens"
        title = " · ".join(filter(None, ["Raw", state, hint]))
        if title != self._title:
            self._title = title
            self._title_bar.border_title = Content(title)

    def _write_events(self, events: Sequence[Event], form: Format) -> None:
        from agent.events import AgentPrompt, AgentRepair, AgentTokens  # after the first paint

        new: list[int] = []
        for event in events:
            match event:
                case AgentPrompt(ids=ids):
                    self._write_tokens(new)
                    new = []
                    self._write_prompt(ids[: len(ids) - len(form.open_assistant())], form)
                    if not self._log.generations:
                        self._turn_mark = self._stream.mark()
                    self._begin_generation(ids, form)
                case AgentTokens(ids=ids):
                    new += ids
                case AgentRepair(rule=rule, at=at):
                    written = self._log.generations[-1]
                    index = min(at, written.count + len(new) - 1)
                    self._repairs[index].append(rule)
                    if index < written.count:
                        self._rewrite_generation(form)
                case _:
                    pass
        self._write_tokens(new)

    def _rewrite_generation(self, form: Format) -> None:
        """Write the last generation once more, as it looks now."""
        written = self._log.generations[-1]
        self._stream.truncate(self._generation_mark)
        renderer = self._restart_generation(form)
        ids = self._log.ids[written.start : written.start + written.count]
        self._stream.write_tokens(renderer.runs(ids, self._repairs, written.probabilities))

    def _write_tokens(self, ids: list[int]) -> None:
        if ids and self._renderer is not None:
            self._log.add_written(ids)
            written, number = self._log.generations[-1], len(self._log.generations) - 1
            turn, chances = self._coloured
            if turn is self._turn and number < len(chances):
                written.probabilities = dict(enumerate(chances[number]))
            self._stream.write_tokens(
                self._renderer.runs(ids, self._repairs, written.probabilities)
            )

    def _write_prompt(self, ids: Sequence[int], form: Format) -> None:
        """Write what the model reads; of the first prompt the last ``MAX_EARLIER_TOKENS``."""
        if not self._stream.token_count and (left_out := len(ids) - MAX_EARLIER_TOKENS) > 0:
            self._left_out = left_out
            self._stream.write_line(f"… {left_out:,} tokens before", "head")
            ids = ids[left_out:]
        if ids:
            self._stream.mark()
            runs = TokenTextRenderer(form, generated=False).runs(ids)
            self._stream.write_tokens([*runs, TokenRun("\n", "", is_token=False)])

    def _begin_generation(self, ids: Sequence[int], form: Format) -> None:
        """Begin to write a generation. ``ids``: what it reads that was not read before."""
        self._log.begin_generation(ids)
        self._generation_mark = self._stream.mark()
        self._repairs.clear()
        self._restart_generation(form)

    def _restart_generation(self, form: Format) -> TokenTextRenderer:
        """Write the header that opens the assistant's message; its tokens follow from the first on."""
        header = TokenTextRenderer(form, generated=False).runs(form.open_assistant())
        self._stream.write_tokens(header)
        self._renderer = TokenTextRenderer(form, generated=True)
        return self._renderer

    # --- the cursor and its token ---

    @property
    def _cursor_number(self) -> int | None:
        cursor = self._stream.cursor
        return None if cursor is None else cursor + self._left_out

    def _restore_cursor(self, number: int | None) -> None:
        """Put the cursor back on the token with this number in the log, unless it follows the last."""
        if number is None:
            self._stream.anchor()
        elif not self._stream.follows_last:
            self._stream.move_cursor_to(max(0, number - self._left_out))
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
        position, form = self._position, self._format
        if (has_cursor := position is not None) != self.has_class("-inspected"):
            self._panel.set_class(has_cursor, "-open")
            self.set_class(has_cursor, "-inspected")
            self.post_message(self.Inspected(has_cursor))
        if position is None or form is None:
            return
        is_generated = position.generation is not None
        raw = form.token_bytes(position.token)
        facts = TokenFacts(position.token, raw, position.number, is_generated)
        self._panel.show_token(facts, "" if position.number else "The first token follows nothing.")
        if position.number:
            self._rest_timer = self.set_timer(REST_SECONDS, self._start_choices)

    @property
    def _position(self) -> TokenPosition | None:
        number, conversation = self._cursor_number, self._conversation
        if number is None or conversation is None or number >= len(self._log.ids):
            return None
        return TokenPosition(self._turn, conversation, number, self._log)

    def _start_choices(self) -> None:
        self.run_worker(self._show_choices(), group="choices", exclusive=True)

    async def _show_choices(self) -> None:
        from agent.errors import AgentError

        if (position := self._position) is None or (form := self._format) is None:
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

    def on_token_browser_alternatives_wanted(
        self, message: TokenBrowser.AlternativesWanted
    ) -> None:
        message.stop()
        if self._panel.has_alternatives:
            self._panel.focus_alternatives()

    def on_token_browser_left(self, message: TokenBrowser.Left) -> None:
        message.stop()
        self.close_panel()
        self.post_message(self.Left())

    def on_token_panel_back(self, message: TokenPanel.Back) -> None:
        message.stop()
        self._stream.focus()

    def on_token_panel_taken(self, message: TokenPanel.Taken) -> None:
        message.stop()
        if (position := self._position) is not None:
            self._stream.focus()
            self.post_message(self.Taken(position, message.token))

    def close_panel(self) -> None:
        """Take the cursor away, and the panel with it."""
        self._awaited = None
        self._stream.move_cursor_to(None)
        self._stream.anchor()
        self._on_moved()

    def await_turn(self, ids: Sequence[int]) -> None:
        """Put the cursor on the last of these tokens once the next turn has begun with them."""
        self._awaited = ids, self._turn, None

    def focus_tokens(self) -> bool:
        """Give the tokens the focus, and with it a cursor; return whether there are any."""
        if not (self.display and self._stream.token_count):
            return False
        self.screen.set_focus(self._stream)  # at once, before the next key
        return True

    def on_resize(self, event: events.Resize) -> None:
        is_large = event.size.width >= MIN_COLUMNS_BESIDE and event.size.height >= MIN_ROWS_BESIDE
        self.set_class(is_large, "-beside")

    async def on_token_browser_search_wanted(self, message: TokenBrowser.SearchWanted) -> None:
        from tui.widgets.token_search import TokenSearchBar

        message.stop()
        if bars := self.query(TokenSearchBar):
            bars.first().enter()
        else:
            await self.mount(TokenSearchBar(self._stream))


def _has_prompt(turn: RunningTurn) -> bool:
    from agent.events import AgentPrompt  # after the first paint

    return any(isinstance(event, AgentPrompt) for event in turn.log.events)


def _count_tokens(turn: RunningTurn) -> list[int]:
    """Tokens of each generation, with what was begun; not of those stopped before the first."""
    from agent.events import AgentPrompt, AgentTokens  # after the first paint

    counts: list[int] = []
    for event in turn.log.events:
        match event:
            case AgentPrompt():
                counts.append(0)
            case AgentTokens(ids=ids) if counts:
                counts[-1] += len(ids)
            case _:
                pass
    return [count for count in counts if count]
