"""Events with the ids that a generation consists of, for those who asked to see them."""

from __future__ import annotations

from collections.abc import Sequence

from agent import events as ev
from agent.engine.protocol import Logprob
from agent.turn.logprobs import recorded_logprob
from agent.turn.output import Emit


class TokenEvents:
    """Emits ``agent.tokens`` for one generation, before the events that its ids become."""

    def __init__(self, emit: Emit, entry: int, *, probabilities: bool) -> None:
        """``entry``: how many messages the turn has. ``probabilities``: emit these too."""
        self._emit, self._entry, self._probabilities = emit, entry, probabilities

    def emit(
        self, ids: Sequence[int], logprobs: Sequence[Logprob | None] | None, *, first: bool
    ) -> None:
        """Emit the next ids; ``first``: they are the generation's first ones."""
        rows: list[ev.TokenProbability | None] | None = None
        if self._probabilities:
            rows = [*map(recorded_logprob, logprobs or [None] * len(ids))]
        entry = self._entry if first else None
        # Ours: nothing to validate.
        self._emit(ev.AgentTokens.model_construct(ids=list(ids), logprobs=rows, entry=entry))
