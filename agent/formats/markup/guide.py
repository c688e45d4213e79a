"""Holds a generation of markup over text to its rules, as far as ids of their own tell what comes.

A call that begins with the id of ``<tool_call>`` is of a declared tool and fits its schema. An answer
that has a form begins where no thought is open. Calls that are told by their text alone (Llama's bare
JSON, tags as Qwen3-Coder's) are free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from agent.engine.constrain import ANY_OBJECT, Allowed, Grammar, GrammarError, Grammars, Matcher
from agent.formats.markup.families import CALL, CALL_END, THINK, THINK_END
from agent.formats.rules import Rules, ready

_GAPS = """
gap: GAP?
GAP: / |\\n[ \\t]{0,32}/
"""
_CALL = """
start: gap "{" gap "\\"name\\"" gap ":" gap (CALLS) gap "}" gap END
"""


class MarkupGuide:
    """A Constraint."""

    def __init__(
        self,
        rules: Rules,
        names: Sequence[str],
        grammars: Grammars,
        specials: Mapping[str, int],
        stop: frozenset[int],
        *,
        thinking: bool,
        json_calls: bool,
    ) -> None:
        """``names``: of the declared tools. ``thinking``: the prompt ended with ``<think>``; a tag
        within thoughts is no call. ``json_calls``: they are written so."""
        self._rules, self._names, self._grammars = rules, names, grammars
        self._specials, self._stop = specials, stop
        self._call = specials.get(CALL)
        self._think, self._thought = specials.get(THINK), specials.get(THINK_END)
        self._thinking, self._json_calls = thinking, json_calls
        self._matcher: Matcher | None = None
        self._in_call = self._called = False
        self._answer_is_next = rules.answer is not None and not thinking

    def allows(self, token: int) -> bool:
        if self._answer_is_next:
            self._begin_answer()
        if token in self._stop:
            return self._may_stop()
        if self._matcher is not None:
            return self._matcher.allows(token)
        return token != self._call or self._rules.calls != "none"

    def mask(self) -> Allowed | None:
        if self._answer_is_next:
            self._begin_answer()
        if self._matcher is not None:
            allowed = self._matcher.mask()
        else:
            ready(self._grammars.compile(ANY_OBJECT))  # or the size is not known
            allowed = np.ones(self._grammars.size, np.bool_)
            if self._rules.calls == "none" and self._call is not None:
                allowed[self._call] = False
        allowed[list(self._stop)] = self._may_stop()
        return allowed

    def accept(self, token: int) -> None:
        if token in self._stop:
            return
        if self._matcher is not None:
            self._matcher.accept(token)
        if token == self._call and not self._thinking and not self._in_call:
            self._begin_call()
        elif token in (self._think, self._thought) and not self._in_call:
            self._thinking, self._matcher = token == self._think, None
            self._answer_is_next = self._rules.answer is not None and not self._thinking
        elif self._in_call and self._matcher is not None and self._matcher.complete:
            self._in_call, self._called, self._matcher = False, True, None
            self._answer_is_next = self._rules.answer is not None

    def _may_stop(self) -> bool:
        if self._rules.answer is None:
            return not self._in_call or self._matcher is None
        if self._in_call or self._thinking or self._matcher is None:
            return False
        return self._called or self._matcher.complete

    # --- grammars -------------------------------------------------------------------------------

    def _begin_answer(self) -> None:
        """A thought, a call or the answer; behind a call another one, until its result is there."""
        self._answer_is_next = False
        assert self._rules.answer is not None
        call = self._call if self._json_calls and self._names else None
        marks = [
            None if self._called else self._think,
            None if self._rules.calls == "none" else call,
        ]
        choices = [f"<[{mark}]>" for mark in marks if mark is not None]
        if not self._called:
            choices.append("answer")
        lark = f"start: /[ \n]{{0,4}}/ ({' | '.join(choices)})\n"
        lark += f"answer: {ready(self._rules.answer).body}\n"
        self._matcher = ready(self._grammars.compile(Grammar("lark", lark, ours=True))).begin()

    def _begin_call(self) -> None:
        self._matcher = None
        if self._json_calls and self._names:
            self._in_call = True
            try:
                calls = ready(self._grammars.compile(self._calls(self._rules.arguments)))
            except GrammarError:  # all together are too much
                calls = ready(self._grammars.compile(self._calls({})))
            self._matcher = calls.begin()

    def _calls(self, arguments: Mapping[str, Grammar]) -> Grammar:
        """One of the declared tools, and its own arguments."""
        end = self._specials.get(CALL_END)
        ending = json.dumps(CALL_END) if end is None else f"<[{end}]>"
        calls = " | ".join(f"call_{i}" for i in range(len(self._names)))
        lines = [_CALL.replace("CALLS", calls).replace("END", ending), _GAPS]
        for i, name in enumerate(self._names):
            quoted = json.dumps(json.dumps(name, ensure_ascii=False), ensure_ascii=False)
            body = self._body(arguments.get(name, ANY_OBJECT))
            lines.append(f'call_{i}: {quoted} gap "," gap "\\"arguments\\"" gap ":" gap args_{i}')
            lines.append(f"args_{i}: {body}")
        return Grammar("lark", "\n".join(lines), ours=True)

    def _body(self, grammar: Grammar) -> str:
        try:
            return ready(self._grammars.compile(grammar)).body
        except GrammarError:  # the call's own check finds what is wrong
            return ready(self._grammars.compile(ANY_OBJECT)).body
