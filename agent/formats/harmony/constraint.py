"""Constrains decoding of Harmony: headers by grammars of their own, bodies by the body's grammar.

While a header is written, its grammar allows the kinds of message that may come next. At
``<|message|>`` the parser reports which segment has begun: a call's arguments or an answer may have a
grammar; other bodies are free text up to the id that ends them. With calls optional and no grammar for
the answer, headers are free too, unless only declared tools are allowed; what follows ``to=functions``
is a declared function all the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Set
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np
from openai_harmony import HarmonyEncoding

from agent.engine.grammars import (
    ANY_OBJECT,
    CompiledGrammar,
    Grammar,
    GrammarCompiler,
    GrammarError,
    Matcher,
)
from agent.engine.protocol import EngineBusyError
from agent.formats.harmony import token_ids
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.protocol import GenerationConstraints, Opened, SegmentKind
from agent.formats.recipients import PYTHON_TOOL, Recipients, header_name

if TYPE_CHECKING:
    from agent.engine.grammars import TokenIds

_NO_IDS: frozenset[int] = frozenset()
MAX_UNREAD_TOKENS = 64
"""Ordinary tokens that are parsed at once: not each by itself, nor all at the end of a message."""
_END_IDS = {
    SegmentKind.REASONING: token_ids.END_ID,
    SegmentKind.PREAMBLE: token_ids.END_ID,
    SegmentKind.FINAL: token_ids.RETURN_ID,
}
_TYPED = f'" "? <[{token_ids.CONSTRAIN_ID}]> "json"'
_COMMENTARY_RULE = 'channel: "commentary"'
_CALL_RULES = ('channel: "commentary" | "analysis"', f'kind: {_TYPED} | " json" | " code"')

_FINAL_ENDS = frozenset({token_ids.END_ID, token_ids.RETURN_ID})
_TYPE_IDS = (token_ids.CONSTRAIN_ID, token_ids.JSON_ID)
_HEADERS = {
    (token_ids.CHANNEL_ID, *words, token_ids.MESSAGE_ID): ends
    for words, ends in (
        ((token_ids.ANALYSIS_ID,), frozenset({token_ids.END_ID})),
        (token_ids.COMMENTARY_IDS, frozenset({token_ids.END_ID})),
        ((token_ids.FINAL_ID,), _FINAL_ENDS),
        ((token_ids.FINAL_ID, *_TYPE_IDS), _FINAL_ENDS),
        ((token_ids.FINAL_ID, token_ids.SPACE_ID, *_TYPE_IDS), _FINAL_ENDS),
    )
}
"""The headers after ``<|start|>assistant``, and the special ids that may end the message of each."""
_NEXT_HEADERS = tuple((token_ids.START_ID, token_ids.ASSISTANT_ID, *header) for header in _HEADERS)
_AFTER_ANSWER = ((token_ids.RETURN_ID,),)
"""Some models end an answer as any message, and would then write the user's next one."""
_NO_LIMIT = 2**62
_FRAME_TOKENS = 10
"""Tokens of an answer's header and end, at most."""


class HarmonyConstraint:
    """Constrains one Harmony generation; runs the format's own parser, to see the same messages."""

    def __init__(
        self,
        encoding: HarmonyEncoding,
        constraints: GenerationConstraints,
        recipients: Recipients,
        grammars: GrammarCompiler,
    ) -> None:
        self._parser = HarmonyParser(encoding, recipients)
        self._constraints, self._grammars = constraints, grammars
        self._strict = (
            constraints.declared_tools_only
            or constraints.calls != "may"
            or constraints.answer_grammar is not None
            or constraints.reasoning_until == 0
        )
        until = constraints.reasoning_until
        self._reasoning_until, self._may_reason = math.inf if until is None else until, until != 0
        self._headers = _HeaderGrammars(constraints, recipients, grammars)
        self._namespace_ids = encoding.encode(" to=functions")
        self._opened_kinds: set[SegmentKind] = set()
        self._unconstrained = not self._strict
        self.pending: Future[CompiledGrammar] | None = None
        """The grammar of the next tokens while it is being compiled."""
        self._matcher: Matcher | None = None
        self._end_ids = _NO_IDS
        """Ids that may end the body once its grammar is satisfied."""
        self._in_body = self._in_answer = False
        self._unread: list[int] = []
        """Ids that the parser has not seen yet, as they do not change what is allowed."""
        self._accepted = 0
        if self._strict:
            self._begin_header(started=True)

    # --- tokens ---------------------------------------------------------------------------------

    def accept(self, token: int) -> bool:
        if not (self._unconstrained or self._is_allowed(token)):
            return False
        self._accepted += 1
        self._unread.append(token)
        if token >= token_ids.FIRST_SPECIAL_ID or len(self._unread) == MAX_UNREAD_TOKENS:
            self._parser.feed(self._unread)
            self._unread.clear()
            if token >= token_ids.FIRST_SPECIAL_ID:
                self._on_special(token)
        elif (
            self._unconstrained
            and not self._in_body
            and self._headers.has_functions
            and self._unread[-len(self._namespace_ids) :] == self._namespace_ids
        ):  # a free header has just named the functions' namespace
            self._unconstrained = False
            self._constrain_by(self._headers.compile_function_name())
        return True

    def _is_allowed(self, token: int) -> bool:
        """Tell whether the token may come next; the grammar's matcher consumes it."""
        if self.pending is not None:
            self._begin_matcher(self.pending)
        if token in self._end_ids:
            return self._matcher is None or self._matcher.complete
        if self._in_body and token >= token_ids.FIRST_SPECIAL_ID:
            return False
        return self._matcher is None or self._matcher.accept(token)

    def allowed(self) -> TokenIds:
        if self.pending is not None:
            self._begin_matcher(self.pending)
        if self._unconstrained:
            return np.arange(token_ids.LAST_ID)
        matcher = self._matcher
        ids = np.arange(token_ids.LAST_ID) if matcher is None else matcher.allowed()
        if self._in_body:
            ids = ids[: ids.searchsorted(token_ids.FIRST_SPECIAL_ID)]
            if matcher is None or matcher.complete:
                ids = np.append(ids, list(self._end_ids))
        return ids

    def _on_special(self, token: int) -> None:
        opened = self._parser.open_segment
        if token == token_ids.MESSAGE_ID and opened is not None:
            self._begin_body(opened)
        elif opened is None and (self._in_body or token == token_ids.MESSAGE_ID):
            self._in_body = self._in_answer = False
            self._matcher, self._end_ids = None, _NO_IDS
            self._may_reason = self._may_reason and self._accepted < self._reasoning_until
            self._strict = self._strict or not self._may_reason
            self._unconstrained = not self._strict
            if self._strict and token == token_ids.END_ID:
                self._begin_header(started=False)

    def _begin_header(self, *, started: bool) -> None:
        """Constrain a header; ``started``: ``<|start|>assistant`` is written already."""
        kinds, reasons = self._opened_kinds, self._may_reason
        self._constrain_by(self._headers.compile(started, kinds, reasons=reasons))

    def _begin_body(self, opened: Opened) -> None:
        self._in_body, self._in_answer = True, opened.kind is SegmentKind.FINAL
        self._opened_kinds.add(opened.kind)
        self._end_ids = frozenset({_END_IDS.get(opened.kind, token_ids.CALL_ID)})
        grammar = self._body_grammar(opened)
        self._unconstrained = grammar is None and not self._strict
        self._constrain_by(grammar)

    def _constrain_by(self, grammar: Future[CompiledGrammar] | None) -> None:
        self._matcher, self.pending = None, grammar
        if grammar is not None and grammar.done():
            self._begin_matcher(grammar)

    def _begin_matcher(self, grammar: Future[CompiledGrammar]) -> None:
        self.pending = None
        try:
            limits = self._constraints.answer_limits if self._in_answer else None
            self._matcher = grammar.result().new_matcher(limits)
        except (GrammarError, EngineBusyError):  # of arguments: validated when the call has ended
            self._matcher = self._grammars.submit(ANY_OBJECT).result().new_matcher()

    def _body_grammar(self, opened: Opened) -> Future[CompiledGrammar] | None:
        match opened.kind:
            case SegmentKind.FINAL:
                return self._constraints.answer_grammar
            case SegmentKind.TOOL if opened.json or opened.recipient != PYTHON_TOOL:
                grammar = self._constraints.argument_grammars.get(opened.recipient or "")
                if grammar is None:
                    return None
                self._grammars.submit(ANY_OBJECT)  # ready if the other fails
                return self._grammars.submit(grammar)
            case _:
                return None


class _HeaderGrammars:
    def __init__(
        self, constraints: GenerationConstraints, recipients: Recipients, grammars: GrammarCompiler
    ) -> None:
        self._constraints, self._grammars = constraints, grammars
        self._names = [header_name(name) for name in recipients.declared]
        self.has_functions = any(name.startswith("functions.") for name in self._names)

    def compile_function_name(self) -> Future[CompiledGrammar]:
        """Compile the header after ``to=functions``; ``functions.python`` there means ``python``."""
        names = (json.dumps("." + name.removeprefix("functions.")) for name in self._names)
        lines = [
            f"start: ({' | '.join(names)}) (<[{token_ids.CHANNEL_ID}]> channel)?"
            f" kind? <[{token_ids.MESSAGE_ID}]>",
            *_CALL_RULES,
        ]
        return self._submit(lines)

    def _submit(self, lines: Iterable[str]) -> Future[CompiledGrammar]:
        return self._grammars.submit(Grammar("lark", "\n".join(lines), trusted=True))

    def compile(
        self, started: bool, opened_kinds: Set[SegmentKind], *, reasons: bool
    ) -> Future[CompiledGrammar]:
        """Compile a header; before a required call, one reasoning and one preamble are allowed, and
        before an answer with a grammar one reasoning."""
        constraints, must = self._constraints, self._constraints.calls == "must"
        further = constraints.calls == "further"
        kinds = {
            "reasoning": reasons
            and not further
            and not (must and opened_kinds & {SegmentKind.REASONING, SegmentKind.PREAMBLE})
            and not (constraints.answer_grammar and SegmentKind.REASONING in opened_kinds),
            "preamble": not further
            and constraints.answer_grammar is None
            and not (must and SegmentKind.PREAMBLE in opened_kinds),
            "answer": not must,
            "call": bool(self._names) and constraints.calls != "none",
        }
        allowed = " | ".join(kind for kind, is_allowed in kinds.items() if is_allowed)
        begin = "" if started else f'<[{token_ids.START_ID}]> "assistant" '
        kind = f"({_TYPED})?" if constraints.answer_grammar else ""
        names = " | ".join(map(json.dumps, self._names))
        lines = [
            f"start: {begin}({allowed})",
            f'reasoning: <[{token_ids.CHANNEL_ID}]> "analysis" <[{token_ids.MESSAGE_ID}]>',
            f'preamble: <[{token_ids.CHANNEL_ID}]> "commentary" <[{token_ids.MESSAGE_ID}]>',
            f'answer: <[{token_ids.CHANNEL_ID}]> "final" {kind} <[{token_ids.MESSAGE_ID}]>',
        ]
        if kinds["call"]:
            lines += [
                f"call: <[{token_ids.CHANNEL_ID}]> channel to kind? <[{token_ids.MESSAGE_ID}]>",
                f"    | to <[{token_ids.CHANNEL_ID}]> channel kind? <[{token_ids.MESSAGE_ID}]>",
                f'to: " to=" ({names})',
                *((_COMMENTARY_RULE, _CALL_RULES[1]) if further else _CALL_RULES),
            ]
        return self._submit(lines)


class AnswerConstraint:
    """The `Constraint` of one generation after ``<|start|>assistant`` that must not call. Headers are
    compared with the few that are allowed, id by id, and bodies are free text: nothing is compiled."""

    pending: None = None

    def __init__(self, max_tokens: int | None = None) -> None:
        """``max_tokens``: the budget; at most half of it precedes the answer, which ends within it."""
        self._tokens_left = max_tokens or _NO_LIMIT
        self._text_left = (max_tokens or 2 * _NO_LIMIT) // 2 - _FRAME_TOKENS
        """Tokens that the texts before the answer may have, in an answer: its own."""
        self._ends: frozenset[int] | None = None
        """The special ids that end the body; None in a header."""
        self._begin_header(tuple(_HEADERS))

    def _begin_header(self, headers: tuple[tuple[int, ...], ...]) -> None:
        self._written: tuple[int, ...] = ()
        self._headers = headers
        if self._text_left <= _FRAME_TOKENS and self._ends is not _FINAL_ENDS:
            self._headers = tuple(header for header in headers if token_ids.FINAL_ID in header)
        self._ends = None

    def accept(self, token: int) -> bool:
        if self._ends is None:
            accepted = self._accept_in_header(token)
        elif token < token_ids.FIRST_SPECIAL_ID:
            accepted = self._text_left > 0
            self._text_left -= accepted
        elif accepted := token in self._ends:
            self._begin_header(_AFTER_ANSWER if self._ends is _FINAL_ENDS else _NEXT_HEADERS)
        self._tokens_left -= accepted
        return accepted

    def _accept_in_header(self, token: int) -> bool:
        written = (*self._written, token)
        if not any(header[: len(written)] == written for header in self._headers):
            return False
        self._written = written
        if token == token_ids.MESSAGE_ID:
            self._ends = _HEADERS[written[written.index(token_ids.CHANNEL_ID) :]]
            if self._ends is _FINAL_ENDS:
                self._text_left = self._tokens_left - _FRAME_TOKENS
        return True

    def allowed(self) -> TokenIds:
        if self._ends is not None:
            text = np.arange(token_ids.FIRST_SPECIAL_ID if self._text_left > 0 else 0)
            return np.append(text, sorted(self._ends))
        written, n = self._written, len(self._written)
        following = {h[n] for h in self._headers if h[:n] == written and len(h) > n}
        return np.array(sorted(following), np.intp)
