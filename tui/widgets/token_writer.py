"""Writes the tokens of a turn into a ``TokenBrowser``, from ``agent.prompt``, ``agent.tokens`` and
``agent.repair`` in its log."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.conversation.conversation import Conversation
from agent.events import AgentPrompt, AgentRepair, AgentTokens, Event
from agent.formats.protocol import Format, SingleMessageFormat
from agent.turn.context import RunningTurn
from tui.state.token_colours import TokenRun, TokenTextRenderer
from tui.widgets.token_browser import TokenBrowser

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

    def add_written(self, ids: Sequence[int]) -> None:
        self.ids += ids
        self.generations[-1].count += len(ids)

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
        """Number of the turn's events that are shown."""
        self._turn_mark = self._generation_mark = 0
        """Where the first and the last generation begin in the stream."""
        self._opening: list[int] = []
        """The generation prompt of the last one."""
        self._renderer: TokenTextRenderer | None = None
        """Renders that generation; None before the first."""
        self._repairs: defaultdict[int, list[str]] = defaultdict(list)
        """Names of the repair rules applied in that generation, by the index of the token."""
        self._coloured: tuple[RunningTurn | None, Sequence[Sequence[float]]] = (None, ())
        """A turn, and the probabilities that colour its tokens, by generation."""

    def shows(self, turn: RunningTurn | None, conversation: Conversation) -> bool:
        return self.conversation is conversation and self.turn is turn

    def begin(self, turn: RunningTurn | None, conversation: Conversation, form: Format) -> None:
        """Begin with another turn, or without one with the next prompt of a conversation."""
        self.turn, self.conversation, self.form = turn, conversation, form
        self.log, self.left_out, self._events_read = TokenLog(), 0, 0
        self._stream.truncate()
        if turn is None:
            self.log = TokenLog(conversation.ids())
            self._write_prompt(self.log.ids, form)

    def forget(self) -> None:
        """Have ``shows`` return False, so that everything is written again."""
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
            self.log.add_written(ids)
            written, number = self.log.generations[-1], len(self.log.generations) - 1
            turn, chances = self._coloured
            if turn is self.turn and number < len(chances):
                written.probabilities = dict(enumerate(chances[number]))
            self._stream.write_tokens(
                self._renderer.runs(ids, self._repairs, written.probabilities)
            )

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
        header = TokenTextRenderer(form, generated=False).runs(self._opening)
        self._stream.write_tokens(header)
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
