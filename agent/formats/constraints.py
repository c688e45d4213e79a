"""The constraints of a generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.engine.grammars import Grammar, GrammarCompiler
from agent.engine.protocol import Constraint, LoopLimits
from agent.formats.protocol import Format, GenerationConstraints
from agent.formats.recipients import Recipients


def argument_gap(grammars: GrammarCompiler, grammar: Grammar) -> str | None:
    """Why the grammar of arguments is not fully enforced; None: it is, or was not needed yet."""
    compiled = grammars.submitted(grammar)
    if compiled is None or not compiled.done():
        return None
    error = compiled.exception()
    return str(error) if error else compiled.result().unenforced


class ArgumentGaps:
    """Reports arguments that could not be constrained, once calls have needed their grammars."""

    def __init__(self, form: Format, spec: Mapping[str, Any]) -> None:
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


def constraint_of(form: Format, spec: Mapping[str, Any]) -> Constraint:
    """The constraint of a spec; may wait for a grammar. Raises KeyError, TypeError if it is invalid."""
    answer = spec["answer"] and Grammar(**spec["answer"])
    limits = spec.get("answer_limits")  # which a program of an older version does not send
    constraints = GenerationConstraints(
        spec["calls"],
        {name: Grammar(**one) for name, one in spec["arguments"].items()},
        form.grammars.submit(answer) if answer else None,
        spec["declared_tools_only"],
        answer,
        limits and LoopLimits(**limits),
        spec["max_tokens"],
        spec.get("reasoning_until"),
    )
    constraint = form.new_constraint(constraints, Recipients(**spec["recipients"]))
    for token in spec["prefix"]:
        constraint.accept(token)
    return constraint
