"""Turns the ids of one generation into items: ids → parser → writers → events.

A plain request needs only these. Each option of a request is an object of its own, made for that
request alone: `LogprobBuffer`, `Hedge`, `StopSequences`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agent import events as ev
from agent.conversation.conversation import Span
from agent.engine.json_bounds import find_period
from agent.engine.protocol import Logprob, LoopLimits
from agent.formats import protocol
from agent.turn.context import TurnContext
from agent.turn.logprobs import LogprobBuffer, part_logprobs, recorded_logprob
from agent.turn.output import MessageWriter, ReasoningWriter
from agent.turn.stop_sequences import StopSequences
from agent.turn.tool_calls import ToolCall

HEDGE = "I am not sure of this: check the answer, or ask in other words."
"""End of an answer if the model was unsure. The program adds it, not the model."""
CALL_HEDGE = "I am not sure of this call: check it, or ask in other words."
"""The message that follows calls of the client's then."""
_MESSAGE_KINDS = (protocol.SegmentKind.PREAMBLE, protocol.SegmentKind.FINAL)
_CHECK_INTERVAL_TOKENS = 32
_MAX_BLANKS = 64
"""Pieces of white space after which a message is written that has nothing else so far."""


class Hedge:
    """Watches the tokens of a turn's generations for one that is less likely than ``below``."""

    def __init__(self, below: float) -> None:
        """``below``: a probability, above 0."""
        self._below = math.log(below)
        self.is_unsure = False

    def watch(self, logprobs: Sequence[Logprob | None]) -> None:
        if not self.is_unsure:
            self.is_unsure = any(row and row.logprob < self._below for row in logprobs)


def is_code_or_table(text: str) -> bool:
    """Whether Markdown that grows ends within a code block or a table."""
    lines = text.rsplit("\n", 2)
    return text.count("```") % 2 == 1 or any(line.lstrip().startswith("|") for line in lines[-2:])


class GenerationDecoder:
    """Takes the ids of one generation, in order."""

    def __init__(
        self,
        context: TurnContext,
        parser: protocol.Parser,
        open_call: Callable[[protocol.Opened], ToolCall],
        *,
        token_entry: int | None = None,
        hedge: Hedge | None = None,
        hedges_answer: bool = False,
        answer_is_bounded: bool = False,
    ) -> None:
        """``token_entry``: where ``agent.tokens`` comes before the events of its ids, the number of the
        turn's messages. ``hedge``: watches the turn's tokens. ``hedges_answer``: an answer ends with
        `HEDGE` if the model was unsure. ``answer_is_bounded``: the grammar ends endless ones."""
        self._context, self._parser, self._open_call = context, parser, open_call
        self._format, options = context.format, context.options
        self._token_entry, self._hedge, self._hedges_answer = token_entry, hedge, hedges_answer
        self._answer_is_bounded = answer_is_bounded
        self.ids: list[int] = []
        """The generated ids, up to where the message stopped."""
        self.stopped = False
        """The message has ended; the generation should."""
        self.was_generated = True
        """False if all of it was begun, and no engine asked."""
        self.looped = False
        """The generation repeats itself; it should end."""
        self.incomplete = False
        """The generation ended within a message."""
        self.reasoning_tokens = 0
        self.spans: list[Span] = []
        """The finished messages among the ids."""
        self._loop_limits = options.loop_limits
        self._next_loop_check = _CHECK_INTERVAL_TOKENS
        """Tokens of the generation from which it is looked at again."""
        self._logprobs = None if options.logprobs is None else LogprobBuffer(self._format)
        self._ends_within_batch = bool(options.stop) or not options.parallel_tool_calls
        self._stop_sequences: StopSequences | None = None
        """Watches the open segment, where it is a message that a sequence ends."""
        self.is_prefix = False
        """Whether the next ids are a prefix, which was not generated: no sequence ends it."""
        self._kind, self._start = protocol.SegmentKind.FINAL, 0
        self._writer: ReasoningWriter | MessageWriter | ToolCall | None = None
        self._unwritten: protocol.Opened | None = None
        """An open message that is empty so far: it becomes an item with its first text."""
        self._blanks: list[tuple[str, list[dict[str, Any]]]] = []
        """Its white space, with log probabilities."""

    @property
    def open_kind(self) -> protocol.SegmentKind | None:
        """The kind of the open message; None between messages."""
        return self._kind if self._writer is not None or self._unwritten is not None else None

    def spans_if_interrupted(self) -> list[Span]:
        spans = list(self.spans)
        if (kind := self.open_kind) is not None:
            start = spans[-1].end if spans else 0
            spans.append(Span(start, len(self.ids), kind, False, ""))
        return spans

    def feed(self, ids: Sequence[int], logprobs: Sequence[Logprob | None] | None = None) -> None:
        """Take the next ids; those after the stop are dropped. ``logprobs``: one per id, None: unknown.
        With these, or where the first call or a text ends the generation, ids are parsed one by one."""
        if self._hedge is not None and logprobs is not None:
            self._hedge.watch(logprobs)
        if self._ends_within_batch or (self._logprobs is not None and logprobs is not None):
            for index, token in enumerate(ids):
                row = logprobs and logprobs[index : index + 1]
                if row and self._logprobs is not None:
                    # With the alternatives that the client asked for.
                    top = self._context.options.logprobs
                    self._logprobs.add(token, row[0] and replace(row[0], top=row[0].top[:top]))
                self._parse([token], row)
        else:
            self._parse(ids, logprobs)

    def _parse(self, ids: Sequence[int], logprobs: Sequence[Logprob | None] | None) -> None:
        if self.stopped:
            return
        self.ids += ids
        if self._token_entry is not None and ids:
            self._emit_tokens(ids, logprobs, self._token_entry)
        for event in self._parser.feed(ids):
            self._on_event(event)
            if self._stop_sequences is not None and self.is_cut:
                return
        if self._loop_limits is not None and len(self.ids) >= self._next_loop_check:
            self._next_loop_check = len(self.ids) + _CHECK_INTERVAL_TOKENS
            self.looped = self.looped or self._loops(self._loop_limits)

    def _emit_tokens(
        self, ids: Sequence[int], logprobs: Sequence[Logprob | None] | None, entry: int
    ) -> None:
        rows: list[ev.TokenProbability | None] | None = None
        if self._context.options.token_probabilities:
            rows = [*map(recorded_logprob, logprobs or [None] * len(ids))]
        first = entry if len(self.ids) == len(ids) else None
        # Ours: nothing to validate.
        event = ev.AgentTokens.model_construct(ids=list(ids), logprobs=rows, entry=first)
        self._context.emit(event)

    def _loops(self, limits: LoopLimits) -> bool:
        """Whether the open message repeats itself without end: its latest tokens are one period over
        and over. Text that ends (a list, a poem) is rarely exact for that long; code and tables may
        repeat for longer. Text that a JSON Schema demands is never checked: the grammar ends it."""
        if (writer := self._writer) is None:
            return False
        is_call = isinstance(writer, ToolCall)
        if is_call or (self._kind is protocol.SegmentKind.FINAL and self._answer_is_bounded):
            # Not closed: the schema allows no end, or it is a call, which is cut off instead.
            is_too_long = len(self.ids) - self._start > 4 * limits.max_json_tokens
            if is_too_long or not is_call:
                return is_too_long
        if find_period(self.ids, limits, limits.min_tokens) is None:
            return False
        if not isinstance(writer, ToolCall) and not is_code_or_table(writer.text):
            return True
        return find_period(self.ids, limits, limits.min_code_tokens) is not None

    def finish(self) -> None:
        if self.is_cut:
            return
        for event in self._parser.finish():
            self._on_event(event)

    def _on_event(self, event: protocol.ParseEvent) -> None:
        match event:
            case protocol.Delta(text):
                if self._logprobs is None and self._stop_sequences is None and self._writer:
                    self._writer.delta(text)
                else:
                    self._on_text(text)
            case protocol.Opened(kind=kind):
                self._kind, self._start = kind, len(self.ids)
                if kind in _MESSAGE_KINDS:
                    self._unwritten = event
                else:
                    self._writer = self._open_item(event)
                stop = self._context.options.stop if kind in _MESSAGE_KINDS else ()
                self._stop_sequences = StopSequences(stop) if stop else None
            case protocol.Closed(complete, start, end, tokens):
                if self._unwritten is not None:
                    if complete and self.was_generated:  # it says nothing
                        self._unwritten, self._blanks, self.incomplete = None, [], False
                        return
                    self._write_unwritten(self._unwritten)
                assert self._writer is not None
                if isinstance(self._writer, MessageWriter) and self._stop_sequences is not None:
                    for piece in self._stop_sequences.flush():
                        self._writer.delta(piece.text, piece.logprobs)
                if self._kind is protocol.SegmentKind.REASONING:
                    self._context.emit(ev.AgentReasoning(item_id=self._writer.id, tokens=tokens))
                    self.reasoning_tokens += tokens
                is_answer = self._kind is protocol.SegmentKind.FINAL and complete
                if is_answer and self._hedges_answer and self._hedge and self._hedge.is_unsure:
                    self._writer.delta(f"\n\n{HEDGE}")  # the client reads it, the model never does
                if isinstance(self._writer, ToolCall):
                    self._writer.close(complete, at=len(self.ids))
                else:
                    self._writer.close(complete)
                self.incomplete = not complete
                self.spans.append(Span(start, end, self._kind, complete, self._writer.id))
                if complete and isinstance(self._writer, ToolCall):
                    self.stopped = self.stopped or not self._context.options.parallel_tool_calls
                self._writer = None
            case protocol.Repair(rule, at, text):
                self._context.emit(ev.AgentRepair(rule=rule, at=at, text=text))
            case protocol.Stop():
                self.stopped = True

    def _on_text(self, text: str) -> None:
        """Write text of a message that is empty so far, or with what is known of its tokens."""
        logprobs = self._logprobs.take(text) if self._logprobs is not None else None
        is_message = self._kind in _MESSAGE_KINDS
        parts = part_logprobs(logprobs, self._format) if logprobs and is_message else []
        if self._unwritten is not None:
            self._blanks.append((text, parts))
            is_blank = not text.strip() and len(self._blanks) < _MAX_BLANKS
            if not is_blank or self._stop_sequences is not None:
                self._write_unwritten(self._unwritten)
        elif isinstance(self._writer, MessageWriter):
            self._write(self._writer, text, parts)
        else:
            assert self._writer is not None
            self._writer.delta(text)

    @property
    def is_cut(self) -> bool:
        """Whether the answer was ended by a sequence; nothing of the generation counts after it."""
        return self._stop_sequences is not None and self._stop_sequences.cut_off is not None

    def _write_unwritten(self, opened: protocol.Opened) -> None:
        self._unwritten, self._writer = None, self._open_item(opened)
        blanks, self._blanks = self._blanks, []
        assert isinstance(self._writer, MessageWriter)
        for text, logprobs in blanks:
            self._write(self._writer, text, logprobs)

    def _write(self, writer: MessageWriter, text: str, logprobs: list[dict[str, Any]]) -> None:
        """Write a piece of a message, up to where a sequence ends it."""
        if (sequences := self._stop_sequences) is None or self.is_prefix:
            writer.delta(text, logprobs)
            return
        for piece in sequences.feed(text, logprobs):
            writer.delta(piece.text, piece.logprobs)
        if sequences.cut_off is not None:
            self._context.response.stop_sequence = sequences.reached
            self._cut_ids(len(sequences.cut_off.encode()))
            writer.close(True)
            start = self.spans[-1].end if self.spans else 0
            self.spans.append(Span(start, len(self.ids), self._kind, True, writer.id))
            self._writer, self.stopped = None, True

    def _cut_ids(self, size: int) -> None:
        """Remove the last ``size`` bytes of text from the ids: the history has what the client got."""
        while size > 0 and self.ids:
            raw = self._format.token_bytes(self.ids.pop())
            if len(raw) > size:
                self.ids += self._format.encode_text(raw[:-size].decode(errors="ignore"))
            size -= len(raw)

    def _open_item(self, opened: protocol.Opened) -> ReasoningWriter | MessageWriter | ToolCall:
        output, options = self._context.output, self._context.options
        match opened.kind:
            case protocol.SegmentKind.REASONING:
                encrypted = options.encrypted_reasoning
                return ReasoningWriter(output, options.reasoning_summary, encrypted=encrypted)
            case protocol.SegmentKind.PREAMBLE:
                return MessageWriter(output, "commentary")
            case protocol.SegmentKind.FINAL:
                return MessageWriter(output, "final_answer")
            case protocol.SegmentKind.TOOL | protocol.SegmentKind.TOOL_UNKNOWN:
                return self._open_call(opened)
