"""What the model reads and writes, token by token."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from tui.util.format import count
from tui.util.token_text import Spelling
from tui.widgets.pane import Rule
from tui.widgets.text_stream import Stream

if TYPE_CHECKING:
    from agent.conversation.conversation import Conversation, Entry
    from agent.formats.protocol import Format
    from agent.turn.loop import Turn

EARLIER = 20_000
"""So many tokens from before the turn are shown."""


class Raw(Vertical):
    """A turn's tokens, and those that it began with. Costs nothing while it is not displayed."""

    DEFAULT_CSS = """
    Raw {
        height: 1fr; display: none;
        & > Stream { padding: 0 1; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._rule, self._stream = Rule(), Stream()
        self._turn: Turn | None = None
        self._conversation: Conversation | None = None
        self._number = -1
        """Of the generation that is shown last."""
        self._mark = self._shown = self._looked = 0
        self._repairs: defaultdict[int, list[str]] = defaultdict(list)

    def compose(self) -> ComposeResult:
        yield self._rule
        yield self._stream

    def follow(self, turn: Turn | None, conversation: Conversation, form: Format | None) -> None:
        """Show what came since the last call; anew where it is another turn or conversation.

        ``form``: None as long as no model is loaded.
        """
        if not self.display or form is None:
            self._head("the model is not loaded yet" if form is None else "")
            return
        if turn is not None and not turn.generations:
            turn = None  # it is about to begin
        if self._conversation is not conversation or self._turn is not turn:
            self._turn, self._conversation, self._number = turn, conversation, -1
            self._stream.cut()
            self._before(turn, conversation, form)
        if turn is not None:
            for number in range(max(0, self._number), len(turn.generations)):
                self._generation(turn, number, form)
        written = sum(map(len, turn.generated)) if turn is not None else 0
        self._head(f"{count(written)} tokens written" if written else "")

    def turn_over(self) -> None:
        """Open or close it; when it is opened, all is read anew."""
        self.display = not self.display
        self._turn = self._conversation = None
        self._stream.cut()

    def _head(self, state: str) -> None:
        self._rule.border_title = Content("Raw" + (f" · {state}" if state else ""))

    def _before(self, turn: Turn | None, conversation: Conversation, form: Format) -> None:
        entries = conversation.entries
        first = turn.generations[0].read[0].ids if turn and turn.generations[0].read else None
        known = next((at for at, one in enumerate(entries) if one.ids is first), len(entries))
        self._read(conversation.head_ids, entries[:known], form)

    def _read(self, head: list[int], entries: list[Entry], form: Format) -> None:
        """The latest of what the model reads; each message on lines of its own."""
        left, messages = EARLIER, []
        for ids in reversed([head, *(entry.ids for entry in entries)]):
            messages.append(ids[-left:] if left > 0 else [])
            left -= len(ids)
        if left < 0:
            self._stream.line(f"… {-left:,} tokens before", "head")
        for ids in reversed(messages):
            if ids:
                self._stream.lines(Spelling(form, own=False).runs(ids))

    def _generation(self, turn: Turn, number: int, form: Format) -> None:
        from agent.events import AgentRepair

        pieces, last = turn.generations[number], number + 1 == len(turn.generations)
        if number > self._number:
            self._number, self._looked = number, pieces.since
            self._read([], pieces.read, form)
            self._mark = self._stream.mark()
            self._repairs.clear()
            self._again(form)
        upto = len(turn.log.events) if last else turn.generations[number + 1].since
        for event in turn.log.events[self._looked : upto]:
            if isinstance(event, AgentRepair):
                at = min(event.at, len(pieces.ids) - 1)
                self._repairs[at].append(event.rule)
                if at < self._shown:
                    # Told only afterwards: what is there already is written once more.
                    self._stream.cut(self._mark)
                    self._again(form)
        self._looked = upto
        new = pieces.ids[self._shown :]
        self._stream.write_runs(self._spelling.runs(new, self._repairs))
        self._shown += len(new)

    def _again(self, form: Format) -> None:
        self._stream.write_runs(Spelling(form, own=False).runs(form.open_assistant()))
        self._shown, self._spelling = 0, Spelling(form, own=True)
