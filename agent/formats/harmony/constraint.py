"""Holds a generation to its rules, where Harmony's own structure says which of them applies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Future

import numpy as np
from openai_harmony import HarmonyEncoding

from agent.engine.grammars import (
    ANY_OBJECT,
    Compiled,
    Grammar,
    GrammarError,
    Grammars,
    Ids,
    Matcher,
)
from agent.formats.constraints import Rules
from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.renderer import header_name
from agent.formats.harmony.token_ids import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    LAST,
    MESSAGE,
    ORDINARY,
    RETURN,
    START,
)
from agent.formats.protocol import Kind, Opened
from agent.formats.recipients import Recipients

NOTHING: frozenset[int] = frozenset()
UNREAD = 64
"""Tokens after which the parser reads on in any case, so that no message costs much at its end."""
_ENDS = {Kind.REASONING: END, Kind.PREAMBLE: END, Kind.FINAL: RETURN}


class HarmonyGuide:
    """A Constraint. It reads along with the format's own parser, so both see the same messages."""

    def __init__(
        self, encoding: HarmonyEncoding, rules: Rules, recipients: Recipients, grammars: Grammars
    ) -> None:
        self._parser = HarmonyParser(encoding, recipients)
        self._rules, self._grammars = rules, grammars
        self._exact = rules.exact or rules.calls != "may" or rules.answer is not None
        self._headers = _Headers(rules, recipients, grammars)
        self._said: set[Kind] = set()
        self._free = not self._exact
        """Anything may come."""
        self.pending: Future[Compiled] | None = None
        """The grammar of what comes next, where it is not there yet."""
        self._matcher: Matcher | None = None
        self._ends = NOTHING
        """Ids that may end the body, once its grammar is satisfied."""
        self._in_body = False
        self._unread: list[int] = []
        """What the parser has not seen yet: only special ids change what may come."""
        if self._exact:
            self._begin_header(started=True)

    # --- what comes -----------------------------------------------------------------------------

    def accept(self, token: int) -> bool:
        if not (self._free or self._may_come(token)):
            return False
        self._unread.append(token)
        if token >= ORDINARY or len(self._unread) == UNREAD:
            self._parser.feed(self._unread)
            self._unread.clear()
            if token >= ORDINARY:
                self._mark(token)
        return True

    def _may_come(self, token: int) -> bool:
        """The matcher takes it where it does."""
        if self.pending is not None:
            self._take(self.pending)
        if token in self._ends:
            return self._matcher is None or self._matcher.complete
        if self._in_body and token >= ORDINARY:
            return False
        return self._matcher is None or self._matcher.accept(token)

    def allowed(self) -> Ids:
        if self.pending is not None:
            self._take(self.pending)
        matcher = self._matcher
        ids = np.arange(LAST) if matcher is None else matcher.allowed()
        if self._in_body:
            ids = ids[: ids.searchsorted(ORDINARY)]
            if matcher is None or matcher.complete:
                ids = np.append(ids, list(self._ends))
        return ids

    def _mark(self, token: int) -> None:
        opened = self._parser.within
        if token == MESSAGE and opened is not None:
            self._begin_body(opened)
        elif opened is None and self._in_body:
            self._in_body = False
            self._matcher, self._ends = None, NOTHING
            self._free = not self._exact
            if self._exact and token == END:
                self._begin_header(started=False)

    def _begin_header(self, *, started: bool) -> None:
        """``started``: ``<|start|>assistant`` stands there already."""
        self._hold(self._headers.compiled(started, self._said))

    def _begin_body(self, opened: Opened) -> None:
        self._in_body = True
        self._said.add(opened.kind)
        self._ends = frozenset({_ENDS.get(opened.kind, CALL)})
        grammar = self._grammar(opened)
        self._free = grammar is None and not self._exact
        self._hold(grammar)

    def _hold(self, grammar: Future[Compiled] | None) -> None:
        self._matcher, self.pending = None, grammar
        if grammar is not None and grammar.done():
            self._take(grammar)

    def _take(self, grammar: Future[Compiled]) -> None:
        self.pending = None
        try:
            self._matcher = grammar.result().begin()
        except GrammarError:  # of arguments: the call's own check finds what is wrong
            self._matcher = self._grammars.compile(ANY_OBJECT).result().begin()

    def _grammar(self, opened: Opened) -> Future[Compiled] | None:
        match opened.kind:
            case Kind.FINAL:
                return self._rules.answer
            case Kind.TOOL if opened.json or opened.recipient != "python":
                wanted = self._rules.arguments.get(opened.recipient or "")
                if wanted is None:
                    return None
                self._grammars.compile(ANY_OBJECT)  # if the other fails, this one is there by then
                return self._grammars.compile(wanted)
            case _:
                return None


class _Headers:
    """The grammars of one generation's headers."""

    def __init__(self, rules: Rules, recipients: Recipients, grammars: Grammars) -> None:
        self._rules, self._grammars = rules, grammars
        self._names = [header_name(name) for name in recipients.declared]

    def compiled(self, started: bool, said: Iterable[Kind]) -> Future[Compiled]:
        return self._grammars.compile(Grammar("lark", self._lark(started, set(said)), ours=True))

    def _lark(self, started: bool, said: set[Kind]) -> str:
        """Where a call has to come, thoughts and a word to the person may come before it, once."""
        rules, must = self._rules, self._rules.calls == "must"
        kinds = {
            "thought": not (must and said & {Kind.REASONING, Kind.PREAMBLE}),
            "preamble": rules.answer is None and not (must and Kind.PREAMBLE in said),
            "answer": not must,
            "call": bool(self._names) and rules.calls != "none",
        }
        allowed = " | ".join(kind for kind, is_allowed in kinds.items() if is_allowed)
        begin = "" if started else f'<[{START}]> "assistant" '
        typed = f'" "? <[{CONSTRAIN}]> "json"'
        kind = f"({typed})?" if rules.answer else ""
        names = " | ".join(map(json.dumps, self._names))
        lines = [
            f"start: {begin}({allowed})",
            f'thought: <[{CHANNEL}]> "analysis" <[{MESSAGE}]>',
            f'preamble: <[{CHANNEL}]> "commentary" <[{MESSAGE}]>',
            f'answer: <[{CHANNEL}]> "final" {kind} <[{MESSAGE}]>',
        ]
        if kinds["call"]:
            lines += [
                f"call: <[{CHANNEL}]> channel to kind? <[{MESSAGE}]>",
                f"    | to <[{CHANNEL}]> channel kind? <[{MESSAGE}]>",
                'channel: "commentary" | "analysis"',
                f'to: " to=" ({names})',
                f'kind: {typed} | " json" | " code"',
            ]
        return "\n".join(lines)
