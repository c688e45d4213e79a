"""The model's own summary of a part of a conversation, in pieces where that is too long for one go."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from agent import events as ev
from agent.conversation.conversation import Entry
from agent.engine.protocol import Finished, Prefill, Request, Sampling, Tokens, Waiting
from agent.formats.protocol import Closed, Delta, Format, Kind, Opened, Piece, Stop
from agent.formats.tokenizer_text import alike
from agent.turn.usage import Measures

if TYPE_CHECKING:
    from agent.runtime.runtime import Runtime

ASK = (
    "Before we go on: write a summary of our conversation until here. You will go on with it and"
    " see the summary alone, not the messages, so keep what I asked for and what was decided, facts,"
    " names, numbers, paths and code that still matter, what the tools found, and what is still to"
    " do. Call no tool. Answer with the summary only."
)
MOST = 4096
"""Tokens that the model may write for one summary, what it thinks included."""
REMEMBERED = 64
"""Summaries that are kept in memory."""
LEAST_ROOM = 64
"""Tokens; with less of the conversation at a time there is no summing up."""


class NoSummary(Exception):
    """The model wrote none; the message is part of a sentence."""


class Summaries:
    """Summaries by the very messages that they tell, for clients that resend a whole history."""

    def __init__(self) -> None:
        self._texts: OrderedDict[bytes, str] = OrderedDict()

    def keep(self, entries: Sequence[Entry], text: str) -> None:
        """``text`` tells what was said in ``entries``, the beginning of a conversation."""
        *_, digest = _digests(entries)
        self._texts[digest] = text
        while len(self._texts) > REMEMBERED:
            self._texts.popitem(last=False)

    def longest(self, entries: Sequence[Entry], places: Sequence[int]) -> tuple[int, str] | None:
        """The last of these places before which everything is summarised, and the summary."""
        digests = list(_digests(entries)) if self._texts else []
        for place in reversed(places) if digests else ():
            if (text := self._texts.get(digests[place - 1])) is not None:
                return place, text
        return None


def _digests(entries: Sequence[Entry]) -> Iterator[bytes]:
    """After each entry: of all ids until there."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(array("i", [len(entry.ids), *entry.ids]).tobytes())
        yield digest.digest()


def most(context: int) -> int:
    """Tokens that a summary may take of a context of this length."""
    return min(MOST, context // 6)


async def summarise(
    runtime: Runtime,
    head: Sequence[int],
    old: Sequence[Entry],
    message: Callable[[str], list[int]],
    sampling: Sampling,
    emit: Callable[[ev.Event], None],
    measures: Measures,
) -> str:
    """What was said in ``old``, after ``head``. Raises NoSummary, EngineError.

    Head and messages are the conversation's own, so that the engine has most of them in memory.
    ``message``: a summary as a message; each further piece is summarised together with it.
    ``measures``: where the generations are counted.
    """
    form, length = runtime.format, most(runtime.context_length)
    ask = form.user(ASK) + form.open_assistant()
    text, units = "", list(_units(old))
    while units:
        before = [*head, *(message(text) if text else [])]
        room = runtime.context_length - len(before) - len(ask) - length
        if room < LEAST_ROOM:
            raise NoSummary("the instructions and tools fill the context")
        piece: list[int] = []
        while units and (not piece or len(piece) + _size(units[0]) <= room):
            unit = units.pop(0)
            longest = room // len(unit)
            for entry in unit:
                whole = len(entry.ids) <= longest or _size(unit) <= room
                piece += entry.ids if whole else shortened(form, entry, longest)
        request = Request([*before, *piece, *ask], length, form.stop, _plain(sampling))
        text = await _write(runtime, request, emit, measures)
    return text


def _plain(sampling: Sampling) -> Sampling:
    """Without the penalties and biases that are meant for an answer."""
    s = sampling
    return Sampling(s.temperature, s.top_k, s.top_p, s.min_p, s.seed)


def shortened(form: Format, entry: Entry, most: int, where: str = "") -> list[int]:
    """Beginning and end of a long message, in about ``most`` tokens, and what was cut between them.

    ``where``: what else the mark says, such as where the whole is.
    """
    empty = form.user("") if entry.recipient is None else form.result(entry.recipient, "")
    header = alike(entry.ids, empty)
    first, last = max(2 * most // 3, header), most // 3
    gone = len(entry.ids) - first - last
    mark = form.plain(f" [… {gone:,} tokens were cut here to make room{where} …] ")
    if gone <= len(mark):
        return entry.ids
    return [*entry.ids[:first], *mark, *entry.ids[len(entry.ids) - last :]]


def _units(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """What stands together: a call and its results, the parts of a message."""
    unit: list[Entry] = []
    for entry in entries:
        if unit and entry.role not in ("result", "part"):
            yield unit
            unit = []
        unit.append(entry)
    if unit:
        yield unit


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(entry.ids) for entry in entries)


async def _write(
    runtime: Runtime, request: Request, emit: Callable[[ev.Event], None], measures: Measures
) -> str:
    """One generation's answer. Raises NoSummary, EngineError."""
    parser = runtime.format.parser(None)
    pieces: list[Piece] = []
    end: Finished | None = None
    generation = runtime.generate(request)
    try:
        async for event in generation:
            match event:
                case Prefill(done, total, cached):
                    emit(ev.AgentPrefill(done=done, total=total, cached=cached))
                case Waiting(message):
                    emit(ev.AgentNotice(level="info", message=message))
                case Tokens(ids) if not any(isinstance(piece, Stop) for piece in pieces[-8:]):
                    pieces += parser.feed(ids)
                    if any(isinstance(piece, Stop) for piece in pieces[-8:]):
                        generation.cancel()
                case Finished(output_tokens=output):
                    end = event
                    measures.generated(end, output, _thought(pieces))
    finally:
        generation.cancel()
    pieces += parser.finish()
    text, complete = _answer(pieces)
    if not complete or (end is not None and end.reason in ("length", "context")):
        raise NoSummary("the summary became too long")
    if not text:
        raise NoSummary("the model wrote no summary")
    return text


def _thought(pieces: Sequence[Piece]) -> int:
    """Tokens of reasoning."""
    kinds = [piece.kind for piece in pieces if isinstance(piece, Opened)]
    sizes = [piece.tokens for piece in pieces if isinstance(piece, Closed)]
    pairs = zip(kinds, sizes, strict=False)
    return sum(size for kind, size in pairs if kind is Kind.REASONING)


def _answer(pieces: Sequence[Piece]) -> tuple[str, bool]:
    """The text of the final messages, and whether they are whole."""
    chunks: list[str] = []
    kind, complete = Kind.FINAL, True
    for piece in pieces:
        match piece:
            case Opened(kind=kind):
                if kind is Kind.FINAL and chunks:
                    chunks.append("\n\n")
            case Delta(text) if kind is Kind.FINAL:
                chunks.append(text)
            case Closed(complete=whole):
                complete = complete and (whole or kind is not Kind.FINAL)
    return "".join(chunks).strip(), complete
