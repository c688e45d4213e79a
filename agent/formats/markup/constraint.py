"""Constrains decoding of markup in text, where special ids determine what comes next: a call after the
id of ``<tool_call>``, an answer where no reasoning is open. Calls that only their text distinguishes
(Llama's bare JSON, Qwen3-Coder's tags) are not constrained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from agent.engine.grammars import ANY_OBJECT, CompiledGrammar, Grammar, GrammarCompiler, Matcher
from agent.formats.constraints import GenerationConstraints

CALL, CALL_END = "<tool_call>", "</tool_call>"
THINK, THINK_END = "<think>", "</think>"

if TYPE_CHECKING:
    from agent.engine.grammars import TokenIds

_GAP_RULES = """
gap: GAP?
GAP: / |\\n[ \\t]{0,32}/
"""
_CALL_RULE = """
start: gap "{" gap "\\"name\\"" gap ":" gap (CALLS) gap "}" gap END
"""


class MarkupConstraint:
    """The `Constraint` of one generation of markup in text."""

    def __init__(
        self,
        constraints: GenerationConstraints,
        tool_names: Sequence[str],
        grammars: GrammarCompiler,
        specials: Mapping[str, int],
        stop_ids: frozenset[int],
        vocabulary_size: int,
        *,
        thinking: bool,
        json_calls: bool,
    ) -> None:
        """``thinking``: the prompt ended with ``<think>``; a tag within reasoning is not a call.
        ``json_calls``: calls are written as JSON, so that they can be constrained."""
        self._constraints, self._tool_names, self._grammars = constraints, tool_names, grammars
        self._specials, self._stop_ids, self._vocabulary_size = specials, stop_ids, vocabulary_size
        self._call_id = specials.get(CALL)
        self._think_id, self._think_end_id = specials.get(THINK), specials.get(THINK_END)
        self._thinking, self._json_calls = thinking, json_calls
        self._matcher: Matcher | None = None
        self._in_call = self._has_called = False
        self._has_thought = thinking
        self.pending: Future[CompiledGrammar] | None = None
        """The grammar of the next tokens while it is being compiled."""
        if not thinking:
            self._begin_answer()

    def accept(self, token: int) -> bool:
        self._begin_matcher()
        if token in self._stop_ids:
            return self._may_stop()
        if self._matcher is not None:
            if not self._matcher.accept(token):
                return False
        elif token == self._call_id and self._constraints.calls == "none":
            return False
        if token == self._call_id and not self._thinking and not self._in_call:
            self._begin_call()
        elif token in (self._think_id, self._think_end_id) and not self._in_call:
            self._thinking, self._matcher = token == self._think_id, None
            self._has_thought = True
            if not self._thinking:
                self._begin_answer()
        elif self._in_call and self._matcher is not None and self._matcher.complete:
            self._in_call, self._has_called, self._matcher = False, True, None
            self._begin_answer()
        return True

    def allowed(self) -> TokenIds:
        self._begin_matcher()
        stops = list(self._stop_ids)
        if self._matcher is not None:
            ids = self._matcher.allowed()
        else:
            no_call = [self._call_id] if self._call_id and self._constraints.calls == "none" else []
            ids = np.setdiff1d(np.arange(self._vocabulary_size), no_call + stops)
        return np.append(ids, stops) if self._may_stop() else ids

    def _begin_matcher(self) -> None:
        if self.pending is not None:
            grammar, self.pending = self.pending, None
            limits = None if self._in_call else self._constraints.answer_limits
            self._matcher = grammar.result().new_matcher(limits)

    def _may_stop(self) -> bool:
        if self._constraints.answer_grammar is None:
            return not self._in_call or self._matcher is None
        if self._in_call or self._thinking or self._matcher is None:
            return False
        return self._has_called or self._matcher.complete

    # --- grammars -------------------------------------------------------------------------------

    def _begin_answer(self) -> None:
        """Allow reasoning, a call or the answer; after a call, only another call."""
        if (answer := self._constraints.answer_grammar) is None:
            return
        call = self._call_id if self._json_calls and self._tool_names else None
        openings = [
            None if self._has_called or self._has_thought else self._think_id,
            None if self._constraints.calls == "none" else call,
        ]
        choices = [f"<[{opening}]>" for opening in openings if opening is not None]
        if not self._has_called:
            choices.append("answer")
        start = f"start: /[ \n]{{0,4}}/ ({' | '.join(choices)})\n"
        self.pending = self._grammars.submit_first_usable(
            lambda: Grammar("lark", f"{start}answer: {answer.result().lark_body}\n", trusted=True)
        )

    def _begin_call(self) -> None:
        self._matcher = None
        if self._json_calls and self._tool_names:
            self._in_call = True
            any_object = self._grammars.submit(ANY_OBJECT)
            any_arguments: list[Future[CompiledGrammar]] = [any_object] * len(self._tool_names)
            grammars = self._constraints.argument_grammars
            arguments = [
                self._grammars.submit(grammars.get(name, ANY_OBJECT)) for name in self._tool_names
            ]
            self.pending = self._grammars.submit_first_usable(
                lambda: self._call_grammar(arguments, any_object),
                lambda: self._call_grammar(any_arguments, any_object),
            )

    def _call_grammar(
        self, arguments: Sequence[Future[CompiledGrammar]], otherwise: Future[CompiledGrammar]
    ) -> Grammar:
        """Write the grammar of a call of any declared tool with its arguments, all compiled."""
        end = self._specials.get(CALL_END)
        ending = json.dumps(CALL_END) if end is None else f"<[{end}]>"
        calls = " | ".join(f"call_{i}" for i in range(len(self._tool_names)))
        lines = [_CALL_RULE.replace("CALLS", calls).replace("END", ending), _GAP_RULES]
        for i, (name, compiled) in enumerate(zip(self._tool_names, arguments, strict=True)):
            quoted = json.dumps(json.dumps(name, ensure_ascii=False), ensure_ascii=False)
            # Arguments without a usable grammar are validated when the call has ended.
            body = (otherwise if compiled.exception() else compiled).result().lark_body
            lines.append(f'call_{i}: {quoted} gap "," gap "\\"arguments\\"" gap ":" gap args_{i}')
            lines.append(f"args_{i}: {body}")
        return Grammar("lark", "\n".join(lines), trusted=True)
