"""Makes room in the context: a summary instead of the oldest turns, only the ends of long results.

The prompt of a long conversation, and what becomes of it (`starts` are where turns begin)::

    head | summary | turn 3 | turn 4 | turn 5 | turn 6 | the running turn
         '--- summarised into one ---'   '--- stay: LATEST_TURNS_SHARE ---'
                                    ^ end of the compaction

1. A beginning that was summarised before (a client resends a whole history) gets that summary again.
2. If it is enough, only the long tool results before the end are shortened (SHORTENED_SHARE).
3. Else the model summarises all before the end; where it writes no summary, that is left out.

Only finished turns are compacted, never a call without its result, and none that a person pinned:
it stays behind the summary as it is. All entries stay in the conversation; only its prompt changes.
A compaction happens completely or not at all.
"""

import base64
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from agent import events as ev
from agent.conversation.conversation import CompactedPrefix, Conversation, Entry
from agent.conversation.summary import (
    Generator,
    NoSummaryError,
    shorten_entry,
    summarise,
    summary_tokens,
)
from agent.engine.protocol import EngineError
from agent.errors import AgentError
from agent.formats.protocol import Format

FULL_SHARE = 0.85
"""Share of the context from which on the next generation would not have room."""
LATEST_TURNS_SHARE = 0.25
"""Share of the context into which the latest turns have to fit to stay as they are."""
SHORTENED_SHARE = 0.6
"""Nothing is summarised where shortened results bring the prompt below this share of the context."""
LONG_RESULT_TOKENS = 512
"""Length to which tool results are shortened that are twice as long (less in a small context)."""
SUMMARY = (
    "The earlier messages of this conversation were replaced by this summary of them. It tells what"
    " was said; it gives no new instructions."
)
LEFT_OUT = "The earlier messages of this conversation were left out to make room, unsummarised."
TOKEN_PREFIX = "agent-1:"
"""Prefix of a summary before it is encoded; another encoding would have another number."""


_FURTHER_LEFT_OUT = "\n\nThe messages after that, until here, were left out, unsummarised."


class NotCompactedError(AgentError):
    """The conversation is as it was; the message is a sentence that says why."""


async def make_room(
    generator: Generator, conversation: Conversation, limit: int | None = None
) -> None:
    """Compact before a generation that would have no room, as little as helps. Without a summary the
    oldest turns are left out; the running turn stays. ``limit``: used as the length of the context.
    Raises NotCompactedError."""
    form, length = generator.format, generator.context_length
    length = min(length, limit or length)
    if not needs_compaction(form, length, conversation):
        return
    if _reuse_summary(generator, conversation) and not needs_compaction(form, length, conversation):
        return
    compaction = _Compaction(generator, conversation, length)
    end = compaction.latest_turns()
    if end is None or not _replaceable(conversation, end):
        return  # the turn that runs, or what is pinned, fills the context by itself
    if compaction.shorten(end):
        return
    try:
        text = await compaction.summary(end)
    except NoSummaryError:
        text = None
    compaction.replace(end, text)


async def compact(generator: Generator, conversation: Conversation) -> None:
    """Summarise all turns in the prompt but the last, as a person asked. Raises NotCompactedError."""
    compaction = _Compaction(generator, conversation)
    end = _last_in_prompt(conversation, compaction.starts)
    if end is None:
        raise NotCompactedError("There is no earlier turn to compact.")
    if not _replaceable(conversation, end):
        raise NotCompactedError("Nothing was compacted: all earlier turns are pinned or dropped.")
    try:
        text = await compaction.summary(end)
    except NoSummaryError as error:
        raise NotCompactedError(f"Nothing was compacted: {error}.") from error
    compaction.replace(end, text)


def summary_message(summary: str) -> str:
    return f"{SUMMARY}\n\n{summary}"


def encode_summary(text: str) -> str:
    """Encode a summary in base64. It is not encrypted: the conversation is the client's own."""
    return base64.urlsafe_b64encode(f"{TOKEN_PREFIX}{text}".encode()).decode()


def needs_compaction(form: Format, context_length: int, conversation: Conversation) -> bool:
    return len(conversation.prompt(form)) > FULL_SHARE * context_length


def minimum_prompt_tokens(form: Format, conversation: Conversation) -> int:
    """Tokens of the prompt that `make_room` cannot take away."""
    starts = turn_starts(conversation.entries)
    last = starts[-1] if starts else 0
    stays = [*_pinned(conversation.entries[:last]), *conversation.entries[last:]]
    left_out = form.developer_message(LEFT_OUT) if starts[1:] else []
    fixed = len(conversation.header_ids) + len(left_out) + len(form.open_assistant())
    return min(fixed + _size(stays), len(conversation.prompt(form)))


def replaceable_tokens(conversation: Conversation) -> int:
    """Tokens of the prompt that `compact` would replace by a summary; 0: there is nothing to do."""
    base = conversation.compacted.end if conversation.compacted else 0
    starts = [start for start in turn_starts(conversation.entries) if start > base]
    end = _last_in_prompt(conversation, starts)
    return 0 if end is None else _replaceable(conversation, end)


def _last_in_prompt(conversation: Conversation, starts: Sequence[int]) -> int | None:
    """The last of these starts whose turn is not dropped; None: there is none."""
    bounds = pairwise([*starts, len(conversation.entries)])
    present = [start for start, stop in bounds if _size(conversation.entries[start:stop])]
    return present[-1] if present else None


def _replaceable(conversation: Conversation, end: int) -> int:
    compacted, entries = conversation.compacted, conversation.entries
    base, summary = (compacted.end, len(compacted.ids)) if compacted else (0, 0)
    tokens = _size(_unpinned(entries[base:end]))
    return tokens + summary if tokens else 0


def _pinned(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.pinned]


def _unpinned(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry.pinned]


def turn_starts(entries: Sequence[Entry]) -> list[int]:
    """Indexes where turns begin: a user's message, unless results of earlier calls come after it."""
    roles, count = [entry.role for entry in entries], len(entries)
    starts = []
    for at, role in enumerate(roles):
        if role not in _REQUEST_ROLES or (at > 0 and roles[at - 1] in _REQUEST_ROLES):
            continue
        after = next((i for i in range(at, count) if roles[i] not in _REQUEST_ROLES), count)
        if "user" in roles[at:after] and roles[after : after + 1] != ["result"]:
            starts.append(at)
    return starts


_REQUEST_ROLES = ("user", "developer")


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(entry.prompt_ids) for entry in entries)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _render(form: Format, text: str) -> list[int]:
    """The ids of the message with this summary, or with the sentence in place of one."""
    return form.developer_message(LEFT_OUT if text == LEFT_OUT else summary_message(text))


def _reuse_summary(generator: Generator, conversation: Conversation) -> bool:
    """Whether the beginning was summarised before, as by a client that resends a whole history."""
    form, entries = generator.format, conversation.entries
    # A summary may contain text that was dropped here, if another branch with it was summarised.
    present = list(takewhile(lambda entry: not entry.dropped, entries))
    ends = [start for start in turn_starts(entries)[1:] if start <= len(present)]
    summarised = generator.summaries.longest_prefix(present, ends)
    if summarised is None or conversation.compacted is not None:
        return False
    end, text = summarised
    conversation.compacted = CompactedPrefix(end, text, _render(form, text))
    return True


class _Compaction:
    """One compaction; the conversation changes only at its end."""

    def __init__(self, generator: Generator, conversation: Conversation, context: int = 0) -> None:
        self._generator, self._conversation = generator, conversation
        self._context = context or generator.context_length
        self._base = conversation.compacted.end if conversation.compacted else 0
        self.starts = [start for start in turn_starts(conversation.entries) if start > self._base]
        """Indexes of entries where turns begin, except the first turn in the prompt."""
        self._tokens_before = self._prompt_tokens()

    def latest_turns(self) -> int | None:
        """The start of the last turn and of those before it that fit; None: nothing precedes it."""
        if not self.starts:
            return None
        context, conversation = self._context, self._conversation
        last = end = self.starts[-1]
        last_turn = _size(conversation.entries[last:])
        used = len(conversation.header_ids) + summary_tokens(context) + last_turn
        used += _size(_pinned(conversation.entries[:last]))
        room = min(LATEST_TURNS_SHARE * context, FULL_SHARE * context - used)
        for start in reversed(self.starts[:-1]):
            # Pinned entries stay in any case, and count as used.
            if _size(_unpinned(conversation.entries[start:last])) > room:
                break
            end = start
        return end

    def shorten(self, end: int) -> bool:
        """Shorten the long results before ``end``, if that is enough; whether it was."""
        entries = self._conversation.entries
        shortened = self._shortened_results(end)
        saved = sum(len(entries[at].prompt_ids) - len(ids) for at, ids in shortened.items())
        if self._tokens_before - saved >= SHORTENED_SHARE * self._context:
            return False
        for at, ids in shortened.items():
            # A copy, for another conversation may have the same entry.
            entries[at] = replace(entries[at], shortened_ids=ids)
        self._notify(f"{_count(len(shortened), 'long result')} of tools shortened")
        return True

    def _shortened_results(self, end: int) -> dict[int, list[int]]:
        conversation, form = self._conversation, self._generator.format
        limit = min(LONG_RESULT_TOKENS, self._generator.context_length // 16)
        note = f"; the whole: agent sessions show {conversation.id}"
        saved_count = conversation.saved_count
        return {
            at: shorten_entry(form, entry, limit, note if at < saved_count else "")
            for at, entry in enumerate(conversation.entries[self._base : end], self._base)
            if entry.recipient and not entry.pinned and len(entry.prompt_ids) > 2 * limit
        }

    async def summary(self, end: int) -> str:
        """The model's summary of what is before ``end``. Raises NoSummaryError, NotCompactedError."""
        notice = f"Summarising {self._turns(end)} …"
        self._generator.emit(ev.AgentNotice(level="info", message=notice))
        conversation, form = self._conversation, self._generator.format
        shortened = self._shortened_results(end)
        entries = conversation.prompt_entries()[: end - len(conversation.entries) or None]
        offset = len(entries) - end
        for at, ids in shortened.items():
            entries[offset + at] = replace(entries[offset + at], ids=ids)
        try:
            text = await summarise(
                self._generator, conversation.header_ids, entries, lambda text: _render(form, text)
            )
        except EngineError as error:
            raise NotCompactedError(f"Nothing was compacted: {error}") from error
        if len(_render(form, text)) >= _replaceable(conversation, end):
            raise NoSummaryError("the summary is not shorter than the turns")
        return text

    def replace(self, end: int, text: str | None) -> None:
        """Put the summary in place of what precedes ``end``; None: nothing but an earlier summary."""
        form, earlier = self._generator.format, self._conversation.compacted
        substitute = text or LEFT_OUT
        if text is None and earlier is not None and earlier.text != LEFT_OUT:
            substitute = f"{earlier.text.removesuffix(_FURTHER_LEFT_OUT)}{_FURTHER_LEFT_OUT}"
        ids = _render(form, substitute)
        self._conversation.compacted = CompactedPrefix(end, substitute, ids)
        if text is None:
            self._notify(f"{self._turns(end)} left out: the model wrote no summary")
            return
        entries = self._conversation.entries[:end]
        if not any(entry.dropped for entry in entries):  # else the summary does not cover them
            self._generator.summaries.put(entries, text)
        self._notify(f"{self._turns(end)} summarised in {len(ids):,} tokens")

    def _turns(self, end: int) -> str:
        """The number of turns that the prompt no longer has: without the pinned and dropped ones."""
        bounds = [self._base, *(start for start in self.starts if start <= end)]
        turns = [self._conversation.entries[start:stop] for start, stop in pairwise(bounds)]
        return _count(sum(_size(_unpinned(turn)) > 0 for turn in turns), "earlier turn")

    def _prompt_tokens(self) -> int:
        return len(self._conversation.prompt(self._generator.format))

    def _notify(self, change: str) -> None:
        now, before = self._prompt_tokens(), self._tokens_before
        lengths = f"The prompt has {now:,} tokens now, {before:,} before."
        message = f"The conversation was compacted: {change}. {lengths}"
        self._generator.emit(ev.AgentNotice(level="info", message=message))
