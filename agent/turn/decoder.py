"""One generation's pieces, as they become items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent import events as ev
from agent.conversation.conversation import Entry, Span
from agent.engine.protocol import Logprob
from agent.formats.protocol import Closed, Delta, Kind, Opened, Parser, Piece, Repair, Stop
from agent.turn.logprobs import Spoken, shown
from agent.turn.output import MessageWriter, ReasoningWriter
from agent.turn.tool_calls import Call

if TYPE_CHECKING:
    from agent.turn.loop import Turn


class Pieces:
    """Takes the pieces of one generation, in order."""

    def __init__(self, turn: Turn, parser: Parser, read: list[Entry]) -> None:
        """``read``: what stands in the prompt since the generation before."""
        self.turn, self.read = turn, read
        self.since = len(turn.log.events)
        """Its events begin there."""
        self.ids: list[int] = []
        """What was generated, up to where it should have stopped."""
        self.stopped = False
        self.cut = False
        """The generation ended within a message."""
        self._parser = parser
        self._spoken = Spoken(turn.runtime.format)
        self.reasoning_tokens = 0
        self.spans: list[Span] = []
        self._kind = Kind.FINAL
        self._writer: ReasoningWriter | MessageWriter | Call | None = None

    @property
    def open(self) -> Kind | None:
        """What is being written right now."""
        return self._kind if self._writer is not None else None

    def feed(self, ids: Sequence[int], logprobs: Sequence[Logprob] | None = None) -> None:
        """The next ids; those that come after the stop do not count.

        ``logprobs``: one each. The ids are then parsed one by one, so that it is clear whose text
        a piece is; so they are where a call ends everything.
        """
        if logprobs is None and self.turn.options.parallel:
            self._feed(ids)
            return
        for place, token in enumerate(ids):
            if logprobs is not None:
                self._spoken.add(logprobs[place])
            self._feed([token])

    def _feed(self, ids: Sequence[int]) -> None:
        if not self.stopped:
            self.ids += ids
            for piece in self._parser.feed(ids):
                self._take(piece)

    def finish(self) -> None:
        """The generation ended: what is open is closed."""
        for piece in self._parser.finish():
            self._take(piece)

    def _take(self, piece: Piece) -> None:
        match piece:
            case Delta(text):
                assert self._writer is not None
                said = self._spoken.take(text)
                if isinstance(self._writer, MessageWriter):
                    self._writer.delta(text, shown(said, self.turn.runtime.format))
                else:
                    self._writer.delta(text)
            case Opened(kind=kind):
                self._kind = kind
                self._writer = self._open(piece)
            case Closed(complete, start, end, tokens):
                assert self._writer is not None
                if self._kind is Kind.REASONING:
                    self.turn.emit(ev.AgentReasoning(item_id=self._writer.id, tokens=tokens))
                    self.reasoning_tokens += tokens
                self._writer.close(complete)
                self.cut = not complete
                self.spans.append(Span(start, end, self._kind, complete, self._writer.id))
                if complete and isinstance(self._writer, Call):
                    self.stopped = self.stopped or not self.turn.options.parallel
                self._writer = None
            case Repair(rule, at, text):
                self.turn.emit(ev.AgentRepair(rule=rule, at=at, text=text))
            case Stop():
                self.stopped = True

    def _open(self, opened: Opened) -> ReasoningWriter | MessageWriter | Call:
        match opened.kind:
            case Kind.REASONING:
                return ReasoningWriter(self.turn.output)
            case Kind.PREAMBLE:
                return MessageWriter(self.turn.output, "commentary")
            case Kind.FINAL:
                return MessageWriter(self.turn.output, "final_answer")
            case Kind.TOOL | Kind.TOOL_UNKNOWN:
                return self.turn.calls.open(opened)
