"""Applies penalties and logit biases to the tokens that they concern: OpenAI's presence_penalty,
frequency_penalty and logit_bias (https://platform.openai.com/docs/api-reference/completions/create),
llama.cpp's repeat_penalty (llama_sampler_init_penalties in
https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from agent.engine.llama.model import Logits
from agent.engine.protocol import Sampling

REPEAT_WINDOW_TOKENS = 64
"""Tokens that repeat_penalty looks back, prompt included (llama.cpp's repeat_last_n)."""


class Penalties:
    """One generation's penalties and biases. A token that has a bias or was generated has a slot n:
    ``_tokens[n]`` int64 is its id, ``_offsets[n]`` float32 is added to its logit, ``_generated[n]``
    bool says which. The arrays have spare slots at the end."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], vocabulary_size: int) -> None:
        """Biases of ids that are not in the vocabulary are ignored."""
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._repeat = sampling.repeat_penalty
        self._recent = deque(prompt[-REPEAT_WINDOW_TOKENS:], REPEAT_WINDOW_TOKENS)
        biases = dict(pair for pair in sampling.logit_bias if 0 <= pair[0] < vocabulary_size)
        self._slots = {token: slot for slot, token in enumerate(biases)}
        self._tokens = np.array([*biases], np.int64)
        self._offsets = np.array([*biases.values()], np.float32)
        self._generated = np.zeros(len(biases), np.bool_)

    @staticmethod
    def needed(sampling: Sampling) -> bool:
        s = sampling
        return bool(
            s.presence_penalty or s.frequency_penalty or s.repeat_penalty != 1 or s.logit_bias
        )

    @contextmanager
    def applied(self, logits: Logits) -> Iterator[None]:
        """Change the logits, (vocabulary,) float32, in place; they are restored afterwards."""
        tokens = self._tokens[: len(self._slots)]
        recent = np.fromiter(self._recent, np.int64) if self._repeat != 1 else tokens[:0]
        before, earlier = logits[tokens], logits[recent]
        logits[recent] = np.where(earlier > 0, earlier / self._repeat, earlier * self._repeat)
        logits[tokens] += self._offsets[: len(tokens)]
        try:
            yield
        finally:
            logits[recent] = earlier
            logits[tokens] = before

    def record(self, token: int) -> None:
        self._recent.append(token)
        if not (self._presence or self._frequency):
            return
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._tokens):
            self._grow()
        self._tokens[slot] = token
        is_repeat = self._generated[slot]
        self._offsets[slot] -= self._frequency if is_repeat else self._frequency + self._presence
        self._generated[slot] = True

    def _grow(self) -> None:
        more = max(REPEAT_WINDOW_TOKENS, len(self._tokens))
        self._tokens = np.append(self._tokens, np.zeros(more, np.int64))
        self._offsets = np.append(self._offsets, np.zeros(more, np.float32))
        self._generated = np.append(self._generated, np.zeros(more, np.bool_))
