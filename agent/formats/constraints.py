"""The constraints of a generation, for formats that can constrain decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from agent.engine.grammars import CompiledGrammar, Grammar, GrammarCompiler
from agent.engine.protocol import Constraint, LoopLimits
from agent.formats.recipients import Recipients

ConstraintKind = Literal["choice", "answer", "arguments"]
"""``choice``: whether and which tools are called; ``answer``, ``arguments``: their grammars."""


@dataclass(frozen=True, slots=True)
class GenerationConstraints:
    """The constraints of one generation; a grammar of arguments is compiled when a call begins."""

    calls: Literal["may", "must", "none", "further"] = "may"
    """``further``: a call without reasoning before it, or an answer."""
    argument_grammars: Mapping[str, Grammar] = field(default_factory=dict)
    """The grammars of calls' arguments, by the declared tool's canonical name."""
    answer_grammar: Future[CompiledGrammar] | None = None
    declared_tools_only: bool = False
    """Only well-formed messages, as in the model's training, and only calls of declared tools."""
    answer_source: Grammar | None = None
    answer_limits: LoopLimits | None = None
    """Limits beyond which endless parts of the answer's JSON are closed; None: none."""
    max_tokens: int | None = None
    """Token budget of an answer without calls and grammar; the format ends it at the last token."""
    reasoning_until: int | None = None
    """Generated tokens after which no more reasoning begins; None: no limit. With ``choice`` only."""

    def spec(self, recipients: Recipients, prefix: Sequence[int]) -> dict[str, Any]:
        """JSON from which `constraint_of` makes the same constraint. ``prefix``: accepted ids."""
        return {
            "calls": self.calls,
            "arguments": {name: asdict(one) for name, one in self.argument_grammars.items()},
            "answer": self.answer_source and asdict(self.answer_source),
            "declared_tools_only": self.declared_tools_only,
            "answer_limits": self.answer_limits and asdict(self.answer_limits),
            "max_tokens": self.max_tokens,
            "reasoning_until": self.reasoning_until,
            "recipients": recipients.as_json(),
            "prefix": list(prefix),
        }


def argument_gap(grammars: GrammarCompiler, grammar: Grammar) -> str | None:
    """Why the grammar of arguments is not fully enforced; None: it is, or was not needed yet."""
    compiled = grammars.submitted(grammar)
    if compiled is None or not compiled.done():
        return None
    error = compiled.exception()
    return str(error) if error else compiled.result().unenforced


class ArgumentGaps:
    """Reports arguments that could not be constrained, once calls have needed their grammars."""

    def __init__(self, form: ConstrainableFormat, spec: Mapping[str, Any]) -> None:
        self._form = form
        self._unreported = {name: Grammar(**one) for name, one in spec["arguments"].items()}

    def new(self) -> dict[str, str]:
        """The reasons that were not returned before, by the declared tool's canonical name."""
        gaps = {}
        for name, grammar in list(self._unreported.items()):
            if (why := argument_gap(self._form.grammars, grammar)) is not None:
                gaps[name] = why
                del self._unreported[name]
        return gaps


def constraint_of(form: ConstrainableFormat, spec: Mapping[str, Any]) -> Constraint:
    """The constraint of a spec; may wait for a grammar. Raises KeyError, TypeError if it is invalid."""
    answer = spec["answer"] and Grammar(**spec["answer"])
    limits = spec.get("answer_limits")  # which a program of an older version does not send
    until = spec.get("reasoning_until")
    constraints = GenerationConstraints(
        spec["calls"],
        {name: Grammar(**one) for name, one in spec["arguments"].items()},
        form.grammars.submit(answer) if answer else None,
        spec["declared_tools_only"],
        answer,
        limits and LoopLimits(**limits),
        spec["max_tokens"],
        until,
    )
    constraint = form.new_constraint(constraints, Recipients(**spec["recipients"]))
    for token in spec["prefix"]:
        constraint.accept(token)
    return constraint


@runtime_checkable
class ConstrainableFormat(Protocol):
    """A format whose generations can be constrained."""

    @property
    def supported_constraints(self) -> frozenset[ConstraintKind]:
        """The kinds of constraints that this format can enforce."""

    @property
    def grammars(self) -> GrammarCompiler:
        """The grammar compiler of the model's vocabulary."""

    def new_constraint(
        self, constraints: GenerationConstraints, recipients: Recipients
    ) -> Constraint:
        """Make the constraint of one generation that begins after `Format.open_assistant`."""
