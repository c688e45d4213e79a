"""The settings of a turn's generations, for a look at its tokens after its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agent.engine.protocol import Constraint
from agent.formats.protocol import Format
from agent.turn.constraints import GenerationStage, TurnConstraints
from agent.turn.options import DeclaredTools, TurnOptions
from tools.types import Tool


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """Holds the options and tools of one turn, of which its constraints can be made again."""

    options: TurnOptions
    """Without who answered its questions."""
    tools: tuple[Tool, ...]
    """The host's tools that it declared, as they were."""
    constrained: bool = True

    async def new_constraint(self, form: Format, *, first: bool) -> Constraint | None:
        """The constraint of a generation as it was before its first token; None: it was free.
        ``first``: it was the turn's first. Raises UnenforceableSchemaError, EngineBusyError."""
        declared = DeclaredTools.resolve(self.options, self.tools, form)
        constraints = TurnConstraints(
            self.options, declared, form, lambda event: None, applied=self.constrained
        )
        await constraints.compile()
        return await asyncio.to_thread(constraints.new_constraint, GenerationStage(first))
