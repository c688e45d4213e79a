"""The prefix cache: which token ids the model's memory holds, and how much a prompt can reuse.

A model's memory has a few sequences. Layers that see everything can be cut back to any length, and
sequences that begin alike share their cells. Sliding layers keep little more than their window, so
going far back needs a checkpoint of them, taken when a sequence was there. A checkpoint belongs to
the tokens before it: it can be restored into whichever sequence holds these.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agent.engine.llama.model import Model, State

CHECKPOINTS = 32
"""Of one sequence; those of a common beginning are held once."""
APART = 2048
"""Tokens of a long prompt between checkpoints."""
WORTH = 64
"""Tokens below which computing again is as cheap as going back."""
SLACK = 16
"""Tokens of a former prompt that a new one may cut off to go on in its place: how two turns of one
conversation are told from two conversations that begin alike."""
DRAFT = 256
"""The same for a prompt that is still being typed."""
_BLOCK = 1024


def common(a: Ids[int], b: Ids[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(a), len(b))
    for start in range(0, length, _BLOCK):
        end = min(start + _BLOCK, length)
        if a[start:end] != b[start:end]:
            return next(i for i in range(start, end) if a[i] != b[i])
    return length


class Sequence:
    """One sequence of a model's memory."""

    def __init__(self, model: Model, number: int) -> None:
        self._model = model
        self.number = number
        self.ids: list[int] = []
        self.busy = False
        """A job has it."""
        self.asked = 0
        """Tokens of the last prompt; what follows was generated."""
        self.used = 0
        """When it was last taken or given back, counted by the cache."""
        self._checkpoints: dict[int, State] = {}

    @property
    def checkpoints(self) -> list[int]:
        """Lengths to which the sequence can go back in any case, ascending."""
        return sorted(self._checkpoints)

    def usable(self, count: int) -> int:
        """How many of its first `count` tokens can be continued exactly."""
        if self._holds(count):
            return count
        return max((at for at in self._checkpoints if at <= count), default=0)

    def _holds(self, count: int) -> bool:
        """Whether the sliding layers still have the window before position `count`."""
        if count == len(self.ids):
            return True
        first = self._model.first_position(self.number)
        needed = max(0, count - self._model.window + 1) if self._model.window else 0
        return 0 <= first <= needed

    def cut(self, count: int) -> int:
        """Go back to the first `count` tokens, which are usable; returns how many are kept."""
        held = self._holds(count)
        done = count == len(self.ids) or self._model.keep(self.number, count)
        if done and not held:
            done = count > 0 and self._model.restore(self.number, self._checkpoints[count])
        self._forget_after(count)
        if not done:
            self.clear()
        return len(self.ids)

    def begin_like(self, other: Sequence, count: int) -> int:
        """Become the first `count` tokens of another, which are usable there, and share its cells;
        returns how many that are."""
        self.clear()
        held = other._holds(count)
        self._model.share(other.number, self.number, count)
        self.ids = other.ids[:count]
        self._checkpoints = dict(other._checkpoints)
        self._forget_after(count)
        if self._model.window and count:
            # The sliding layers give up old cells for new ones, but never those that are shared:
            # this sequence gets its own.
            here = self._model.checkpoint(self.number) if held else self._checkpoints[count]
            if not self._model.restore(self.number, here):
                self.clear()
        return len(self.ids)

    def _forget_after(self, count: int) -> None:
        del self.ids[count:]
        self._checkpoints = {at: c for at, c in self._checkpoints.items() if at <= count}

    def checkpoint(self) -> None:
        """Remember this place to come back to."""
        at = len(self.ids)
        if self._model.window and at >= WORTH and at not in self._checkpoints:
            self._checkpoints[at] = self._model.checkpoint(self.number)
            if len(self._checkpoints) > CHECKPOINTS:
                p = self.checkpoints
                least = min(range(1, len(p) - 1), key=lambda i: p[i + 1] - p[i - 1])
                del self._checkpoints[p[least]]

    def clear(self) -> None:
        """Start empty."""
        self._model.keep(self.number, 0)
        self.ids = []
        self.asked = 0
        self._checkpoints = {}


class Place(NamedTuple):
    """Where a prompt goes on."""

    sequence: Sequence
    kept: int
    """Of its tokens are in memory."""
    fork: int
    """Where it parts from what was asked before: others will too."""


class Cache:
    """The sequences of a model's memory."""

    def __init__(self, model: Model, count: int) -> None:
        self._model = model
        self.sequences = [Sequence(model, number) for number in range(count)]
        self._clock = 0

    @property
    def free(self) -> list[Sequence]:
        """Those that no job has."""
        return [s for s in self.sequences if not s.busy]

    def usable(self, prompt: list[int]) -> int:
        """How many tokens of it need not be computed."""
        most = len(prompt) - 1
        return max(s.usable(min(common(s.ids, prompt), most)) for s in self.sequences)

    def holds(self, prompt: list[int]) -> bool:
        """Whether all of it is in memory."""
        return any(s.ids[: len(prompt)] == prompt for s in self.sequences)

    def take(self, prompt: list[int], ahead: bool = False) -> Place:
        """The sequence to continue with `prompt`, cut back to what they have in common; at least
        the prompt's last token is left to compute. One must be free.

        ``ahead``: a guess, followed by others that differ at the end.
        """
        most = len(prompt) - 1
        same = {s: min(common(s.ids, prompt), most) for s in self.sequences}
        usable = {s: s.usable(count) for s, count in same.items()}
        source = max(self.sequences, key=lambda s: (usable[s], not s.busy, s.used))
        count = usable[source]
        lost = source.asked - count
        if not source.busy and count and lost <= (DRAFT if ahead else SLACK):
            target, kept = source, source.cut(count)
        else:
            target = min(self.free, key=lambda s: (bool(s.ids), s.used))
            kept = target.cut(count) if target is source else target.begin_like(source, count)
        target.busy = True
        target.asked = len(prompt)
        self._touch(target)
        return Place(target, kept, max(same.values()))

    def give_back(self, sequence: Sequence) -> None:
        """Its job has ended; what it holds can be reused."""
        sequence.busy = False
        self._touch(sequence)

    def evict(self) -> bool:
        """Empty the sequence that was not used for longest; False when there is none."""
        idle = [s for s in self.sequences if s.ids and not s.busy]
        if idle:
            min(idle, key=lambda s: s.used).clear()
        return bool(idle)

    def forget(self) -> None:
        """Start empty, after a failure that left the memory in doubt."""
        for sequence in self.sequences:
            sequence.clear()
        self._model.clear()

    def _touch(self, sequence: Sequence) -> None:
        self._clock += 1
        sequence.used = self._clock
