"""The model's own summary of a part of a conversation, chunk by chunk where that part is too long."""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent import events as ev
from agent.conversation.conversation import Entry, affinity_tokens
from agent.engine.protocol import Finished, Generation, Prefill, Request, Sampling, Tokens, Waiting
from agent.errors import AgentError
from agent.formats.protocol import (
    Closed,
    Delta,
    Format,
    GenerationConstraints,
    Opened,
    ParseEvent,
    SegmentKind,
    Stop,
)
from agent.formats.recipients import Recipients
from agent.util.prefix import common_prefix_length

SUMMARY_PROMPT = (
    "Before we continue: write a summary of our conversation until here. You will continue from"
    " it and see the summary alone, not the messages, so keep what I asked for and what was"
    " decided, facts, names, numbers, paths and code that still matter, what the tools found, and"
    " what is still to do. Call no tool. Answer with the summary only."
)
MAX_SUMMARY_TOKENS = 4096
"""Tokens that the model may write for one summary, reasoning included."""
SUMMARIES_PER_CONTEXT = 6
"""Number of summaries of the longest size that fit into a short context."""
MAX_CACHED_SUMMARIES = 64
MIN_CHUNK_TOKENS = 64
"""Tokens of the conversation that one generation has to be able to summarise."""


class NoSummaryError(AgentError):
    """The model wrote no summary; the message is a part of a sentence."""


class SummaryCache:
    """Summaries by the ids that they summarise, for clients that resend a whole history."""

    def __init__(self) -> None:
        self._texts: OrderedDict[bytes, str] = OrderedDict()

    def put(self, entries: Sequence[Entry], text: str) -> None:
        *_, digest = _prefix_digests(entries)
        self._texts[digest] = text
        while len(self._texts) > MAX_CACHED_SUMMARIES:
            self._texts.popitem(last=False)

    def longest_prefix(
        self, entries: Sequence[Entry], ends: Sequence[int]
    ) -> tuple[int, str] | None:
        """The last of ``ends`` (indexes > 0, ascending) with a summary of all before it, and that."""
        digests = list(_prefix_digests(entries)) if self._texts else []
        for end in reversed(ends) if digests else ():
            if (text := self._texts.get(digests[end - 1])) is not None:
                return end, text
        return None


@dataclass(frozen=True, slots=True)
class Generator:
    """The loaded model, as compaction and summaries use it."""

    format: Format
    context_length: int
    generate: Callable[[Request], Generation]
    """Starts a generation. Raises EngineError."""
    summaries: SummaryCache
    sampling: Sampling
    emit: Callable[[ev.Event], None]
    on_generation: Callable[[Finished, int, int], None]
    """Counts a generation: its end, its output tokens, and its reasoning tokens among them."""


def _prefix_digests(entries: Sequence[Entry]) -> Iterator[bytes]:
    """After each entry: the digest of all ids up to its end."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(array("i", [len(entry.ids), *entry.ids]).tobytes())
        yield digest.digest()


def summary_tokens(context_length: int) -> int:
    return min(MAX_SUMMARY_TOKENS, context_length // SUMMARIES_PER_CONTEXT)


async def summarise(
    generator: Generator,
    head: Sequence[int],
    entries: Sequence[Entry],
    render_summary: Callable[[str], list[int]],
) -> str:
    """Have the model summarise ``entries``, chunk by chunk where they do not fit after ``head``. The
    prompts begin like the conversation's, so that most of them is in the engine's memory.
    ``render_summary``: a summary as a message's ids. Raises NoSummaryError, EngineError."""
    form, length = generator.format, summary_tokens(generator.context_length)
    question = form.user_message(SUMMARY_PROMPT) + form.open_assistant()
    # It must not call, and has to end in time.
    constraints, nobody = GenerationConstraints("none", max_tokens=length), Recipients(())
    text, units = "", _units(entries)
    while units:
        before = [*head, *(render_summary(text) if text else [])]
        room = generator.context_length - len(before) - len(question) - length
        if room < MIN_CHUNK_TOKENS:
            raise NoSummaryError("the instructions and tools fill the context")
        chunk: list[int] = []
        while units and (not chunk or len(chunk) + _size(units[0]) <= room):
            unit = units.pop(0)
            limit = room // len(unit)
            for entry in unit:
                fits = len(entry.ids) <= limit or _size(unit) <= room
                chunk += entry.ids if fits else shorten_entry(form, entry, limit)
        request = Request(
            [*before, *chunk, *question],
            length,
            form.stop_ids,
            without_penalties(generator.sampling),
            head_tokens=len(head),
            affinity_tokens=affinity_tokens(head, entries),
            private=True,  # it does not come again
            constraint=form.new_constraint(constraints, nobody),
            constraint_spec=lambda: constraints.spec(nobody, ()),
        )
        text = await _generate_summary(generator, request)
    return text


def without_penalties(sampling: Sampling) -> Sampling:
    """The same without the penalties and biases, which are meant for an answer."""
    s = sampling
    return Sampling(s.temperature, s.top_k, s.top_p, s.min_p, s.seed)


def shorten_entry(form: Format, entry: Entry, limit: int, note: str = "") -> list[int]:
    """Both ends of a long message in about ``limit`` tokens; ``note`` is added to the mark between."""
    recipient = entry.recipient
    empty = form.user_message("") if recipient is None else form.tool_result(recipient, "")
    header = common_prefix_length(entry.ids, empty)
    first, last = max(2 * limit // 3, header), limit // 3
    dropped = len(entry.ids) - first - last
    mark = form.encode_text(f" [… {dropped:,} tokens were cut here to make room{note} …] ")
    if dropped <= len(mark):
        return entry.ids
    return [*entry.ids[:first], *mark, *entry.ids[len(entry.ids) - last :]]


def _units(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Groups of entries that stay together: a call and its results, the parts of a message."""
    roles = [entry.role for entry in entries]
    starts = [at for at, role in enumerate(roles) if not at or role not in ("result", "part")]
    return [entries[start:end] for start, end in pairwise([*starts, len(entries)])]


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(entry.ids) for entry in entries)


async def _generate_summary(generator: Generator, request: Request) -> str:
    emit = generator.emit
    parser = generator.format.parser(None)
    parsed: list[ParseEvent] = []
    end: Finished | None = None
    generation = generator.generate(request)
    try:
        async for event in generation:
            match event:
                case Prefill(done, total, cached):
                    emit(ev.AgentPrefill(done=done, total=total, cached=cached))
                case Waiting(message):
                    emit(ev.AgentNotice(level="info", message=message))
                case Tokens(ids) if not any(isinstance(e, Stop) for e in parsed[-8:]):
                    parsed += parser.feed(ids)
                    if any(isinstance(e, Stop) for e in parsed[-8:]):
                        generation.cancel()
                case Finished(output_tokens=output):
                    end = event
                    generator.on_generation(end, output, _reasoning_tokens(parsed))
    finally:
        generation.cancel()
    parsed += parser.finish()
    text, complete = final_text(parsed)
    if not complete or (end is not None and end.reason in ("length", "context")):
        raise NoSummaryError("the summary became too long")
    if not text:
        raise NoSummaryError("the model's summary was empty")
    return text


def _reasoning_tokens(parsed: Sequence[ParseEvent]) -> int:
    kinds = [event.kind for event in parsed if isinstance(event, Opened)]
    sizes = [event.tokens for event in parsed if isinstance(event, Closed)]
    pairs = zip(kinds, sizes, strict=False)
    return sum(size for kind, size in pairs if kind is SegmentKind.REASONING)


def final_text(parsed: Sequence[ParseEvent]) -> tuple[str, bool]:
    """The text of the final messages, and whether all of them are complete."""
    chunks: list[str] = []
    kind, all_complete = SegmentKind.FINAL, True
    for event in parsed:
        match event:
            case Opened(kind=kind):
                if kind is SegmentKind.FINAL and chunks:
                    chunks.append("\n\n")
            case Delta(text) if kind is SegmentKind.FINAL:
                chunks.append(text)
            case Closed(complete=complete):
                all_complete = all_complete and (complete or kind is not SegmentKind.FINAL)
    return "".join(chunks).strip(), all_complete
