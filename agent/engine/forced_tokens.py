"""A constraint that lets a generation repeat given tokens, whose log probabilities are then known; a
step of the local engine computes several of them at once."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

SPEC_FIELD = "forced"
"""The only field of this constraint's spec (`agent.engine.protocol.Request.constraint_spec`)."""


class ForcedTokens:
    """A `agent.engine.protocol.Constraint`: the generation is these ids, in order, and no others."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self._next = ids, 0

    @property
    def pending(self) -> Future[Any] | None:
        return None

    def upcoming(self, limit: int) -> list[int]:
        return list(self.ids[self._next : self._next + max(0, limit)])

    def accept(self, token: int) -> bool:
        if self._next < len(self.ids) and token != self.ids[self._next]:
            return False
        self._next += 1
        return True

    def allowed(self) -> npt.NDArray[np.intp]:
        return np.array(self.ids[self._next : self._next + 1], np.intp)
