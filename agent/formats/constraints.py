"""What a generation may contain, for the formats that can constrain decoding."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from agent.engine.grammars import CompiledGrammar, Grammar, GrammarCompiler
from agent.engine.protocol import Constraint
from agent.formats.recipients import Recipients

ConstraintKind = Literal["choice", "answer", "arguments"]
"""``choice``: whether and which tools are called · ``answer``: the answer's grammar · ``arguments``:
the grammars of calls' arguments."""


@dataclass(frozen=True, slots=True)
class GenerationConstraints:
    """The constraints of one generation.

    A grammar of arguments is compiled only when a call of its tool begins: most are never needed.
    """

    calls: Literal["may", "must", "none"] = "may"
    argument_grammars: Mapping[str, Grammar] = field(default_factory=dict)
    """The grammars of calls' arguments, by the declared tool's canonical name."""
    answer_grammar: Future[CompiledGrammar] | None = None
    declared_tools_only: bool = False
    """Only well-formed messages, as in the model's training, and only calls of declared tools."""


@runtime_checkable
class ConstrainableFormat(Protocol):
    """A format whose generations can be constrained."""

    @property
    def supported_constraints(self) -> frozenset[ConstraintKind]:
        """The kinds of constraints that this format can enforce."""
        ...

    @property
    def grammars(self) -> GrammarCompiler:
        """The grammar compiler of the model's vocabulary."""
        ...

    def new_constraint(
        self, constraints: GenerationConstraints, recipients: Recipients
    ) -> Constraint:
        """Make the constraint of one generation that begins after `Format.open_assistant`."""
        ...
