"""A GGUF in llama.cpp's memory behind a few typed calls; use a Model in the thread that made it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from agent.engine.llama.batch import Batch, Piece
from agent.engine.llama.bindings import because, lib, log_errors
from agent.engine.placement import gguf_header
from agent.engine.placement.devices import experts_on_cpu
from agent.engine.placement.placement import Placement
from agent.engine.protocol import EngineError, OutOfMemory

Logits = npt.NDArray[np.float32]
State = ctypes.Array[ctypes.c_uint8]
"""A checkpoint of the sliding layers."""
Outcome = Literal["done", "stopped", "full"]
"""Fed · stopped on the way · no cells are left for it."""

ONLY_WINDOW = 1
"""LLAMA_STATE_SEQ_FLAGS_SWA_ONLY: a state without the layers that keep everything."""
_KV_TYPES = {
    "f16": lib.GGML_TYPE_F16,
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q4_0": lib.GGML_TYPE_Q4_0,
}
_FLASH = {
    None: lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    True: lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    False: lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_NO_MEMORY = ("unable to allocate", "failed to allocate", "bad_alloc", "Cannot allocate memory")


def _strlen() -> object:
    """A C function that is true while its argument does not begin with a zero byte."""
    libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    return ctypes.cast(libc.strlen, lib.ggml_abort_callback)


def repacked(placement: Placement) -> bool:
    """Not by itself where a CPU shows AMX: on some virtual machines using that kills the process."""
    if placement.extra_buffers is not None:
        return placement.extra_buffers
    return b"AMX" not in lib.llama_print_system_info()


class Model:
    """A GGUF in memory with one context that several sequences share."""

    def __init__(self, path: Path, placement: Placement, progress: Callable[[float], bool]) -> None:
        """Load `path` laid out as `placement` says; `progress` gets 0…1, its False stops the load.

        Raises EngineError, one sentence.
        """
        self._model: object = None
        self._context: object = None
        _check(path)
        log_errors.clear()
        self._load(path, placement, progress)
        try:
            self._make_context(placement)
        except BaseException:
            self.close()
            raise

    def _load(self, path: Path, placement: Placement, progress: Callable[[float], bool]) -> None:
        params = lib.llama_model_default_params()
        params.n_gpu_layers = placement.gpu_layers
        if placement.split:
            shares = placement.split + (0,) * (lib.llama_max_devices() - len(placement.split))
            params.tensor_split = (ctypes.c_float * len(shares))(*shares)
        if placement.cpu_experts:
            overrides = experts_on_cpu(placement.cpu_experts)
            params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        if said := _without_tokens(path):
            params.kv_overrides = said
        params.use_extra_bufts = repacked(placement)
        params.progress_callback = lib.llama_progress_callback(lambda done, _data: progress(done))
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise _load_failure(path)
        self.vocabulary: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self.window: int = lib.llama_model_n_swa(self._model)
        """Tokens that a sliding layer looks back, 0 without such layers."""

    def _make_context(self, placement: Placement) -> None:
        trained: int = lib.llama_model_n_ctx_train(self._model)
        self.context_length = min(placement.context, trained)
        self.step = step = min(placement.step, self.context_length)
        """Tokens of one prefill chunk."""
        self._stop = ctypes.create_string_buffer(2)
        params = lib.llama_context_default_params()
        params.n_ctx = self.context_length
        params.n_batch = params.n_ubatch = step
        params.n_seq_max = params.n_outputs_max = placement.sequences
        params.kv_unified = True  # sequences share the cells, so each can have the whole context
        params.flash_attn_type = _FLASH[placement.flash_attention]
        params.type_k = params.type_v = _KV_TYPES[placement.kv_type]
        params.swa_full = False
        if not (
            lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        ):  # a state that was half updated cannot be taken back
            params.abort_callback = _strlen()
            params.abort_callback_data = ctypes.cast(self._stop, ctypes.c_void_p)
        self._context = lib.llama_init_from_model(self._model, params)
        if not self._context:
            raise OutOfMemory(
                f"There is not enough memory for a context of {self.context_length:,} tokens:"
                " ask for a shorter one with --context."
            )
        self._memory = lib.llama_get_memory(self._context)
        self._batch = Batch(step)
        self._rows: dict[int, Logits] = {}

    def set_threads(self, decode: int, prefill: int) -> None:
        """Threads for single tokens and for batches."""
        lib.llama_set_n_threads(self._context, decode, prefill)

    def decode(self, pieces: Sequence[Piece]) -> Outcome:
        """Feed at most `step` ids; unless that is ``done`` the memory is as before.

        Raises EngineError.
        """
        self._batch.fill(pieces)
        match lib.llama_decode(self._context, self._batch.native):
            case 0:
                return "done"
            case 1:
                return "full"
            case 2:
                return "stopped"
            case code:
                raise EngineError(f"llama.cpp failed with code {code}{because()}.")

    def logits(self, output: int = 0) -> Logits:
        """The scores of every token, (vocabulary,) float32, after the piece that was the n-th with
        an output; the next decode overwrites them."""
        pointer = lib.llama_get_logits_ith(self._context, output - self._batch.outputs)
        address = ctypes.addressof(pointer.contents)
        if (row := self._rows.get(address)) is None:
            row = self._rows[address] = np.ctypeslib.as_array(pointer, (self.vocabulary,))
        return row

    def stop(self) -> None:
        """Make the running decode return False within milliseconds; safe from any thread."""
        self._stop[0] = b"\1"

    def go_on(self) -> None:
        """Take `stop` back."""
        self._stop[0] = b"\0"

    def first_position(self, sequence: int) -> int:
        """The oldest position of it that all layers still have, -1 when there is none."""
        return int(lib.llama_memory_seq_pos_min(self._memory, sequence))

    def keep(self, sequence: int, count: int) -> bool:
        """Forget all but its first `count` positions; False when the memory cannot do that."""
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, count, -1))

    def share(self, source: int, target: int, count: int) -> None:
        """Let an empty sequence have the first `count` positions of another, in the same cells."""
        lib.llama_memory_seq_cp(self._memory, source, target, 0, count)

    def clear(self) -> None:
        """Forget everything."""
        lib.llama_memory_clear(self._memory, False)

    def checkpoint(self, sequence: int) -> State:
        """What its sliding layers hold now."""
        size = lib.llama_state_seq_get_size_ext(self._context, sequence, ONLY_WINDOW)
        state: State = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data_ext(self._context, state, size, sequence, ONLY_WINDOW)
        return state

    def restore(self, sequence: int, state: State) -> bool:
        """Put a checkpoint of this or another sequence into cells of its own; the other layers
        must hold its positions."""
        size = len(state)
        done = lib.llama_state_seq_set_data_ext(self._context, state, size, sequence, ONLY_WINDOW)
        return bool(done == size)

    def close(self) -> None:
        """Free everything native; the model is unusable afterwards."""
        if self._context:
            lib.llama_free(self._context)
        if self._model:
            lib.llama_model_free(self._model)
        self._context = self._model = None


def _check(path: Path) -> None:
    """Find what llama.cpp would report badly."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise EngineError(f"There is no model file {path}.") from None
    except IsADirectoryError:
        raise EngineError(f"{path} is a folder: name the GGUF file in it.") from None
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}.") from None
    if magic != b"GGUF":
        raise EngineError(f"{path} is not a GGUF file.")


def _without_tokens(path: Path) -> object:
    """What is said to llama.cpp in place of the file: it has no words, only so many numbers. Reading
    200,000 tokens and their merges takes it half a second, and nobody asks it for them."""
    try:
        architecture, count = gguf_header.vocabulary(path)
    except EngineError:
        return None  # llama.cpp will say what is wrong with it
    if len(size := f"{architecture}.vocab_size".encode()) >= lib.llama_model_kv_override.key.size:
        return None  # likewise
    said = (lib.llama_model_kv_override * 3)()  # the last, empty, ends the list
    said[0].key, said[0].tag = b"tokenizer.ggml.model", lib.LLAMA_KV_OVERRIDE_TYPE_STR
    said[0].value.val_str = b"none"
    said[1].key, said[1].tag = size, lib.LLAMA_KV_OVERRIDE_TYPE_INT
    said[1].value.val_i64 = count
    return said


def _load_failure(path: Path) -> EngineError:
    reasons = " ".join(log_errors)
    if "unknown model architecture" in reasons:
        return EngineError(f"{path} cannot be loaded{because()}: this llama.cpp does not know it.")
    if any(word in reasons for word in ("not within the file bounds", "failed to read")):
        return EngineError(f"{path} is incomplete: fetch it again.")
    if any(word in reasons for word in _NO_MEMORY):
        return OutOfMemory(f"There is not enough memory for {path}: choose a smaller model.")
    return EngineError(f"{path} cannot be loaded{because()}.")
