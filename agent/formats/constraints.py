"""What one generation may say, for the formats that can hold a model to it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from agent.engine.grammars import Compiled, Grammar, Grammars
from agent.engine.protocol import Constraint
from agent.formats.recipients import Recipients

Held = Literal["choice", "answer", "arguments"]
"""Whether and what is called · the answer's form · the arguments of calls."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Grammars of arguments are compiled when such a call begins: most are never needed."""

    calls: Literal["may", "must", "none"] = "may"
    arguments: Mapping[str, Grammar] = field(default_factory=dict)
    """By the declared tool's canonical name."""
    answer: Future[Compiled] | None = None
    exact: bool = False
    """Nothing but whole messages, as the family was trained to write them, to declared tools."""


@runtime_checkable
class Guided(Protocol):
    """A format whose model can be held to rules."""

    @property
    def holds(self) -> frozenset[Held]:
        """What of the rules can be kept."""
        ...

    @property
    def grammars(self) -> Grammars:
        """Those on the model's vocabulary."""
        ...

    def guide(self, rules: Rules, recipients: Recipients) -> Constraint:
        """For one generation that begins behind `open_assistant`."""
        ...
