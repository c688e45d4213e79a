"""The generations of a turn that is over, token by token, and a branch that takes another token in one.

A turn's conversation has messages; the model read and wrote generations::

    entries      user | reasoning | call | result | reasoning | answer
    generations         '--- 0 ---------'          '--- 1 ------------'

The ids are those of the turn's ``agent.tokens`` events where it has them: what the model sampled, with
probabilities if these were recorded. In the entries an answer ends as in a history, and markup that the
model left out is added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from agent import events as ev
from agent.conversation.conversation import Entry, next_format
from agent.formats.protocol import Format, SingleMessageFormat
from agent.turn.continuation import Continuation, items_before
from agent.util.prefix import common_prefix_length


class MessageStart(NamedTuple):
    """Where a message of a generation begins."""

    entry: int
    """Index of its entry among the turn's."""
    offset: int
    """Among the generation's ids, after its opening."""


@dataclass(frozen=True, slots=True)
class WrittenGeneration:
    """The model's output between two prompts."""

    entry: int
    """Index of its first entry among the turn's; where it would be, if it wrote no message."""
    ids: Sequence[int]
    """The ids after `Format.open_assistant`, including a given beginning."""
    starts: Sequence[MessageStart] = (MessageStart(0, 0),)
    """Starts of its messages; the first is always known."""
    logprobs: Sequence[ev.TokenProbability | None] = ()
    """One per id, None for what was begun or taken over; empty where they were not recorded."""


@dataclass(slots=True)
class _SampledBatch:
    entry: int
    """Number of the turn's entries when it began."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[ev.TokenProbability | None] = field(default_factory=list)


def written_generations(
    form: Format, entries: Sequence[Entry], events: Sequence[ev.Event] = ()
) -> list[WrittenGeneration]:
    """A turn's generations, in order. ``entries``: `with_reasoning`. ``events``: emitted or stored."""
    runs: list[tuple[int, int, list[_SampledBatch]]] = [(*run, []) for run in _runs(entries)]
    for batch in _sampled_batches(events):
        inside = (run for run in runs if run[0] <= batch.entry <= run[1])
        if (run := next(inside, None)) is None:  # it wrote no message
            runs.append(run := (batch.entry, batch.entry, []))
            runs.sort(key=lambda run: run[0])
        run[2].append(batch)
    generations = []
    for first, end, batches in runs:
        # A generation without a message was followed by another one in its place.
        last = {batch.entry: batch for batch in batches}
        silent = [batch for batch in batches if last[batch.entry] is not batch]
        generations += [_join(form, entries, first, batch.entry, [batch]) for batch in silent]
        generations.append(_join(form, entries, first, end, [*last.values()]))
    return generations


def _join(
    form: Format, entries: Sequence[Entry], first: int, end: int, batches: Sequence[_SampledBatch]
) -> WrittenGeneration:
    """Make one generation of the entries from ``first`` to ``end``. From the first of ``batches`` on,
    its ids are those that were sampled; a branch keeps what was before."""
    opening = next_format(form, entries[:first]).open_assistant()
    ids: list[int] = []
    starts: list[MessageStart] = []
    logprobs: list[ev.TokenProbability | None] = []
    places = [first, *(batch.entry for batch in batches), end]
    for batch, (begin, stop) in zip([None, *batches], pairwise(places), strict=True):
        piece: list[int] = []
        heads: list[MessageStart] = []
        for index in range(begin, stop):
            if index > begin and entries[index].ids[: len(opening)] == opening:
                heads.append(MessageStart(index, len(piece)))
            piece += entries[index].ids
        rows: list[ev.TokenProbability | None] = [None] * len(piece)
        if batch is not None:
            # An answer ends otherwise in the entries, and markup may have been added.
            alike = common_prefix_length(piece, sampled := [*opening, *batch.ids])
            heads = [head for head in heads if head.offset + len(opening) <= alike]
            piece, rows = sampled, [*[None] * len(opening), *batch.logprobs]
            rows += [None] * (len(piece) - len(rows))
        if piece:
            starts += [MessageStart(begin, len(ids))]
            starts += [MessageStart(head.entry, len(ids) + head.offset) for head in heads]
        ids += piece
        logprobs += rows
    if ids[: len(opening)] == opening:  # it is in the prompt
        del ids[: len(opening)], logprobs[: len(opening)]
    has_logprobs = any(batch.logprobs for batch in batches)
    return WrittenGeneration(
        first, ids, starts or [MessageStart(first, 0)], logprobs if has_logprobs else ()
    )


def _runs(entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Where the model wrote: the first entry and the one behind the last, of each generation."""

    def is_written(index: int) -> bool:
        return entries[index].role in ("assistant", "part") or entries[index].reasoning

    for written, indexes in groupby(range(len(entries)), is_written):
        if written:
            run = list(indexes)
            yield run[0], run[-1] + 1


def _sampled_batches(events: Sequence[ev.Event]) -> list[_SampledBatch]:
    batches: list[_SampledBatch] = []
    for event in events:
        if isinstance(event, ev.AgentTokens):
            if event.entry is not None:
                batches.append(_SampledBatch(event.entry))
            if batches:
                batches[-1].ids += event.ids
                batches[-1].logprobs += event.logprobs or ()
    return batches


def generation_prompt(
    form: Format, before: Sequence[int], entries: Sequence[Entry], generation: WrittenGeneration
) -> list[int]:
    """Return the prompt of a generation. ``before``: ids before the turn, as prompts have them."""
    turn = chain.from_iterable(entry.prompt_ids for entry in entries[: generation.entry])
    return [*before, *turn, *next_format(form, entries[: generation.entry]).open_assistant()]


def continue_with_token(
    form: Format,
    entries: Sequence[Entry],
    events: Sequence[ev.Event],
    generation: WrittenGeneration,
    index: int,
    token: int,
) -> Continuation:
    """Go on from ``generation.ids[:index]`` and any other token, also markup or one that ends the turn.
    Earlier calls are not run again. Raises ValueError for a wrong index or token."""
    if not form.token_bytes(token):
        raise ValueError(f"There is no token {token:,} in the model's vocabulary.")
    if not 0 <= index < len(generation.ids):
        raise ValueError(f"The model wrote {len(generation.ids):,} tokens, and none at {index:,}.")
    start = [start for start in generation.starts if start.offset <= index][-1]
    # Before the first is the turn's prompt.
    first = next((run for run, _ in _runs(entries)), len(entries))
    return Continuation(
        [*generation.ids[start.offset : index], token],
        entries[first : start.entry],
        items_before(events, _count_items(form, entries[: start.entry])),
    )


def _count_items(form: Format, entries: Sequence[Entry]) -> int:
    if isinstance(form, SingleMessageFormat):  # header, parts, ending
        return sum(end - first - 2 for first, end in _runs(entries))
    return sum(entry.role == "assistant" for entry in entries)
