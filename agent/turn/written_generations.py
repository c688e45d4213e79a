"""The generations of a turn that is over, token by token, and a branch that takes another token in one.

A turn's conversation has messages; the model read and wrote generations::

    entries      user | reasoning | call | result | reasoning | answer
    generations         '--- 0 ---------'          '--- 1 ------------'

The ids are those of the turn's ``agent.tokens`` events where it has them: what the model sampled, with
probabilities if these were recorded. In the entries an answer ends as in a history, and markup that the
model left out is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from agent import events as ev
from agent.conversation.conversation import Entry
from agent.formats.protocol import Format, SingleMessageFormat
from agent.turn.continuation import Continuation, items_before
from agent.util.prefix import common_prefix_length


@dataclass(frozen=True, slots=True)
class WrittenGeneration:
    """What the model wrote between two prompts."""

    entry: int
    """Index of its first entry among the turn's."""
    ids: Sequence[int]
    """What follows `Format.open_assistant`, also what was begun for the model."""
    starts: Sequence[int] = (0,)
    """Where its messages begin in ``ids``, each after its opening."""
    logprobs: Sequence[ev.TokenProbability | None] = ()
    """One per id, None for what was begun for the model or kept from another turn; empty where they
    were not recorded."""


def written_generations(
    form: Format, entries: Sequence[Entry], events: Sequence[ev.Event] = ()
) -> list[WrittenGeneration]:
    """The generations of a turn, in order.

    ``entries``: the turn's, its reasoning included (`agent.turn.continuation.with_reasoning`).
    ``events``: the turn's, as they were emitted or stored.
    """
    sampled = [batch for batch in _generations_of(events) if batch.ids]
    runs = list(_runs(entries))
    earlier = len(runs) - len(sampled)  # what a branch goes on from is an earlier turn's
    generations = []
    for number, (first, end) in enumerate(runs):
        ids, starts = _join(form, entries[first:end])
        logprobs: list[ev.TokenProbability | None] = []
        if 0 <= earlier <= number:
            batch = sampled[number - earlier]
            exact, kept = batch.ids, 0
            if number == earlier:  # a branch keeps what was written before its message
                kept = _start_of(exact, ids, starts)
            logprobs = [*[None] * kept, *batch.logprobs] if batch.logprobs else []
            # All but the end is alike, unless markup was added.
            same = exact[:-1] == ids[kept : kept + len(exact) - 1]
            ids = [*ids[:kept], *exact]
            starts = [at for at in starts if at <= kept or (same and at < len(ids))]
        generations.append(WrittenGeneration(first, ids, starts, logprobs))
    return generations


def _start_of(exact: Sequence[int], ids: Sequence[int], starts: Sequence[int]) -> int:
    """Which of ``starts`` the message has in ``ids`` that ``exact`` begins with."""

    def likeness(start: int) -> tuple[int, int]:
        rest = ids[start:]
        return common_prefix_length(exact, rest), -abs(len(rest) - len(exact))

    return max(starts, key=likeness)


def _runs(entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """Where the model wrote: the first entry and the one behind the last, of each generation."""
    first = None
    for index, entry in enumerate(entries):
        is_written = entry.role in ("assistant", "part") or entry.reasoning
        if is_written and first is None:
            first = index
        elif not is_written and first is not None:
            yield first, index
            first = None
    if first is not None:
        yield first, len(entries)


def _join(form: Format, entries: Sequence[Entry]) -> tuple[list[int], list[int]]:
    """The ids of a generation, and where its messages begin."""
    opening = form.open_assistant()
    ids: list[int] = []
    starts: list[int] = []
    for entry in entries:
        if entry.ids[: len(opening)] == opening:
            starts.append(len(ids))
        ids += entry.ids
    if ids[: len(opening)] == opening:
        del ids[: len(opening)]
    return ids, [0, *starts[1:]]


def _generations_of(events: Sequence[ev.Event]) -> Iterator[ev.AgentTokens]:
    """The tokens of each generation that the events have, if they have any.

    A turn that runs, or has run here, has prompts between them. A stored one does not: there, what
    was begun for a generation (None) or the reading of its prompt separates it from the one before.
    """
    ids: list[int] = []
    logprobs: list[ev.TokenProbability | None] = []
    for event in events:
        is_new = isinstance(event, ev.AgentPrompt)
        if logprobs and logprobs[-1] is not None:
            is_new = is_new or isinstance(event, ev.AgentPrefill)
            if isinstance(event, ev.AgentTokens) and event.logprobs is not None:
                is_new = event.logprobs[0] is None
        if is_new:
            yield ev.AgentTokens.model_construct(ids=ids, logprobs=logprobs)
            ids, logprobs = [], []
        if isinstance(event, ev.AgentTokens):
            ids += event.ids
            logprobs += event.logprobs or ()
    yield ev.AgentTokens.model_construct(ids=ids, logprobs=logprobs)


def generation_prompt(
    form: Format, before: Sequence[int], entries: Sequence[Entry], generation: WrittenGeneration
) -> list[int]:
    """What a generation read.

    ``before``: the ids of the conversation before the turn, as its prompts have them. ``entries``: the
    turn's.
    """
    turn = chain.from_iterable(entry.prompt_ids for entry in entries[: generation.entry])
    return [*before, *turn, *form.open_assistant()]


def continue_with_token(
    form: Format,
    entries: Sequence[Entry],
    events: Sequence[ev.Event],
    generation: WrittenGeneration,
    index: int,
    token: int,
) -> Continuation:
    """Go on from ``generation.ids[:index]`` and another token, which may be any: also markup, or one
    that ends the turn. Calls before it are not run again.

    ``entries``, ``events``: the turn's. Raises ValueError for an index that the generation does not
    have, or a token that does not exist.
    """
    if not form.token_bytes(token):
        raise ValueError(f"There is no token {token:,} in the model's vocabulary.")
    if not 0 <= index < len(generation.ids):
        raise ValueError(f"The model wrote {len(generation.ids):,} tokens, and none at {index:,}.")
    number, start = max(
        (n, start) for n, start in enumerate(generation.starts) if n == 0 or start <= index
    )
    first = next(run for run, _ in _runs(entries))  # before it is the turn's prompt
    at = generation.entry + number
    return Continuation(
        [*generation.ids[start:index], token],
        entries[first:at],
        items_before(events, _count_items(form, entries[:at])),
    )


def _count_items(form: Format, entries: Sequence[Entry]) -> int:
    """How many items the model's messages are."""
    if isinstance(form, SingleMessageFormat):  # header, parts, ending
        return sum(end - first - 2 for first, end in _runs(entries))
    return sum(entry.role == "assistant" for entry in entries)
