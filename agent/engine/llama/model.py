"""A GGUF loaded by llama.cpp (https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h),
behind a few typed calls; for one thread, but for `abort`."""

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from agent.engine.llama.bindings import (
    ggml_function,
    kv_type_number,
    lib,
    log_errors,
    logged_reason,
)
from agent.engine.llama.thread_balance import ThreadBalance
from agent.engine.placement import gguf_header
from agent.engine.placement.placement import Placement, ThreadCounts
from agent.engine.protocol import EngineError, OutOfMemoryError

Logits = npt.NDArray[np.float32]
"""The score of each token, (vocabulary_size,) float32."""
WindowState = ctypes.Array[ctypes.c_uint8]
"""A copy of the sliding layers' windows, as llama_state_seq_get_data_ext writes it."""
RangeState = ctypes.Array[ctypes.c_uint8]
"""A copy of some positions of a sequence, of the sliding layers what they still have, likewise."""
DecodeOutcome = Literal["done", "stopped", "full"]
"""All tokens were computed · the decode was aborted · the KV cache has too few free cells."""

STATE_SEQ_FLAGS_SWA_ONLY = 1
"""LLAMA_STATE_SEQ_FLAGS_SWA_ONLY of llama.h: a state of the sliding layers alone."""
_FLASH_ATTENTION = {
    None: lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    True: lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    False: lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_MEMORY_ERRORS = ("unable to allocate", "failed to allocate", "bad_alloc", "Cannot allocate memory")


class BatchSpan(NamedTuple):
    """Token ids to append to one sequence; the first one has position `start`."""

    seq_id: int
    ids: list[int]
    start: int
    outputs: int = 1
    """Number of ids, counted from the last, whose logits are computed."""


class Batch:
    """The tokens of one llama_decode, in numpy arrays that are filled in place, faster than ctypes'.
    ``native``: a llama_batch of arrays (size,): token, pos int32, n_seq_id int32 (always 1), seq_id
    pointers to int32, logits int8."""

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


def uses_repacked_weights(placement: Placement) -> bool:
    """Whether weights are repacked; by default not with AMX, which kills processes on some VMs."""
    if placement.extra_buffers is not None:
        return placement.extra_buffers
    return b"AMX" not in lib.llama_print_system_info()


class LlamaModel:
    """A loaded GGUF with one context, which several sequences share."""

    def __init__(self, path: Path, placement: Placement, progress: Callable[[float], bool]) -> None:
        """Load `path`; `progress` gets 0…1 and returns False to abort the load. Raises EngineError."""
        self._model: object = None
        self._context: object = None
        self._balance: ThreadBalance | None = None
        _check_file(path)
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
        if split := placement.tensor_split:
            shares = split + (0,) * (lib.llama_max_devices() - len(split))
            params.tensor_split = (ctypes.c_float * len(shares))(*shares)
        if placement.cpu_experts:
            expert_overrides = _cpu_expert_overrides(placement.cpu_experts)
            params.tensor_buft_overrides = ctypes.cast(expert_overrides, ctypes.c_void_p)
        if overrides := _vocabulary_overrides(path):
            params.kv_overrides = overrides
        params.use_extra_bufts = uses_repacked_weights(placement)
        params.progress_callback = lib.llama_progress_callback(lambda done, _data: progress(done))
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise _load_failure(path)
        self.vocabulary_size: int = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self.sliding_window: int = lib.llama_model_n_swa(self._model)
        """Tokens that a sliding layer looks back (n_swa); 0 without such layers."""

    def _make_context(self, placement: Placement) -> None:
        trained: int = lib.llama_model_n_ctx_train(self._model)
        self.context_length = min(placement.context, trained)
        self.ubatch = ubatch = min(placement.ubatch, self.context_length)
        self._abort_flag = ctypes.create_string_buffer(2)
        params = lib.llama_context_default_params()
        params.n_ctx = self.context_length
        params.n_batch = params.n_ubatch = ubatch
        params.n_seq_max, params.n_outputs_max = placement.kv_sequences, placement.outputs
        self.spare_sequence = placement.sequences
        """Id of the sequence behind the others. It must be empty where a part of another sequence is
        copied out or in (`save_range`, `restore_range`), and is afterwards."""
        params.kv_unified = True  # sequences share the cells, so each can have the full context
        params.flash_attn_type = _FLASH_ATTENTION[placement.flash_attention]
        kv_type = kv_type_number(placement.kv_type)
        if kv_type is None or (placement.expert_cache and not hasattr(params, "moe_cache_size")):
            raise EngineError('kv_type = "f8" and expert_cache need llama.cpp 1.0 or newer.')
        params.type_k = params.type_v = kv_type
        params.moe_cache_size = placement.expert_cache  # no field of an older llama.cpp
        params.swa_full = False
        self.can_save_ranges = not (
            lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        )
        """Whether a part of a sequence can be copied or removed: a recurrent state has no parts."""
        if self.can_save_ranges:  # a recurrent state that was half updated cannot be restored
            # strlen is the callback: a Python one would take the GIL for each node.
            strlen = ctypes.CDLL(None).strlen
            params.abort_callback = ctypes.cast(strlen, lib.ggml_abort_callback)
            params.abort_callback_data = ctypes.cast(self._abort_flag, ctypes.c_void_p)
        self._context = lib.llama_init_from_model(self._model, params)
        if not self._context:
            raise OutOfMemoryError(
                f"There is not enough memory for a context of {self.context_length:,} tokens:"
                " ask for a shorter one with --context."
            )
        self._memory = lib.llama_get_memory(self._context)
        self._batch = Batch(ubatch)
        self._logit_rows: dict[int, Logits] = {}

    def set_threads(self, decode: int, prefill: int) -> None:
        lib.llama_set_n_threads(self._context, decode, prefill)

    def balance_threads(self, threads: ThreadCounts, most: int) -> None:
        """Change the threads from ``threads``, up to ``most``, as other programs take the cores."""

        def apply(count: int) -> None:
            prefill = threads.prefill * count // threads.decode
            self.set_threads(count, min(max(prefill, 1), most))

        self._balance = ThreadBalance(threads.decode, most, apply)

    def decode(self, spans: Sequence[BatchSpan]) -> DecodeOutcome:
        """Compute `ubatch` tokens at most; only ``done`` changes the KV cache. Raises EngineError."""
        self._batch.fill(spans)
        if self._balance is None:
            code = lib.llama_decode(self._context, self._batch.native)
        else:
            code = self._decode_balanced(self._balance)
        match code:
            case 0:
                return "done"
            case 1:
                return "full"
            case 2:
                return "stopped"
            case code:
                raise EngineError(f"llama.cpp failed with code {code}{logged_reason()}.")

    def _decode_balanced(self, balance: ThreadBalance) -> int:
        began_at = time.perf_counter()
        is_token = self._batch.native.n_tokens == 1
        if not is_token:
            balance.end_trial(began_at)
        # Threads that wait for each other on busy cores can take seconds for a token.
        timer = None if (limit := balance.trial_seconds) is None else Timer(limit, self.abort)
        if timer:
            timer.start()
        code: int = lib.llama_decode(self._context, self._batch.native)
        if timer:
            timer.cancel()
        now = time.perf_counter()
        if code:
            balance.end_trial(now)
        elif is_token:
            balance.record(now - began_at, now)
        return code

    def logits(self, output: int = 0) -> Logits:
        """The n-th logits, (vocabulary_size,) float32: a view that the next decode overwrites."""
        pointer = lib.llama_get_logits_ith(self._context, output - self._batch.output_count)
        address = ctypes.addressof(pointer.contents)
        if (row := self._logit_rows.get(address)) is None:
            row = np.ctypeslib.as_array(pointer, (self.vocabulary_size,))
            self._logit_rows[address] = row
        return row

    def synchronize(self) -> None:
        """Wait until the last decode has been computed; GPUs still compute after it has returned."""
        lib.llama_synchronize(self._context)

    def abort(self) -> None:
        """Make the running decode return ``stopped`` within milliseconds; safe from any thread."""
        self._abort_flag[0] = b"\1"

    def clear_abort(self) -> None:
        self._abort_flag[0] = b"\0"

    def first_position(self, seq_id: int) -> int:
        """Return the oldest position of a sequence that all layers still have; -1: it is empty."""
        return int(lib.llama_memory_seq_pos_min(self._memory, seq_id))

    def truncate(self, seq_id: int, count: int) -> bool:
        """Remove all but the first `count` positions of a sequence; False if that is impossible."""
        return bool(lib.llama_memory_seq_rm(self._memory, seq_id, count, -1))

    def copy_prefix(self, source: int, target: int, count: int) -> None:
        """Add the first `count` positions of a sequence to another, empty one, in the same cells."""
        lib.llama_memory_seq_cp(self._memory, source, target, 0, count)

    def clear(self) -> None:
        lib.llama_memory_clear(self._memory, False)

    def save_window(self, seq_id: int) -> WindowState:
        return self._save_state(seq_id, STATE_SEQ_FLAGS_SWA_ONLY)

    def restore_window(self, seq_id: int, state: WindowState) -> bool:
        """Write windows, of this or another sequence, into cells of the sequence's own; False if
        there was no room. The layers with full attention must have these positions."""
        return self._restore_state(seq_id, state, STATE_SEQ_FLAGS_SWA_ONLY)

    def save_range(self, seq_id: int, start: int, end: int) -> RangeState:
        """Copy the positions from `start` to `end`, exclusive, of a sequence."""
        spare = self.spare_sequence
        lib.llama_memory_seq_cp(self._memory, seq_id, spare, start, end)
        try:
            return self._save_state(spare, 0)
        finally:
            self.truncate(spare, 0)

    def restore_range(self, seq_id: int, state: RangeState, start: int, end: int) -> bool:
        """Append positions `start` to `end`; False: there was no room, or the copy is of others."""
        spare = self.spare_sequence
        done = self._restore_state(spare, state, 0)
        if done:
            lib.llama_memory_seq_cp(self._memory, spare, seq_id, start, end)
        self.truncate(spare, 0)
        return done

    def _save_state(self, seq_id: int, flags: int) -> ctypes.Array[ctypes.c_uint8]:
        size = lib.llama_state_seq_get_size_ext(self._context, seq_id, flags)
        state: ctypes.Array[ctypes.c_uint8] = (ctypes.c_uint8 * size)()
        lib.llama_state_seq_get_data_ext(self._context, state, size, seq_id, flags)
        return state

    def _restore_state(self, seq_id: int, state: ctypes.Array[ctypes.c_uint8], flags: int) -> bool:
        size = len(state)
        done = lib.llama_state_seq_set_data_ext(self._context, state, size, seq_id, flags)
        return bool(done == size)

    def close(self) -> None:
        if self._context:
            lib.llama_free(self._context)
        if self._model:
            lib.llama_model_free(self._model)
        self._context = self._model = None


class _BufferTypeOverride(ctypes.Structure):
    """llama.h's llama_model_tensor_buft_override: the buffer type of tensors that match a pattern."""

    _fields_ = [("pattern", ctypes.c_char_p), ("type", ctypes.c_void_p)]


def _cpu_expert_overrides(layers: int) -> ctypes.Array[_BufferTypeOverride]:
    """The model parameter that leaves the first layers' experts in memory (--n-cpu-moe)."""
    overrides = (_BufferTypeOverride * 2)()  # the second, empty, ends the list
    numbers = "|".join(map(str, range(layers)))
    overrides[0].pattern = rf"^blk\.({numbers})\.ffn_.*_exps\.".encode()
    overrides[0].type = ggml_function("ggml_backend_cpu_buffer_type", ctypes.c_void_p)()
    return overrides


def _check_file(path: Path) -> None:
    """Check for the problems that llama.cpp would report unclearly. Raises EngineError."""
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


def _vocabulary_overrides(path: Path) -> object:
    """KV overrides to skip llama.cpp's tokenizer, which takes half a second and is not used."""
    try:
        architecture, count = gguf_header.read_vocabulary_size(path)
    except EngineError:
        return None  # llama.cpp will say what is wrong with it
    if len(size := f"{architecture}.vocab_size".encode()) >= lib.llama_model_kv_override.key.size:
        return None  # likewise
    overrides = (lib.llama_model_kv_override * 3)()  # the last, empty, ends the list
    overrides[0].key, overrides[0].tag = b"tokenizer.ggml.model", lib.LLAMA_KV_OVERRIDE_TYPE_STR
    overrides[0].value.val_str = b"none"
    overrides[1].key, overrides[1].tag = size, lib.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[1].value.val_i64 = count
    return overrides


def _load_failure(path: Path) -> EngineError:
    reasons = " ".join(log_errors)
    if "unknown model architecture" in reasons:
        return EngineError(
            f"{path} cannot be loaded{logged_reason()}: this llama.cpp does not know it."
        )
    if any(word in reasons for word in ("not within the file bounds", "failed to read")):
        return EngineError(f"{path} is incomplete: download it again.")
    if any(word in reasons for word in _MEMORY_ERRORS):
        return OutOfMemoryError(f"There is not enough memory for {path}: choose a smaller model.")
    return EngineError(f"{path} cannot be loaded{logged_reason()}.")
