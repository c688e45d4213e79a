"""What was said, as the token ids that the model saw and wrote.

Nothing that the model generated is rendered again: its messages are kept as they came, so the engine's
memory of them stays valid. Of a finished turn only the reasoning is dropped, as Harmony wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from agent.formats.base import Format, Head, Kind, OneMessage
from agent.formats.text import alike


@dataclass(frozen=True, slots=True)
class User:
    text: str


@dataclass(frozen=True, slots=True)
class Assistant:
    """What an assistant said, in a history that came from elsewhere."""

    text: str
    phase: Literal["commentary", "final_answer"] = "final_answer"


@dataclass(frozen=True, slots=True)
class Developer:
    """Instructions that came in the middle of a history."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning in a history that came from elsewhere; goes when the turn is over."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call in a history that came from elsewhere; ``tool`` is the name that was declared."""

    tool: str
    arguments: str
    json: bool = True
    """False: the arguments are code."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What a call gave; ``tool`` is the name that was declared."""

    tool: str
    text: str


Message = User | Developer | Assistant | Thought | Called | Returned


@dataclass(slots=True)
class Entry:
    """One message's ids; ``reasoning`` ones go when their turn is over."""

    ids: list[int]
    reasoning: bool = False
    item: str | None = None
    """The id of the item that the model wrote here."""


@dataclass(frozen=True, slots=True)
class Span:
    """A message among generated ids: from ``start`` up to ``end``."""

    start: int
    end: int
    kind: Kind
    complete: bool
    item: str
    """The id of the item that it became."""


@dataclass(slots=True)
class Conversation:
    """The messages of one conversation, in order."""

    id: str
    entries: list[Entry] = field(default_factory=list)
    head: Head | None = None
    vocabulary: str | None = None
    """Whose token ids these are; None before the first turn."""
    saved: int = 0
    """So many entries are in the store, and will not change."""
    _head_ids: list[int] = field(default_factory=list)
    _ending: Entry | None = None
    """The end of a message that came from elsewhere in parts: another part may go before it."""
    _results: Entry | None = None
    """Results of calls, that others may follow."""

    def ids(self) -> list[int]:
        """Everything that was said."""
        return [*self._head_ids, *chain.from_iterable(entry.ids for entry in self.entries)]

    def prompt(self, form: Format) -> list[int]:
        """All ids up to where the assistant goes on writing."""
        return self.ids() + form.open_assistant()

    def set_head(self, form: Format, head: Head) -> None:
        """Tools, effort or instructions may differ from turn to turn; rendered only when they do."""
        if head != self.head:
            self._head_ids = form.head(head)
            self.head = head

    def add(self, form: Format, message: Message) -> None:
        """A message that the model did not write here."""
        match message:
            case User(text):
                ids = form.user(text)
            case Assistant(text, phase):
                ids = form.said(text, phase=phase)
            case Developer(text):
                ids = form.developer(text)
            case Thought(text):
                ids = form.thought(text)
            case Called(tool, arguments, json):
                ids = form.call(form.canonical(tool), arguments, json=json)
            case Returned(tool, text):
                self.add_result(form, form.canonical(tool), text)
                return
        if isinstance(form, OneMessage) and isinstance(message, Assistant | Thought | Called):
            self._add_part(form, ids, isinstance(message, Thought))
        else:
            self.entries.append(Entry(ids, isinstance(message, Thought)))

    def add_result(self, form: Format, recipient: str, text: str) -> None:
        """What a call gave; ``recipient`` as the model wrote or meant it."""
        if isinstance(form, OneMessage) and self._goes_on(self._results):
            ids = form.further_result(self.entries.pop().ids, text)
        else:
            ids = form.result(recipient, text)
        self._results = Entry(ids)
        self.entries.append(self._results)

    def add_generated(self, form: Format, ids: Sequence[int], spans: Sequence[Span]) -> None:
        """The messages of one generation."""
        if isinstance(form, OneMessage):
            self._add_one(form, form.header(), ids, spans)
            return
        for span in spans:
            # The first message's opening stands in the prompt, not in what was generated.
            opening = form.open_assistant() if span.start == 0 else []
            call = span.complete and span.kind in (Kind.TOOL, Kind.TOOL_UNKNOWN)
            message = form.close_message([*opening, *ids[span.start : span.end]], call=call)
            self.entries.append(Entry(message, span.kind is Kind.REASONING, span.item))

    def _goes_on(self, entry: Entry | None) -> bool:
        """It is the last one, and not in the store yet."""
        last = self.entries[-1] if self.saved < len(self.entries) else None
        return last is not None and last is entry

    def _add_part(self, form: OneMessage, ids: list[int], reasoning: bool) -> None:
        """Thoughts, texts and calls from elsewhere that follow each other are one message too."""
        header, ending = form.header(), form.ending()
        body = ids[len(header) : len(ids) - len(ending)]
        if not body:
            return
        if ids[: len(header)] != header or ids[len(ids) - len(ending) :] != ending:
            self.entries.append(Entry(ids, reasoning))
            return
        if self._goes_on(self._ending):
            self.entries.pop()
            if not self.entries[-1].reasoning:
                body = form.between() + body
        else:
            self.entries.append(Entry(header))
        self._ending = Entry(ending)
        self.entries += [Entry(body, reasoning), self._ending]

    def _add_one(
        self, form: Format, header: list[int], ids: Sequence[int], spans: Sequence[Span]
    ) -> None:
        """A generation that is one message: only its thoughts can go, and no part stands alone."""
        if not spans:
            return
        parts = [list(ids[span.start : span.end]) for span in spans]
        parts[0] = form.open_assistant()[len(header) :] + parts[0]
        last = form.close_message(parts[-1], call=False)
        kept = alike(parts[-1], last)
        parts[-1] = last[:kept]
        self.entries.append(Entry(header))
        for span, part in zip(spans, parts, strict=True):
            self.entries.append(Entry(part, span.kind is Kind.REASONING))
        self.entries.append(Entry(last[kept:]))

    def forget(self, mark: int) -> None:
        """Everything from the entry at ``mark`` on was never said."""
        del self.entries[mark:]
        self.saved = min(self.saved, mark)

    def end_turn(self) -> None:
        """The answer is whole: what was thought on the way to it goes."""
        first = next((at for at, entry in enumerate(self.entries) if entry.reasoning), None)
        if first is not None:
            self.saved = min(self.saved, first)
            self.entries = [entry for entry in self.entries if not entry.reasoning]
