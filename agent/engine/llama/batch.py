"""The tokens of one llama_decode: pieces of several sequences, side by side."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as lib
import numpy as np
import numpy.typing as npt


class Piece(NamedTuple):
    """Ids to append to one sequence, of which the first has position `start`."""

    sequence: int
    ids: list[int]
    start: int
    output: bool = True
    """The last id's logits can be read afterwards."""


class Batch:
    """Room for the tokens of one llama_decode."""

    def __init__(self, size: int) -> None:
        """`size` in tokens."""
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._sequences = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)  # each token is of one sequence
        # llama.cpp wants a pointer for every token to the list of its sequences.
        self._lists = self._sequences.ctypes.data + 4 * np.arange(size, dtype=np.uint64)
        self.native = lib.llama_batch(
            token=_pointer(self._tokens, ctypes.c_int32),
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._lists, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )
        self.outputs = 0
        """Pieces of the last fill whose logits can be read."""

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Replace what was in it."""
        end = outputs = 0
        for sequence, ids, position, output in pieces:
            start = end
            end += len(ids)
            if end - start == 1:
                self._tokens[start] = ids[0]
                self._positions[start] = position
                self._sequences[start] = sequence
            else:
                self._tokens[start:end] = ids
                self._positions[start:end] = np.arange(position, position + end - start)
                self._sequences[start:end] = sequence
                self._outputs[start:end] = 0
            self._outputs[end - 1] = output
            outputs += output
        self.native.n_tokens = end
        self.outputs = outputs


def _pointer(array: npt.NDArray[Any], to: type[Any]) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(to))
