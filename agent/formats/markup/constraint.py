"""Holds a generation of markup over text to its rules, as far as ids of their own tell what comes.

A call that begins with the id of ``<tool_call>`` is of a declared tool and fits its schema. An answer
that has a form begins where no thought is open. Calls that are told by their text alone (Llama's bare
JSON, tags as Qwen3-Coder's) are free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import numpy as np

from agent.engine.grammars import ANY_OBJECT, Compiled, Grammar, Grammars, Ids, Matcher
from agent.formats.constraints import Rules
from agent.formats.markup.dialects import CALL, CALL_END, THINK, THINK_END

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
        size: int,
        *,
        thinking: bool,
        json_calls: bool,
    ) -> None:
        """``names``: of the declared tools. ``thinking``: the prompt ended with ``<think>``; a tag
        within thoughts is no call. ``json_calls``: they are written so."""
        self._rules, self._names, self._grammars = rules, names, grammars
        self._specials, self._stop, self._size = specials, stop, size
        self._call = specials.get(CALL)
        self._think, self._thought = specials.get(THINK), specials.get(THINK_END)
        self._thinking, self._json_calls = thinking, json_calls
        self._matcher: Matcher | None = None
        self._in_call = self._called = False
        self.pending: Future[Compiled] | None = None
        """The grammar of what comes next, where it is not there yet."""
        if not thinking:
            self._begin_answer()

    def accept(self, token: int) -> bool:
        self._take()
        if token in self._stop:
            return self._may_stop()
        if self._matcher is not None:
            if not self._matcher.accept(token):
                return False
        elif token == self._call and self._rules.calls == "none":
            return False
        if token == self._call and not self._thinking and not self._in_call:
            self._begin_call()
        elif token in (self._think, self._thought) and not self._in_call:
            self._thinking, self._matcher = token == self._think, None
            if not self._thinking:
                self._begin_answer()
        elif self._in_call and self._matcher is not None and self._matcher.complete:
            self._in_call, self._called, self._matcher = False, True, None
            self._begin_answer()
        return True

    def allowed(self) -> Ids:
        self._take()
        stops = list(self._stop)
        if self._matcher is not None:
            ids = self._matcher.allowed()
        else:
            no_call = [self._call] if self._call and self._rules.calls == "none" else []
            ids = np.setdiff1d(np.arange(self._size), no_call + stops)
        return np.append(ids, stops) if self._may_stop() else ids

    def _take(self) -> None:
        if self.pending is not None:
            grammar, self.pending = self.pending, None
            self._matcher = grammar.result().begin()

    def _may_stop(self) -> bool:
        if self._rules.answer is None:
            return not self._in_call or self._matcher is None
        if self._in_call or self._thinking or self._matcher is None:
            return False
        return self._called or self._matcher.complete

    # --- grammars -------------------------------------------------------------------------------

    def _begin_answer(self) -> None:
        """A thought, a call or the answer; behind a call another one, until its result is there."""
        if (answer := self._rules.answer) is None:
            return
        call = self._call if self._json_calls and self._names else None
        marks = [
            None if self._called else self._think,
            None if self._rules.calls == "none" else call,
        ]
        choices = [f"<[{mark}]>" for mark in marks if mark is not None]
        if not self._called:
            choices.append("answer")
        start = f"start: /[ \n]{{0,4}}/ ({' | '.join(choices)})\n"
        self.pending = self._grammars.first(
            lambda: Grammar("lark", f"{start}answer: {answer.result().body}\n", ours=True)
        )

    def _begin_call(self) -> None:
        self._matcher = None
        if self._json_calls and self._names:
            self._in_call = True
            any_object = self._grammars.compile(ANY_OBJECT)
            none: list[Future[Compiled]] = [any_object] * len(self._names)
            wanted = self._rules.arguments
            of = [self._grammars.compile(wanted.get(name, ANY_OBJECT)) for name in self._names]
            self.pending = self._grammars.first(
                lambda: self._calls(of, any_object), lambda: self._calls(none, any_object)
            )

    def _calls(self, arguments: Sequence[Future[Compiled]], otherwise: Future[Compiled]) -> Grammar:
        """One of the declared tools, and its own arguments, all of which are done."""
        end = self._specials.get(CALL_END)
        ending = json.dumps(CALL_END) if end is None else f"<[{end}]>"
        calls = " | ".join(f"call_{i}" for i in range(len(self._names)))
        lines = [_CALL.replace("CALLS", calls).replace("END", ending), _GAPS]
        for i, (name, compiled) in enumerate(zip(self._names, arguments, strict=True)):
            quoted = json.dumps(json.dumps(name, ensure_ascii=False), ensure_ascii=False)
            # What cannot be used is found by the call's own check.
            body = (otherwise if compiled.exception() else compiled).result().body
            lines.append(f'call_{i}: {quoted} gap "," gap "\\"arguments\\"" gap ":" gap args_{i}')
            lines.append(f"args_{i}: {body}")
        return Grammar("lark", "\n".join(lines), ours=True)
