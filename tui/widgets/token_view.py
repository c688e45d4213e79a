"""The raw token view: the prompt of a turn and what the model generates, token by token."""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from textual import events
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import OptionList

from agent.conversation.conversation import Conversation
from agent.errors import AgentError
from agent.events import AgentPrompt, AgentRepair, AgentTokens, Event
from agent.formats.protocol import Format, SingleMessageFormat
from agent.turn.context import RunningTurn
from agent.turn.token_choices import TokenChoices
from tui.guarded import Guarded, run_latest
from tui.keymap import bind_fixed
from tui.state.token_colours import TokenRun, TokenTextRenderer
from tui.util.format import format_count
from tui.widgets.panes import PaneTitle
from tui.widgets.search import BaseSearchBar
from tui.widgets.token_browser import TokenBrowser
from tui.widgets.token_panel import TokenPanel

log = logging.getLogger(__name__)
REST_SECONDS = 0.15
"""Seconds on a token before its probabilities are computed: a held arrow key passes most tokens."""
MIN_COLUMNS_BESIDE, MIN_ROWS_BESIDE = 84, 15
"""Columns and rows from which on the panel is next to the tokens, not below them."""
MAX_EARLIER_TOKENS = 20_000


@dataclass(slots=True)
class WrittenTokens:
    """The tokens of one generation."""

    start: int
    """The number of the first one among all tokens."""
    count: int = 0
    probabilities: dict[int, float] = field(default_factory=dict)
    """By index in the generation: in the model's own distribution, as far as they are known."""


class TokenLog:
    """Collects the tokens of one turn, or of the prompt alone."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self.ids = list(ids)
        self.generations: list[WrittenTokens] = []

    def begin_generation(self, ids: Sequence[int]) -> None:
        """Add what the next generation reads that was not read before."""
        self.ids += ids
        self.generations.append(WrittenTokens(len(self.ids)))

    def generation_of(self, number: int) -> int | None:
        """The index of the generation that wrote a token; None: it is of the prompt."""
        index = bisect_right(self.generations, number, key=lambda written: written.start) - 1
        if index < 0:
            return None
        written = self.generations[index]
        return index if number < written.start + written.count else None


class TokenWriter:
    """Writes what the model reads and generates in one turn, or what it reads next."""

    def __init__(self, stream: TokenBrowser) -> None:
        self._stream = stream
        self.turn: RunningTurn | None = None
        self.conversation: Conversation | None = None
        self.form: Format | None = None
        self.log = TokenLog()
        self.left_out = 0
        """Number of the log's first tokens that are not shown."""
        self._events_read = 0
        self._turn_mark = self._generation_mark = 0
        """Where the first and the last generation begin in the stream."""
        self._opening: list[int] = []  # the generation prompt of the last one
        self._renderer: TokenTextRenderer | None = None
        self._repairs: defaultdict[int, list[str]] = defaultdict(list)
        """Names of the repair rules applied in that generation, by the index of the token."""
        self._coloured: tuple[RunningTurn | None, Sequence[Sequence[float]]] = (None, ())
        """A turn, and the probabilities that colour its tokens, by generation."""

    def begin(self, turn: RunningTurn | None, conversation: Conversation, form: Format) -> None:
        """Begin with another turn, or without one with the next prompt of a conversation."""
        self.turn, self.conversation, self.form = turn, conversation, form
        self.log, self.left_out, self._events_read = TokenLog(), 0, 0
        self._stream.truncate()
        if turn is None:
            self.log = TokenLog(conversation.ids())
            self._write_prompt(self.log.ids, form)

    def forget(self) -> None:
        """Show no turn, so that everything is written again."""
        self.turn = self.conversation = None

    def write_events(self) -> None:
        if self.turn is not None and self.form is not None:
            self._write(self.turn.log.events[self._events_read :], self.form)
            self._events_read = len(self.turn.log.events)

    def colour(self, turn: RunningTurn | None, chances: Sequence[Sequence[float]]) -> bool:
        """Colour a turn's tokens, and no others; return whether they were written again."""
        if turn is not None:
            # A branch begins with what an earlier turn wrote, which is not in its events.
            counts = _count_tokens(turn)
            own = chances[max(0, len(chances) - len(counts)) :]
            chances = [
                values[max(0, len(values) - count) :]
                for values, count in zip(own, counts, strict=False)
            ]
        before, self._coloured = self._coloured[0], (turn, chances)
        if is_shown := self.turn is not None and self.turn in (before, turn):
            self._rewrite_turn(self.turn)
        return is_shown

    def _rewrite_turn(self, turn: RunningTurn) -> None:
        assert self.form is not None, "it has written the turn"
        start = self.log.generations[0].start
        self._stream.truncate(self._turn_mark)
        self.log = TokenLog(self.log.ids[:start])
        events = turn.log.events[: self._events_read]
        first, ids = next((n, e.ids) for n, e in enumerate(events) if isinstance(e, AgentPrompt))
        self._opening = _opening_of(ids, self.form)
        self._begin_generation((), self.form)
        self._write(events[first + 1 :], self.form)

    def _write(self, events: Sequence[Event], form: Format) -> None:
        new: list[int] = []
        for event in events:
            match event:
                case AgentPrompt(ids=ids):
                    self._write_tokens(new)
                    new = []
                    self._opening = _opening_of(ids, form)
                    self._write_prompt(ids[: len(ids) - len(self._opening)], form)
                    if not self.log.generations:
                        self._turn_mark = self._stream.mark()
                    self._begin_generation(ids, form)
                case AgentTokens(ids=ids):
                    new += ids
                case AgentRepair(rule=rule, at=at):
                    written = self.log.generations[-1]
                    index = min(at, written.count + len(new) - 1)
                    self._repairs[index].append(rule)
                    if index < written.count:
                        self._rewrite_generation(form)
        self._write_tokens(new)

    def _rewrite_generation(self, form: Format) -> None:
        written = self.log.generations[-1]
        self._stream.truncate(self._generation_mark)
        renderer = self._restart_generation(form)
        ids = self.log.ids[written.start : written.start + written.count]
        self._stream.write_tokens(renderer.runs(ids, self._repairs, written.probabilities))

    def _write_tokens(self, ids: list[int]) -> None:
        if ids and self._renderer is not None:
            written, number = self.log.generations[-1], len(self.log.generations) - 1
            self.log.ids += ids
            written.count += len(ids)
            turn, chances = self._coloured
            if turn is self.turn and number < len(chances):
                written.probabilities = dict(enumerate(chances[number]))
            runs = self._renderer.runs(ids, self._repairs, written.probabilities)
            self._stream.write_tokens(runs)

    def _write_prompt(self, ids: Sequence[int], form: Format) -> None:
        """Write what the model reads; of the first prompt the last ``MAX_EARLIER_TOKENS``."""
        if not self._stream.token_count and (left_out := len(ids) - MAX_EARLIER_TOKENS) > 0:
            self.left_out = left_out
            self._stream.write_line(f"… {left_out:,} tokens before", "head")
            ids = ids[left_out:]
        if ids:
            self._stream.mark()
            runs = TokenTextRenderer(form, generated=False).runs(ids)
            self._stream.write_tokens([*runs, TokenRun("\n", "", is_token=False)])

    def _begin_generation(self, ids: Sequence[int], form: Format) -> None:
        """Begin to write a generation. ``ids``: what it reads that was not read before."""
        self.log.begin_generation(ids)
        self._generation_mark = self._stream.mark()
        self._repairs.clear()
        self._restart_generation(form)

    def _restart_generation(self, form: Format) -> TokenTextRenderer:
        """Write the header that opens the assistant's message; its tokens follow from the first on."""
        self._stream.write_tokens(TokenTextRenderer(form, generated=False).runs(self._opening))
        self._renderer = TokenTextRenderer(form, generated=True)
        return self._renderer


def _opening_of(ids: Sequence[int], form: Format) -> list[int]:
    """The generation prompt at the end of a prompt, which may be another one after a tool's result."""
    forms = [form, form.after_result()] if isinstance(form, SingleMessageFormat) else [form]
    openings = sorted((each.open_assistant() for each in forms), key=len, reverse=True)
    return next((o for o in openings if list(ids[len(ids) - len(o) :]) == o), [])


def _count_tokens(turn: RunningTurn) -> list[int]:
    """Tokens of each generation, with what was begun; not of those stopped before the first."""
    counts: list[int] = []
    for event in turn.log.events:
        match event:
            case AgentPrompt():
                counts.append(0)
            case AgentTokens(ids=ids) if counts:
                counts[-1] += len(ids)
    return [count for count in counts if count]


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

    BINDINGS = bind_fixed({"enter": "show_alternatives", "escape": "leave"})
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
        self._title_bar, self._stream, self._panel = PaneTitle(), TokenBrowser(), TokenPanel()
        super().__init__(self._title_bar, Container(self._stream, self._panel, classes="tokens"))
        self._choices = choices
        self.writer = TokenWriter(self._stream)
        self._rest_timer: Timer | None = None
        self._awaited: tuple[Sequence[int], RunningTurn | None, RunningTurn | None] | None = None
        """Ids with which the next turn begins, the turn before it, and that turn once it has begun."""
        self._state = self._title = ""

    # --- tokens ---

    def follow(
        self, turn: RunningTurn | None, conversation: Conversation, form: Format | None
    ) -> None:
        """Show what came since the last call, or begin again. ``form``: None: no model is loaded."""
        if not self.display or form is None:
            self._update_title("the model is not loaded yet" if form is None else "")
            return
        if turn is not None and not any(isinstance(e, AgentPrompt) for e in turn.log.events):
            turn = None  # its first generation is about to begin
        writer, number = self.writer, self.cursor_number
        if is_other := writer.turn is not turn or writer.conversation is not conversation:
            writer.begin(turn, conversation, form)
        writer.write_events()
        if is_other:
            self._restore_cursor(number)
        self._move_to_awaited(turn)
        written = sum(generation.count for generation in writer.log.generations)
        self._update_title(f"{format_count(written)} tokens written" if written else "")

    def _move_to_awaited(self, turn: RunningTurn | None) -> None:
        """Put the cursor on the token that was taken, if any, once the branch's turn has it."""
        if self._awaited is None:
            return
        ids, before, awaited = self._awaited
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
            show = partial(run_latest, self, "choices", self._show_choices)
            self._rest_timer = self.set_timer(REST_SECONDS, show)

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
