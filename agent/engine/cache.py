"""The prefix cache: which token ids the model's memory holds, and how much a prompt can reuse.

Layers that see everything can be cut back to any length. Sliding layers keep little more than
their window, so going far back needs a checkpoint of them, taken when the sequence was there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.engine.native import Model

CHECKPOINTS = 32
WORTH = 256
"""Tokens below which computing again is as cheap as going back."""


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])


class Prefix:
    """The one sequence in a model's memory."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.ids: list[int] = []
        self._checkpoints: dict[int, ctypes.Array[ctypes.c_uint8]] = {}

    @property
    def checkpoints(self) -> list[int]:
        """Lengths to which the sequence can go back in any case, ascending."""
        return sorted(self._checkpoints)

    def reuse(self, prompt: list[int]) -> int:
        """Cut the memory back to the longest prefix of `prompt` that it can continue exactly.

        At least the prompt's last token is left to compute. Returns the tokens kept.
        """
        same = min(common(self.ids, prompt), len(prompt) - 1)
        kept = same if self._cut(same) else self._go_back(same)
        del self.ids[kept:]
        self._checkpoints = {at: c for at, c in self._checkpoints.items() if at <= kept}
        return kept

    def _cut(self, count: int) -> bool:
        """Keep `count` tokens if the sliding layers still hold the window before them."""
        first = self._model.first_position()
        needed = max(0, count - self._model.window + 1) if self._model.window else 0
        return 0 <= first <= needed and self._model.keep(count)

    def _go_back(self, count: int) -> int:
        """Restore the last checkpoint at or before `count`, or clear; returns the tokens kept."""
        for at in reversed(self.checkpoints):
            if at <= count and self._model.keep(at) and self._model.restore(self._checkpoints[at]):
                return at
        self._model.clear()
        return 0

    def checkpoint(self) -> None:
        """Remember this place to come back to."""
        at = len(self.ids)
        if self._model.window and at >= WORTH:
            self._checkpoints[at] = self._model.checkpoint()
            if len(self._checkpoints) > CHECKPOINTS:
                p = self.checkpoints
                least = min(range(1, len(p) - 1), key=lambda i: p[i + 1] - p[i - 1])
                del self._checkpoints[p[least]]

    def forget(self) -> None:
        """Start empty, after a failure that left the memory in doubt."""
        self._model.clear()
        self.ids.clear()
        self._checkpoints.clear()
