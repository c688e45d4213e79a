"""What was said, as the token ids that the model saw and wrote.

Nothing that the model generated is rendered again: its messages are kept as they came, so the engine's
memory of them stays valid. Of a finished turn only the reasoning is dropped, as Harmony wants it.

All messages stay (`entries`); the prompt is made of them, except that after a compaction (`compact.py`)
a summary stands for the oldest and long results are shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from agent.formats.protocol import Format, Head, Kind, OneMessage
from agent.formats.tokenizer_text import alike


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


@dataclass(frozen=True, slots=True)
class Steering:
    """What the user said in the middle of a turn."""

    text: str


Message = User | Steering | Developer | Assistant | Thought | Called | Returned


Role = Literal["user", "developer", "assistant", "result", "part", "steering"]
"""Who wrote an entry; a ``part`` goes on with the message of the entry before. ``steering``: the user,
in the middle of a turn."""


@dataclass(slots=True)
class Entry:
    """One message's ids; ``reasoning`` ones go when their turn is over."""

    ids: list[int]
    reasoning: bool = False
    item: str | None = None
    """The id of the item that the model wrote here."""
    role: Role | None = None
    """None: kept by a version that did not write it down."""
    recipient: str | None = None
    """Of a result: the tool as the model called it."""
    short: list[int] | None = None
    """What the prompt has of it instead, since a compaction."""

    @property
    def shown(self) -> list[int]:
        """What the prompt has of it."""
        return self.ids if self.short is None else self.short


@dataclass(frozen=True, slots=True)
class Compacted:
    """What stands in the prompt for the oldest messages."""

    upto: int
    """Entries before this one are not in the prompt."""
    text: str
    """The summary."""
    ids: list[int]
    """Its message."""


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
    compacted: Compacted | None = None
    parent: str | None = None
    """The conversation that this one branched from."""
    shared: int = 0
    """So many entries are the parent's."""
    revision: int = 0
    """How often the store wrote it; another number there: another process went on with it."""
    _head_ids: list[int] = field(default_factory=list)
    _ending: Entry | None = None
    """The end of a message that came from elsewhere in parts: another part may go before it."""
    _results: Entry | None = None
    """Results of calls, that others may follow."""

    def ids(self) -> list[int]:
        """What the prompt is made of."""
        return [*self._head_ids, *chain.from_iterable(entry.ids for entry in self.view())]

    @property
    def head_ids(self) -> list[int]:
        """What stands before the first message."""
        return self._head_ids

    def view(self) -> list[Entry]:
        """The messages that the prompt is made of, as it has them."""
        compacted = self.compacted
        summary = [Entry(compacted.ids, role="developer")] if compacted else []
        rest = self.entries[compacted.upto :] if compacted else self.entries
        return summary + [
            entry if entry.short is None else replace(entry, ids=entry.short) for entry in rest
        ]

    def branch(self, conversation_id: str, before: int) -> Conversation:
        """Another conversation, with everything that was said before the entry at ``before``.

        To edit or retry a user's message is to branch before it and to go on. Where a compaction
        came later than ``before``, the branch has the messages themselves again.
        """
        entries, compacted = [replace(entry) for entry in self.entries[:before]], self.compacted
        if compacted is not None and compacted.upto > before:
            compacted = None
            for entry in entries:
                entry.short = None
        shared = min(before, self.saved)
        return Conversation(
            conversation_id,
            entries,
            self.head,
            self.vocabulary,
            saved=shared,
            compacted=compacted,
            parent=self.id,
            shared=shared,
            _head_ids=self._head_ids,
        )

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
            case User(text) | Steering(text):
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
            entry = Entry(ids, isinstance(message, Thought), role=_role(message))
            self.entries.append(entry)

    def add_result(self, form: Format, recipient: str, text: str) -> None:
        """What a call gave; ``recipient`` as the model wrote or meant it."""
        if isinstance(form, OneMessage) and self._goes_on(self._results):
            ids = form.further_result(self.entries.pop().ids, text)
        else:
            ids = form.result(recipient, text)
        self._results = Entry(ids, role="result", recipient=recipient)
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
            thought = span.kind is Kind.REASONING
            self.entries.append(Entry(message, thought, span.item, "assistant"))

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
            self.entries.append(Entry(ids, reasoning, role="assistant"))
            return
        if self._goes_on(self._ending):
            self.entries.pop()
            if not self.entries[-1].reasoning:
                body = form.between() + body
        else:
            self.entries.append(Entry(header, role="assistant"))
        self._ending = Entry(ending, role="part")
        self.entries += [Entry(body, reasoning, role="part"), self._ending]

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
        self.entries.append(Entry(header, role="assistant"))
        for span, part in zip(spans, parts, strict=True):
            self.entries.append(Entry(part, span.kind is Kind.REASONING, role="part"))
        self.entries.append(Entry(last[kept:], role="part"))

    def forget(self, mark: int) -> None:
        """Everything from the entry at ``mark`` on was never said."""
        del self.entries[mark:]
        self.saved = min(self.saved, mark)

    def end_turn(self) -> None:
        """The answer is whole: what was thought on the way to it goes."""
        first = next((at for at, entry in enumerate(self.entries) if entry.reasoning), None)
        if first is None:
            return
        if self.compacted is not None:
            gone = sum(entry.reasoning for entry in self.entries[: self.compacted.upto])
            self.compacted = replace(self.compacted, upto=self.compacted.upto - gone)
        self.saved = min(self.saved, first)
        self.entries = [entry for entry in self.entries if not entry.reasoning]


def _role(message: Message) -> Role:
    match message:
        case User():
            return "user"
        case Steering():
            return "steering"
        case Developer():
            return "developer"
        case Returned():
            return "result"
        case Assistant() | Thought() | Called():
            return "assistant"
