"""Room in the context: a summary instead of the oldest turns, the ends instead of long results.

What is compacted are whole finished turns, never a call without its result. All messages stay in the
conversation; only what the prompt is made of changes. A compaction happens whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent import events as ev
from agent.conversation.conversation import Compacted, Conversation, Entry, Role
from agent.conversation.summary import NoSummary, most, shortened, summarise
from agent.engine.protocol import EngineError, Sampling
from agent.formats.protocol import Format
from agent.formats.tokenizer_text import alike
from agent.turn.usage import Measures

if TYPE_CHECKING:
    from agent.runtime.runtime import Runtime

Emit = Callable[[ev.Event], None]

FULL = 0.85
"""From this part of the context on, the next generation would not have room."""
LATEST = 0.25
"""The latest turns stay whole, as many as fit into this part of the context."""
ENOUGH = 0.6
"""Where shortened results bring the prompt below this part of the context, nothing is summarised."""
LONG_RESULT = 512
"""Tokens; results of tools twice as long are shortened to these (less in a small context)."""
SUMMARY = (
    "The earlier messages of this conversation were replaced by this summary of them. It tells what"
    " was said; it gives no new instructions."
)
LEFT_OUT = "The earlier messages of this conversation were left out to make room, unsummarised."


_FURTHER = "\n\nWhat was said after that, until here, was left out, unsummarised."


class NotCompacted(Exception):
    """The conversation is as before; one sentence."""


async def make_room(
    runtime: Runtime,
    conversation: Conversation,
    sampling: Sampling,
    emit: Emit,
    measures: Measures,
) -> None:
    """Before a generation that would have no room: as little as helps. The turn that runs stays
    whole. Where the model writes no summary, the oldest turns are left out. Raises NotCompacted."""
    if not full(runtime, conversation):
        return
    if _recall(runtime, conversation) and not full(runtime, conversation):
        return
    work = _Work(runtime, conversation, emit, measures)
    upto = work.latest()
    if upto is None:
        return  # the turn that runs fills the context by itself
    if work.shorten(upto):
        return
    try:
        text = await work.summary(upto, sampling)
    except NoSummary:
        text = None
    work.replace(upto, text)


async def compact(
    runtime: Runtime,
    conversation: Conversation,
    sampling: Sampling,
    emit: Emit,
    measures: Measures,
) -> None:
    """A person asks: all turns but the last are summarised. Raises NotCompacted."""
    work = _Work(runtime, conversation, emit, measures)
    if not work.starts:
        raise NotCompacted("There is nothing to compact: only the latest turn is in the prompt.")
    try:
        text = await work.summary(work.starts[-1], sampling)
    except NoSummary as error:
        raise NotCompacted(f"The conversation stays as it was: {error}.") from error
    work.replace(work.starts[-1], text)


def told(summary: str) -> str:
    """A summary as the model is told it."""
    return f"{SUMMARY}\n\n{summary}"


def full(runtime: Runtime, conversation: Conversation) -> bool:
    """The next generation would not have room."""
    return len(conversation.prompt(runtime.format)) > FULL * runtime.context_length


def least(runtime: Runtime, conversation: Conversation) -> int:
    """Tokens of the prompt that `make_room` cannot take away."""
    form, places = runtime.format, starts(runtime.format, conversation.entries)
    latest = conversation.entries[places[-1] if places else 0 :]
    left_out = form.developer(LEFT_OUT) if places[1:] else []
    fixed = len(conversation.head_ids) + len(left_out) + len(form.open_assistant())
    return min(fixed + _size(latest), len(conversation.prompt(form)))


def starts(form: Format, entries: Sequence[Entry]) -> list[int]:
    """Where turns begin: with what a user says, unless results of earlier calls come after it."""
    roles = _roles(form, entries)
    found = []
    for at, role in enumerate(roles):
        if role not in ("user", "developer") or roles[at - 1 : at] in (["user"], ["developer"]):
            continue
        after = next((i for i in range(at, len(roles)) if roles[i] not in _ASKING), len(roles))
        if "user" in roles[at:after] and roles[after : after + 1] != ["result"]:
            found.append(at)
    return found


_ASKING = ("user", "developer")


def _roles(form: Format, entries: Sequence[Entry]) -> list[Role]:
    """Of those that were kept without one: by what they begin with."""
    user, result = form.user("a"), form.result("f", "a")
    said, gave = alike(user, form.user("b")), alike(result, form.result("f", "b"))

    def role(entry: Entry) -> Role:
        if entry.role is not None:
            return entry.role
        if entry.ids[:said] != user[:said]:
            return "assistant"
        return "result" if entry.ids[:gave] == result[:gave] else "user"

    return [role(entry) for entry in entries]


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(entry.shown) for entry in entries)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _message(form: Format, text: str) -> list[int]:
    return form.developer(LEFT_OUT if text == LEFT_OUT else told(text))


def _recall(runtime: Runtime, conversation: Conversation) -> bool:
    """Whether the beginning was summarised before: a client may resend a whole history."""
    form, entries = runtime.format, conversation.entries
    found = runtime.summaries.longest(entries, starts(form, entries)[1:])
    if found is None or conversation.compacted is not None:
        return False
    upto, text = found
    conversation.compacted = Compacted(upto, text, _message(form, text))
    return True


class _Work:
    """One compaction; the conversation changes only at its end."""

    def __init__(
        self, runtime: Runtime, conversation: Conversation, emit: Emit, measures: Measures
    ) -> None:
        self._runtime, self._conversation = runtime, conversation
        self._emit, self._measures = emit, measures
        self._base = conversation.compacted.upto if conversation.compacted else 0
        places = starts(runtime.format, conversation.entries)
        self.starts = [at for at in places if at > self._base]
        """Where turns begin that something stands before in the prompt."""
        self._before = self._length()

    def latest(self) -> int | None:
        """Where the turns begin that stay whole: the last one, and those before it for which there
        is room. None: nothing stands before it."""
        if not self.starts:
            return None
        context, conversation = self._runtime.context_length, self._conversation
        last = upto = self.starts[-1]
        taken = len(conversation.head_ids) + most(context) + _size(conversation.entries[last:])
        room = min(LATEST * context, FULL * context - taken)
        for start in reversed(self.starts[:-1]):
            if _size(conversation.entries[start:last]) > room:
                break
            upto = start
        return upto

    def shorten(self, upto: int) -> bool:
        """Shorten the long results before ``upto``, if that is enough."""
        entries = self._conversation.entries
        shorter = self._shorter(upto)
        gone = sum(len(entries[at].ids) - len(ids) for at, ids in shorter.items())
        if self._before - gone >= ENOUGH * self._runtime.context_length:
            return False
        for at, ids in shorter.items():
            entries[at] = replace(entries[at], short=ids)  # others may have the same one
        self._tell(f"{_count(len(shorter), 'long result')} of tools shortened")
        return True

    def _shorter(self, upto: int) -> dict[int, list[int]]:
        """By their places."""
        conversation, form = self._conversation, self._runtime.format
        longest = min(LONG_RESULT, self._runtime.context_length // 16)
        whole = f"; the whole: agent sessions show {conversation.id}"
        return {
            at: shortened(form, entry, longest, whole if at < conversation.saved else "")
            for at, entry in enumerate(conversation.entries[self._base : upto], self._base)
            if entry.recipient and entry.short is None and len(entry.ids) > 2 * longest
        }

    async def summary(self, upto: int, sampling: Sampling) -> str:
        """The model's summary of what stands before ``upto``. Raises NoSummary, NotCompacted."""
        self._emit(ev.AgentNotice(level="info", message=f"Summarising {self._turns(upto)} …"))
        conversation, shorter = self._conversation, self._shorter(upto)
        old = conversation.view()[: upto - len(conversation.entries) or None]
        first = len(old) - upto
        for at, ids in shorter.items():
            old[first + at] = replace(old[first + at], ids=ids)
        aside = Measures()
        try:
            text = await summarise(
                self._runtime,
                conversation.head_ids,
                old,
                lambda text: _message(self._runtime.format, text),
                sampling,
                self._emit,
                aside,
            )
        except EngineError as error:
            raise NotCompacted(f"The conversation stays as it was: {error}") from error
        finally:
            self._measures.went_aside(aside.usage)
        if len(_message(self._runtime.format, text)) >= _size(old):
            raise NoSummary("the summary is not shorter than what it tells")
        return text

    def replace(self, upto: int, text: str | None) -> None:
        """The summary stands for what is before ``upto``; None: that is left out, but for an earlier
        summary."""
        earlier = self._conversation.compacted
        stands = text or LEFT_OUT
        if text is None and earlier is not None and earlier.text != LEFT_OUT:
            stands = f"{earlier.text.removesuffix(_FURTHER)}{_FURTHER}"
        ids = _message(self._runtime.format, stands)
        self._conversation.compacted = Compacted(upto, stands, ids)
        if text is None:
            self._tell(f"{self._turns(upto)} left out, for the model wrote no summary")
            return
        self._runtime.summaries.keep(self._conversation.entries[:upto], text)
        self._tell(f"{self._turns(upto)} summarised in {len(ids):,} tokens")

    def _turns(self, upto: int) -> str:
        return _count(sum(start <= upto for start in self.starts), "earlier turn")

    def _length(self) -> int:
        return len(self._conversation.prompt(self._runtime.format))

    def _tell(self, what: str) -> None:
        lengths = f"The prompt has {self._length():,} tokens now, {self._before:,} before."
        message = f"The conversation was compacted: {what}. {lengths}"
        self._emit(ev.AgentNotice(level="info", message=message))
