"""The prefix cache: token ids in llama.cpp's KV cache, and the prefix that a prompt can reuse.

llama.cpp's memory has a few sequences over one pool of cells (n_seq_max, kv_unified). Layers with
full attention keep every cell, so a sequence can be truncated to any length, and sequences with the
same prefix share its cells. Layers with sliding attention keep little more than their window and
overwrite what is older, so going back far needs a checkpoint: a copy of their window, saved when
the sequence had just that length. A sequence of 2,900 tokens, with a window of 128::

    position         0              1200           2048                2900
    full attention   |##################################################|  every cell
    sliding layers   |..............................................####|  the last window or so
    checkpoints                      [C1]           [C2]             [C3]  of 1200, 2048, 2899 tokens

    continue at 2880: the sliding layers still have [2753, 2880) -> truncate, compute from 2880 on
    continue at 1300: they lost [1173, 1300)                     -> truncate, restore C1, compute
                                                                    1200 to 1300 once more

So `KvSequence.reusable` of 2880 is 2880, and of 1300 it is 1200. A checkpoint depends only on the
tokens before it: it can be restored into any sequence that begins with them. Models without sliding
layers need no checkpoints.

The policy is in `PrefixCache.acquire` and in a few constants, which decide more than speed:

- Is a new prompt the next turn of the conversation in a sequence, or another conversation with a common
prefix (the same system prompt)? If it cuts off at most REWIND_LIMIT_TOKENS tokens of the last
  *prompt* there (generated tokens do not count: their text may be rendered otherwise in the
  history), it is the next turn and continues in place. Else it gets a free sequence, into which the
  shared prefix is copied, and the other conversation loses nothing. Drafts of a prompt that is
  being typed replace each other in place, so they may cut off DRAFT_REWIND_LIMIT_TOKENS.
- The scheduler saves checkpoints before the last token of a prompt (the next turn comes back
  there), where prompts diverge (`AcquiredSequence.shared_prefix`: others will diverge there too)
  and each CHECKPOINT_INTERVAL_TOKENS. More than MAX_CHECKPOINTS are thinned out evenly; the first and
  last stay.

What a sequence holds is also written to disk while the engine idles, and read back where a prompt
begins like that (`agent.engine.llama.disk_cache`): `PrefixCache.save_step` and `KvSequence.restore` do
one segment at a time, which bounds the wait of requests.

The C functions are llama_memory_* and llama_state_seq_* of
https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from agent.util.prefix import common_prefix_length

if TYPE_CHECKING:
    from agent.engine.llama.disk_cache import DiskCache, StoredPrefix
    from agent.engine.llama.model import LlamaModel, WindowState

log = logging.getLogger(__name__)

MAX_CHECKPOINTS = 32
"""Checkpoints of one sequence; sequences with the same prefix share those of the prefix."""
CHECKPOINT_INTERVAL_TOKENS = 2048
MIN_REUSE_TOKENS = 64
"""Tokens below which computing again is as cheap as reusing."""
REWIND_LIMIT_TOKENS = 16
"""Tokens of the last prompt of a sequence that a new prompt may cut off to continue in place."""
DRAFT_REWIND_LIMIT_TOKENS = 256
"""The same for a prompt that is still being typed."""


class KvSequence:
    """One sequence of a model's memory, with the token ids that are in it."""

    def __init__(self, model: LlamaModel, seq_id: int) -> None:
        self.model, self.seq_id = model, seq_id
        self.ids: list[int] = []
        self.busy = False
        self.prompt_length = 0
        """Tokens of the last prompt; what follows them was generated."""
        self.savable_tokens: int | None = None
        """Number of ids that may be written to disk; None: all."""
        self.unsaved = False
        """Whether there may be ids that are not on disk."""
        self.used_at = 0.0
        """The clock's time when it was last acquired."""
        self.last_used = 0
        """When it was last acquired or released, counted by the cache."""
        self.checkpoints: dict[int, WindowState] = {}

    def reusable(self, count: int) -> int:
        """Return how many of the first `count` tokens need not be computed again."""
        if self._window_intact(count):
            return count
        return max((length for length in self.checkpoints if length <= count), default=0)

    def _window_intact(self, count: int) -> bool:
        return count == len(self.ids) or self._has_window(count)

    def _has_window(self, count: int) -> bool:
        first = self.model.first_position(self.seq_id)
        needed = max(0, count - self.model.sliding_window + 1) if self.model.sliding_window else 0
        return 0 <= first <= needed

    def truncate(self, count: int) -> int:
        """Go back to `count` reusable tokens; return the new length (0: llama.cpp failed)."""
        intact = self._window_intact(count)
        done = count == len(self.ids) or self.model.truncate(self.seq_id, count)
        if done and not intact:
            done = count > 0 and self.model.restore_window(self.seq_id, self.checkpoints[count])
        self._drop_after(count)
        if not done:
            self.clear()
        return len(self.ids)

    def drop_rejected(self) -> None:
        """Remove drafted tokens, which were computed after the ids and are not among them."""
        count = len(self.ids)
        if not (self._has_window(count) and self.model.truncate(self.seq_id, count)):
            self.clear()  # the next step computes the ids again

    def copy_prefix(self, source: KvSequence, count: int) -> int:
        """Become the first `count` tokens of another sequence, which are reusable there, and share
        its cells; return the new length (0 if llama.cpp could not do it)."""
        self.clear()
        intact = source._window_intact(count)
        self.model.copy_prefix(source.seq_id, self.seq_id, count)
        self.ids = source.ids[:count]
        self.checkpoints = dict(source.checkpoints)
        self._drop_after(count)
        if self.model.sliding_window and count:
            # Sliding layers overwrite their old cells, but never shared ones: it needs its own.
            window = self.model.save_window(self.seq_id) if intact else self.checkpoints[count]
            if not self.model.restore_window(self.seq_id, window):
                self.clear()
        return len(self.ids)

    def _drop_after(self, count: int) -> None:
        del self.ids[count:]
        saved = self.checkpoints.items()
        self.checkpoints = {length: window for length, window in saved if length <= count}

    def save_checkpoint(self) -> None:
        """Save a checkpoint of the current length; drop the least useful one if there are too many."""
        length = len(self.ids)
        is_new = length >= MIN_REUSE_TOKENS and length not in self.checkpoints
        if self.model.sliding_window and is_new:
            self.checkpoints[length] = self.model.save_window(self.seq_id)
            self._thin()

    def _thin(self) -> None:
        while len(self.checkpoints) > MAX_CHECKPOINTS:
            lengths = sorted(self.checkpoints)
            closest = min(range(1, len(lengths) - 1), key=lambda i: lengths[i + 1] - lengths[i - 1])
            del self.checkpoints[lengths[closest]]

    def restore(self, stored: StoredPrefix) -> Generator[bool]:
        """Append what is on disk, a segment for each step; yields whether there was room for it. The
        ids before are a prefix of the stored ones. Unless the iterator is read to its end, and where a
        file is damaged, the sequence is empty afterwards."""
        # Until it is done the sequence cannot be used: the sliding layers' cells are overwritten.
        ids, windows = self.ids, self.checkpoints
        self.ids, self.checkpoints = [], {}
        done = False
        try:
            for segment in stored.segments:
                if segment.end <= len(ids):
                    continue
                if (content := segment.read()) is None:
                    return
                body, saved_windows = content
                state = (ctypes.c_uint8 * segment.state_bytes).from_buffer(body)
                while not self.model.restore_range(self.seq_id, state, len(ids), segment.end):
                    yield False
                ids += segment.ids[len(ids) - segment.start :]
                windows |= {
                    length: (ctypes.c_uint8 * len(window)).from_buffer_copy(window)
                    for length, window in saved_windows.items()
                }
                yield True
            self.ids, self.checkpoints = ids, windows
            intact = not self.model.sliding_window
            done = self.model.truncate(self.seq_id, stored.length) and (
                intact or self.model.restore_window(self.seq_id, windows[stored.length])
            )
            self._drop_after(stored.length)
            self._thin()
        finally:
            if not done:
                self.clear()

    def clear(self) -> None:
        self.model.truncate(self.seq_id, 0)
        self.ids = []
        self.prompt_length = 0
        self.checkpoints = {}


class AcquiredSequence(NamedTuple):
    """A sequence that a prompt continues, and how."""

    sequence: KvSequence
    cached_tokens: int
    shared_prefix: int
    """Longest prefix shared with another sequence: prompts diverge there, worth a checkpoint."""


class PrefixCache:
    """The sequences of a model's memory."""

    def __init__(self, model: LlamaModel, sequences: int, disk: DiskCache | None = None) -> None:
        self._model, self._disk = model, disk
        self._saving: Iterator[None] | None = None
        self.sequences = [KvSequence(model, seq_id) for seq_id in range(sequences)]
        self._spare = KvSequence(model, model.spare_sequence)
        """For auxiliary prompts; other sequences may copy its cells."""
        self._clock = 0

    @property
    def free_sequences(self) -> list[KvSequence]:
        return [s for s in self.sequences if not s.busy]

    def _shared(self, prompt: list[int]) -> dict[KvSequence, int]:
        """Return how many first tokens of a prompt each sequence has, but for the prompt's last one."""
        sources, limit = (*self.sequences, self._spare), len(prompt) - 1
        return {s: min(common_prefix_length(s.ids, prompt), limit) for s in sources}

    def reusable(self, prompt: list[int]) -> int:
        return max(s.reusable(count) for s, count in self._shared(prompt).items())

    def acquire(self, prompt: list[int], draft: bool = False) -> AcquiredSequence:
        """Return a sequence that a job continues with `prompt`, truncated to their common prefix. At
        least the prompt's last token is left to compute. One sequence must be free. ``draft``: the
        prompt is a guess that others will follow which differ at the end."""
        shared = self._shared(prompt)
        reusable = {s: s.reusable(count) for s, count in shared.items()}
        source = max(
            shared, key=lambda s: (reusable[s], s is not self._spare, not s.busy, s.last_used)
        )
        count = reusable[source]
        rewound = source.prompt_length - count
        is_next_turn = rewound <= (DRAFT_REWIND_LIMIT_TOKENS if draft else REWIND_LIMIT_TOKENS)
        if not source.busy and count and is_next_turn and source is not self._spare:
            target = source
        else:
            target = min(self.free_sequences, key=lambda s: (bool(s.ids), s.last_used))
        cached = self._take(target, source, count, len(prompt))
        target.unsaved, target.used_at = True, time.time()
        self._touch(target)
        return AcquiredSequence(target, cached, max(shared.values()))

    def acquire_spare(self, prompt: list[int]) -> AcquiredSequence:
        """Return the spare sequence for a job with `prompt`, an auxiliary one; conversations' sequences
        stay unchanged. It must not be busy; what it has is there until it is needed otherwise."""
        reusable = {s: s.reusable(count) for s, count in self._shared(prompt).items()}
        source = max(reusable, key=lambda s: (reusable[s], s is self._spare))
        cached = self._take(self._spare, source, reusable[source], len(prompt))
        return AcquiredSequence(self._spare, cached, cached)

    def _take(self, target: KvSequence, source: KvSequence, count: int, prompt_length: int) -> int:
        """Let ``target`` have the first tokens of ``source`` for a job; return how many it has."""
        cached = target.truncate(count) if target is source else target.copy_prefix(source, count)
        self._saving = None
        target.busy = True
        target.prompt_length = prompt_length
        return cached

    def release(self, sequence: KvSequence) -> None:
        """Give a sequence back after its job has ended; what is in it can be reused."""
        sequence.busy = False
        self._touch(sequence)

    def stored(self, prompt: list[int], cached: int) -> StoredPrefix | None:
        """Return a prompt's prefix on disk if it is longer than the ``cached`` tokens in memory."""
        if self._disk is None or len(prompt) - cached <= MIN_REUSE_TOKENS:
            return None
        windows, least = bool(self._model.sliding_window), cached + MIN_REUSE_TOKENS - 1
        try:
            prefix = self._disk.find(prompt, windows=windows, longer_than=least)
        except OSError as error:
            self._give_up(error)
            return None
        if prefix:
            self._spare.clear()  # it is read through the spare sequence
        return prefix

    @property
    def unsaved(self) -> bool:
        return self._disk is not None and any(s.unsaved for s in self.free_sequences)

    def save_step(self) -> None:
        """Write a segment of an idle sequence to disk, if anything is missing there."""
        if self._disk is None or self._disk.busy:
            return
        self._saving = self._saving or self._save(self._disk)
        try:
            if next(self._saving, self) is self:
                self._saving = None
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("the prefix cache on disk is not used: %s", error)
        self._disk = None

    def flush(self, seconds: float) -> None:
        if self._disk is not None:
            self._disk.flush(seconds)

    def _save(self, disk: DiskCache) -> Iterator[None]:
        for sequence in sorted(self.free_sequences, key=lambda s: -s.last_used):
            if not sequence.unsaved:
                continue
            if sequence.used_at <= disk.cleared_at():
                sequence.unsaved = False  # it may be of a conversation that was deleted
                continue
            ids = sequence.ids[: sequence.savable_tokens]
            if len(ids) < MIN_REUSE_TOKENS:
                ids = []
            elif len(ids) == len(sequence.ids):
                sequence.save_checkpoint()
            for segment in disk.missing(ids):
                end = segment.start + len(segment.ids)
                self._spare.clear()
                state = self._model.save_range(sequence.seq_id, segment.start, end)
                windows = {
                    length: memoryview(sequence.checkpoints[length]).cast("B")
                    for length in sorted(sequence.checkpoints)
                    if segment.start < length <= end
                }
                disk.write(segment, memoryview(state).cast("B"), windows)
                yield
            sequence.unsaved = False

    def evict(self, spared: Sequence[int] | None = None) -> bool:
        """Empty the least recently used free sequence; return False when there is none. ``spared``: a
        prompt; the sequence that shares the longest prefix with it must stay."""
        if self._spare.ids and not self._spare.busy:
            self._spare.clear()
            return True
        idle = [s for s in self.sequences if s.ids and not s.busy]
        if spared is not None and idle:
            idle.remove(max(idle, key=lambda s: (common_prefix_length(s.ids, spared), s.last_used)))
        if idle:
            min(idle, key=lambda s: s.last_used).clear()
        return bool(idle)

    def reset(self) -> None:
        """Empty everything, after a failure that left the memory in doubt."""
        for sequence in (*self.sequences, self._spare):
            sequence.clear()
        self._model.clear()

    def _touch(self, sequence: KvSequence) -> None:
        self._clock += 1
        sequence.last_used = self._clock
