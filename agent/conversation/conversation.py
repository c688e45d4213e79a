"""A conversation as the token ids that the model read and wrote.

What the model generated is never rendered again: its messages stay as they came, so the KV cache
stays valid. Only the reasoning of a finished turn is dropped, and its calls in the channel of
reasoning are left out of prompts, as the Harmony guide asks for
(https://cookbook.openai.com/articles/openai-harmony).

All messages stay in ``entries``; the prompt is made of them, except that after a compaction
(`agent.conversation.compaction`) a summary replaces the oldest and long results are shortened::

    entries   [u1][a1][u2][a2][tool result      ][a3][u3]...
    prompt    header | summary  |[shortened result][a3][u3]... | opening of the assistant's message
                       `-- CompactedPrefix, end = 4

A person may choose what the prompt has of it, too: entries that are dropped are left out, and those
that are pinned stay although a summary replaces their neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise

from agent.conversation import messages
from agent.formats.protocol import Format, PromptHeader, SegmentKind, SingleMessageFormat
from agent.util.prefix import common_prefix_length
from tools.types import error_text


@dataclass(slots=True)
class Entry:
    """The ids of one message, or of a part of one."""

    ids: list[int]
    reasoning: bool = False
    """Reasoning is dropped when its turn is over."""
    item: str | None = None
    """Id of the response item that the model wrote here."""
    role: messages.Role | None = None
    recipient: str | None = None
    """For a tool result: the tool as the model called it, or all tools of several results."""
    shortened_ids: list[int] | None = None
    """The ids that stand for it in the prompt since a compaction, or since a person folded it."""
    dropped: bool = False
    """A person took it out of the prompt."""
    pinned: bool = False
    """A person wants it in the prompt as it is, also after a compaction."""
    omitted: bool = False
    """It is a call, or the result of one, that `Conversation.omit_answered_calls` left out."""

    @property
    def prompt_ids(self) -> list[int]:
        """The ids that the prompt has of it, unless a summary replaces it."""
        if self.dropped or self.omitted:
            return []
        return self.ids if self.shortened_ids is None else self.shortened_ids


@dataclass(frozen=True, slots=True)
class CompactedPrefix:
    """The summary that replaces the oldest entries in the prompt."""

    end: int
    """Index of the first entry that is still in the prompt."""
    text: str
    ids: list[int]


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A conversation as a store last read or wrote it; the store compares and replaces it."""

    conversation_id: str
    """The conversation that it was then: this one, or the one that this one branched from."""
    count: int = 0
    """Leading entries that are stored as they are."""
    parent: str | None = None
    shared: int = 0
    """Number of its entries that are its parent's."""
    revision: int = 0
    """Where the stored number differs, another process continued the conversation."""


@dataclass(frozen=True, slots=True)
class Span:
    """A message among the ids of a generation: from ``start`` to ``end``, exclusive."""

    start: int
    end: int
    kind: SegmentKind
    complete: bool
    item: str

    @property
    def is_call(self) -> bool:
        return self.complete and self.kind in (SegmentKind.TOOL, SegmentKind.TOOL_UNKNOWN)


def affinity_tokens(header_ids: Sequence[int], entries: Sequence[Entry]) -> int:
    """Number of ids of the prompt up to the end of the first user's message; 0: there is none."""
    count = len(header_ids)
    for entry in entries:
        count += len(entry.prompt_ids)
        if entry.role == "user":
            return count
    return 0


def next_format(form: Format, entries: Sequence[Entry]) -> Format:
    after_result = bool(entries) and entries[-1].role == "result"
    return form.after_result() if after_result and isinstance(form, SingleMessageFormat) else form


@dataclass(slots=True)
class Conversation:
    """The messages of one conversation, in order."""

    id: str
    entries: list[Entry] = field(default_factory=list)
    header: PromptHeader | None = None
    vocabulary: str | None = None
    """Name of the vocabulary that the ids are of; None before the first turn."""
    compacted: CompactedPrefix | None = None
    saved: StoredVersion | None = field(default=None, compare=False)
    """The part of it that is in a store, set by that. Copies and branches keep it."""
    unanswered: list[str] = field(default_factory=list)
    """Tools whose calls, the last messages, are the client's to run, and have no result yet."""
    finished_reasoning: list[tuple[int, Entry]] = field(default_factory=list)
    """The reasoning of the last finished turn, by its places before `end_turn` dropped it."""
    header_ids: list[int] = field(default_factory=list)
    """The ids before the first message: tools, effort, instructions."""
    _ending: Entry | None = None
    """The closing entry of a message that came in parts; a further part is put before it."""
    _call: Entry | None = None
    """Its last part, if that is a call."""
    _results: Entry | None = None
    """The entry with the latest results; a further one of the same generation is appended to it."""

    @property
    def saved_count(self) -> int:
        return 0 if self.saved is None else self.saved.count

    def on_change_from(self, at: int) -> None:
        """Note that the entries from index ``at`` on are no longer those that a store has."""
        if self.saved is not None and self.saved.count > at:
            self.saved = replace(self.saved, count=at)

    def ids(self) -> list[int]:
        """The ids of the prompt, without the generation prompt."""
        return [*self.header_ids, *chain.from_iterable(e.ids for e in self.prompt_entries())]

    @property
    def affinity_tokens(self) -> int:
        """Length in ids of the prefix of all prompts of this conversation, and of few others."""
        return affinity_tokens(self.header_ids, self.prompt_entries())

    def prompt_entries(self) -> list[Entry]:
        """The entries of the prompt, with the ids that it has of them."""
        compacted = self.compacted
        summary = [Entry(compacted.ids, role="developer")] if compacted else []
        end = compacted.end if compacted else 0
        rest = [*(entry for entry in self.entries[:end] if entry.pinned), *self.entries[end:]]
        return summary + [
            entry if entry.prompt_ids is entry.ids else replace(entry, ids=entry.prompt_ids)
            for entry in rest
        ]

    def branch(self, conversation_id: str, before: int) -> Conversation:
        """A new conversation with the first ``before`` entries, not counting reasoning. To edit or
        retry a user's message is to branch before it and continue there. Where a compaction reached
        further than ``before``, the branch has the messages themselves again."""
        before = self._index(before)
        entries, compacted = [replace(entry) for entry in self.entries[:before]], self.compacted
        if compacted is not None and compacted.end > before:
            compacted = None
            for entry in entries:
                entry.shortened_ids = None
        branch = Conversation(
            conversation_id, entries, self.header, self.vocabulary, compacted, self.saved,
            header_ids=self.header_ids,
        )  # fmt: skip
        branch.on_change_from(before)
        return branch

    def _index(self, count: int) -> int:
        """The index after ``count`` entries, not counting reasoning; at most the end."""
        counts = accumulate((not entry.reasoning for entry in self.entries), initial=0)
        return next((at for at, before in enumerate(counts) if before == count), len(self.entries))

    def prompt(self, form: Format) -> list[int]:
        """The ids of the prompt, up to where the assistant begins to write."""
        return self.ids() + next_format(form, self.entries).open_assistant()

    def set_header(self, form: Format, head: PromptHeader) -> None:
        """Set tools, effort and instructions; they are rendered only if they differ from before."""
        if head != self.header:
            self.header_ids, self.header = form.prompt_header(head), head

    def add(self, form: Format, message: messages.Message) -> None:
        """Add a message that the model did not generate here."""
        form = next_format(form, self.entries)
        match message:
            case messages.User(text) | messages.Steering(text):
                ids = form.user_message(text)
            case messages.Assistant(text, phase):
                ids = form.assistant_message(text, phase=phase)
            case messages.Developer(text):
                ids = form.developer_message(text)
            case messages.ReasoningMessage(text):
                ids = form.reasoning_message(text)
            case messages.ToolCallMessage(tool, arguments, json, function):
                recipient = form.canonical_name(tool, function=function)
                ids = form.tool_call(recipient, arguments, json=json)
            case messages.ToolResultMessage(tool, text, function, late, failed):
                recipient = form.canonical_name(tool, function=function)
                text = error_text(text) if failed else text
                if late is None or not self._replace_missing_result(form, recipient, text, late):
                    self.add_result(form, recipient, text)
                return
        if isinstance(form, SingleMessageFormat) and isinstance(
            message, messages.Assistant | messages.ReasoningMessage | messages.ToolCallMessage
        ):
            self._add_part(form, ids, message)
        else:
            is_reasoning = isinstance(message, messages.ReasoningMessage)
            self.entries.append(Entry(ids, is_reasoning, role=message.role))

    def add_result(self, form: Format, recipient: str, text: str) -> None:
        """Add the result of a tool call; ``recipient`` as the model wrote or meant it."""
        if isinstance(form, SingleMessageFormat) and self._is_last_unsaved(self._results):
            before = self.entries.pop()
            ids = form.append_result(before.ids, recipient, text)
            recipient = f"{before.recipient} {recipient}"
        else:
            ids = form.tool_result(recipient, text)
        self._results = Entry(ids, role="result", recipient=recipient)
        self.entries.append(self._results)

    def _replace_missing_result(
        self, form: Format, recipient: str, text: str, late: tuple[int, int]
    ) -> bool:
        """Put a result in the place of its `NO_RESULT`; false if the prompt lacks that by now."""
        missing = form.tool_result(recipient, error_text(messages.NO_RESULT))
        found = [at for at, entry in enumerate(self.entries) if entry.ids == missing]
        number, count = late
        if len(found) != count or found[number] < (self.compacted.end if self.compacted else 0):
            return False
        at = found[number]
        ids = form.tool_result(recipient, text)
        self.entries[at] = Entry(ids, role="result", recipient=recipient)
        self.on_change_from(at)
        return True

    def add_generated(self, form: Format, ids: Sequence[int], spans: Sequence[Span]) -> None:
        """Add the messages of one generation; ``spans``: where they are among its ``ids``."""
        form = next_format(form, self.entries)
        if isinstance(form, SingleMessageFormat):
            self._add_generated_parts(form, form.message_header(), ids, spans)
            return
        for span in spans:
            # The first message's generation prompt is in the prompt, not among the ids.
            opening = form.open_assistant() if span.start == 0 else []
            message = form.close_message([*opening, *ids[span.start : span.end]], call=span.is_call)
            reasoning = span.kind is SegmentKind.REASONING
            self.entries.append(Entry(message, reasoning, span.item, "assistant"))

    def _is_last_unsaved(self, entry: Entry | None) -> bool:
        """Whether an entry is the last one and not in the store yet, so that it may change."""
        last = self.entries[-1] if self.saved_count < len(self.entries) else None
        return last is not None and last is entry

    def _add_part(
        self, form: SingleMessageFormat, ids: list[int], message: messages.Message
    ) -> None:
        """Add reasoning, a text or a call to the last message, if it is the assistant's, or begin one.

        ``ids`` are a whole message: header, body, ending. The message is kept as the entries header,
        bodies, ending, so that a further body goes before the ending and reasoning can be dropped::

            [header][body 1][ending]  ->  [header][body 1][separator + body 2][ending]
        """
        is_reasoning = isinstance(message, messages.ReasoningMessage)
        is_call = isinstance(message, messages.ToolCallMessage)
        header, ending = form.message_header(), form.message_end(call=is_call)
        body = ids[len(header) : len(ids) - len(ending)]
        if not body:
            return
        if self._is_last_unsaved(self._ending):
            self.entries.pop()
            last = self.entries[-1]
            if last is self._call and is_call:
                last.ids, body = form.join_calls(last.ids, body)
            elif not last.reasoning:
                body = form.part_separator() + body
        else:
            header = header if is_reasoning else form.without_reasoning(header, body)
            self.entries.append(Entry(header, role="assistant"))
        self._ending, part = Entry(ending, role="part"), Entry(body, is_reasoning, role="part")
        self._call = part if is_call else None
        self.entries += [part, self._ending]

    def _add_generated_parts(
        self, form: Format, header: list[int], ids: Sequence[int], spans: Sequence[Span]
    ) -> None:
        """Add a generation that is one message, as the entries header, part …, ending. Only its
        reasoning can be dropped later, which therefore is an entry of its own."""
        if not spans:
            return
        parts = [list(ids[span.start : span.end]) for span in spans]
        if ids[-1] in form.stop_ids:  # with what closes several calls
            parts[-1] = list(ids[spans[-1].start :])
        if spans[0].kind is SegmentKind.REASONING:
            parts[0] = form.open_assistant()[len(header) :] + parts[0]
        else:
            header = form.open_assistant()
        last = form.close_message(parts[-1], call=spans[-1].is_call)
        body = common_prefix_length(parts[-1], last)
        parts[-1] = last[:body]
        self.entries.append(Entry(header, role="assistant"))
        for span, part in zip(spans, parts, strict=True):
            self.entries.append(Entry(part, span.kind is SegmentKind.REASONING, role="part"))
        self.entries.append(Entry(last[body:], role="part"))

    def omit_answered_calls(self, form: Format) -> None:
        """Leave calls in the channel of reasoning, and their results, out of prompts once an answer
        follows, unless they are pinned, or the format keeps all of them."""
        channels = [form.channel(entry.ids) for entry in self.entries]
        answers = [at for at, channel in enumerate(channels) if channel == "final"]
        last_answer = 0 if form.keep_calls else max(answers, default=0)
        omitted = False
        for at, entry in enumerate(self.entries):
            if entry.role != "result":
                is_call = any(after.role == "result" for after in self.entries[at + 1 : at + 2])
                is_own_call = is_call and channels[at] == "analysis" and not entry.pinned
                omitted = is_own_call and at < last_answer
            if entry.omitted != omitted:
                # A copy, for another conversation may have the same entry.
                self.entries[at] = replace(entry, omitted=omitted)

    def truncate(self, mark: int) -> None:
        del self.entries[mark:]
        self.on_change_from(mark)

    def end_turn(self, form: Format | None = None) -> None:
        """Drop the reasoning, once the turn's answer is complete, unless the format keeps it."""
        single = form if isinstance(form, SingleMessageFormat) else None
        reasoning = [(at, entry) for at, entry in enumerate(self.entries) if entry.reasoning]
        head = self.header
        tools = head is None or bool(head.functions or head.builtin_tools or head.python)
        if single is not None and single.keeps_reasoning(tools=tools):
            self.finished_reasoning = []
            self.entries = [replace(e, reasoning=False) if e.reasoning else e for e in self.entries]
            if reasoning:
                self.on_change_from(reasoning[0][0])
            return
        self.finished_reasoning = reasoning
        if single is not None:
            self._omit_opened_reasoning(single)
        if not reasoning:
            return
        if self.compacted is not None:
            dropped = sum(entry.reasoning for entry in self.entries[: self.compacted.end])
            self.compacted = replace(self.compacted, end=self.compacted.end - dropped)
        self.on_change_from(reasoning[0][0])
        self.entries = [entry for entry in self.entries if not entry.reasoning]

    def _omit_opened_reasoning(self, form: SingleMessageFormat) -> None:
        """Write the beginnings of messages as a history has them without reasoning."""
        for at, (entry, after) in enumerate(pairwise(self.entries)):
            if entry.role != "assistant" or entry.reasoning:
                continue
            if after.reasoning or entry.ids != form.message_header():
                following = next(each for each in self.entries[at + 1 :] if not each.reasoning)
                ids = form.without_reasoning(entry.ids, following.ids)
                if ids != entry.ids:
                    self.entries[at] = replace(entry, ids=ids)
                    self.on_change_from(at)
