"""Builds a llama_batch (https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h): spans of
several sequences, in numpy arrays that are filled in place, faster than ctypes'."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agent.engine.llama.bindings import lib


class BatchSpan(NamedTuple):
    """Token ids to append to one sequence; the first one has position `start`."""

    seq_id: int
    ids: list[int]
    start: int
    outputs: int = 1
    """Number of ids, counted from the last, whose logits are computed."""


class Batch:
    """The tokens of one llama_decode. ``native``: a llama_batch of arrays (size,): token, pos int32,
    n_seq_id int32 (always 1), seq_id pointers to int32, logits int8."""

    def __init__(self, size: int) -> None:
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._sequences = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)  # each token is in one sequence
        # llama.cpp takes a pointer for each token to the list of its sequences.
        self._lists = self._sequences.ctypes.data + 4 * np.arange(size, dtype=np.uint64)
        self.native = lib.llama_batch(
            token=_pointer(self._tokens, ctypes.c_int32),
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._lists, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )
        self.output_count = 0
        """Ids of the last fill whose logits can be read."""

    def fill(self, spans: Sequence[BatchSpan]) -> None:
        end = total = 0
        for seq_id, ids, position, outputs in spans:
            start = end
            end += len(ids)
            if end - start == 1:
                self._tokens[start] = ids[0]
                self._positions[start] = position
                self._sequences[start] = seq_id
                self._outputs[start] = outputs
            else:
                self._tokens[start:end] = ids
                self._positions[start:end] = np.arange(position, position + end - start)
                self._sequences[start:end] = seq_id
                self._outputs[start:end] = 0
                self._outputs[end - outputs : end] = 1
            total += outputs
        self.native.n_tokens = end
        self.output_count = total


def _pointer(array: npt.NDArray[Any], to: type[Any]) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(to))
