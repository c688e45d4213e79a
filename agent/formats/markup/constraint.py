"""Constrains decoding of markup in text: reasoning is free, and a grammar of the message follows it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from agent.engine.grammars import CompiledGrammar, Matcher
from agent.formats.markup.message_grammar import MessageGrammar
from agent.formats.markup.vocabulary import MarkupVocabulary

if TYPE_CHECKING:
    from agent.engine.grammars import TokenIds

_SPACE = b" \t\n"


class MarkupConstraint:
    """The `Constraint` of one generation of markup in text."""

    def __init__(
        self, grammar: MessageGrammar, vocabulary: MarkupVocabulary, *, thinking: bool
    ) -> None:
        """``thinking``: the prompt ended with the reasoning's tag."""
        self._grammar, self._vocabulary, syntax = grammar, vocabulary, grammar.message
        self._think, self._think_end = syntax.think.encode(), syntax.think_end.encode()
        self._entries = tuple(tag.encode() for tag in grammar.entries)
        specials = vocabulary.specials
        forbidden = () if grammar.may_call else tuple(grammar.entries)
        self._forbidden_ids = [specials[tag] for tag in forbidden if tag in specials]
        self._compiled: CompiledGrammar | None = None
        self._matcher: Matcher | None = None
        self.pending: Future[CompiledGrammar] | None = None
        """The grammar of the message while it is being compiled."""
        self._begun: list[int] | None = []
        """The message's tokens while it may begin with a tag."""
        self._tail = b""
        """The end of the reasoning."""
        self._accepted, self._thinking = 0, thinking and grammar.constraints.reasoning_until != 0
        if not self._thinking:
            self._begin_message(syntax.think_close.rstrip() if thinking else "", thought=thinking)

    def accept(self, token: int) -> bool:
        self._begin_matcher()
        if token in self._grammar.stop_ids:
            return self._may_stop
        if token >= self._vocabulary.size:
            return False
        if self._matcher is None:
            if token in self._forbidden_ids or self._overruns(token):
                return False
            self._tail = self._tail[-64:] + self._bytes(token)
            if self._think_end and self._think_end in self._tail:
                self._begin_message(thought=True)
        elif not self._matcher.accept(token):
            return False
        elif self._begun is not None:
            self._read_beginning(self._begun, token)
        self._accepted += 1
        return True

    def allowed(self) -> TokenIds:
        self._begin_matcher()
        stops = np.array(sorted(self._grammar.stop_ids), np.intp)
        if self._matcher is not None:
            ids = self._matcher.allowed()
        else:
            end, every_id = self._grammar.message.think_end, range(self._vocabulary.size)
            is_spelled = end and not self._grammar.special_in(end)
            more = [id for id in every_id if self._overruns(id)] if is_spelled else []
            refused = [*stops, *self._forbidden_ids, *more]
            ids = np.setdiff1d(np.arange(self._vocabulary.size), refused)
        return np.append(ids, stops) if self._may_stop else ids

    @property
    def _may_stop(self) -> bool:
        return self._matcher.complete if self._matcher else not self._grammar.is_structured

    def _bytes(self, token: int) -> bytes:
        return self._vocabulary.token_bytes(token) or b""

    def _overruns(self, token: int) -> bool:
        """Whether the token ends the reasoning and has a part of the message, too."""
        text = self._tail + self._bytes(token)
        return bool(self._think_end and text.partition(self._think_end)[2].strip(_SPACE))

    def _begin_message(self, before: str = "", *, thought: bool = False) -> None:
        until = self._grammar.constraints.reasoning_until
        thinks = until is None or self._accepted < until
        start = self._grammar.write(before, thinks=thinks, thought=thought)
        source, self._begun, self._tail = self._grammar.source, [], b""
        attempts = [lambda: source(start), lambda: source(start, exact=False)]
        if not self._grammar.is_structured:
            attempts.append(lambda: self._grammar.anything)  # validated when a call has ended
        self.pending = self._grammar.grammars.submit_first_usable(*attempts)

    def _begin_matcher(self) -> None:
        if self.pending is not None:
            pending, self.pending = self.pending, None
            self._compiled = pending.result()
            self._matcher = self._compiled.new_matcher(self._grammar.constraints.answer_limits)

    def _read_beginning(self, begun: list[int], token: int) -> None:
        """See whether reasoning or a call begins, for which the answer's limits are not meant."""
        assert self._compiled is not None
        begun.append(token)
        text = b"".join(self._bytes(one) for one in begun).lstrip(_SPACE)
        if self._think and text.startswith(self._think):
            self._matcher, self._begun, self._tail = None, None, text
        elif text.startswith(self._entries):
            self._matcher, self._begun = self._compiled.new_matcher(), None
            for one in begun:
                self._matcher.accept(one)
        elif len(text) > 64:
            self._begun = None
