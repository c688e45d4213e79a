"""ctypes bindings of llama.cpp and ggml: llama-cpp-python's own, plus what they lack. All of the
program takes the C API from here. Importing it loads the library, logs to ``agent.llama.cpp``, and
turns an abort into a sentence and exit code 1."""

import ctypes
import importlib.util
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_SPIN_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_SPIN_COUNT = "1000"
"""Rounds that a thread spins for the others of its step before it sleeps. GNU's OpenMP spins for
milliseconds and so keeps slower threads from the cores: with two busy processes, two threads read 2.0
times as fast with 1,000 rounds and decode 3 to 5 times; on quiet cores both are about as fast."""


def _load_cuda_libraries() -> None:
    """Load CUDA from NVIDIA's packages, as a CUDA wheel searches only the system's folders."""
    llama, nvidia = importlib.util.find_spec("llama_cpp"), importlib.util.find_spec("nvidia")
    if not (llama and llama.origin and nvidia and nvidia.submodule_search_locations):
        return
    if not Path(llama.origin, "../lib/libggml-cuda.so").resolve().exists():
        return
    for folder in nvidia.submodule_search_locations:
        for library in ("cudart", "cublasLt", "cublas"):  # each after those that it needs
            for file in sorted(Path(folder).glob(f"*/lib/lib{library}.so.*")):
                with suppress(OSError):
                    ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)


_load_cuda_libraries()
# libgomp reads its environment once, as it is loaded; the programs that we start need not have it.
# `os.environ` stays as it is: copying it in another thread fails for what is deleted meanwhile.
_sets_spin_count = not any(name in os.environ for name in _SPIN_VARIABLES)
if _sets_spin_count:
    os.putenv("GOMP_SPINCOUNT", _SPIN_COUNT)
try:
    import llama_cpp.llama_cpp as lib
    from llama_cpp._ggml import libggml
finally:
    if _sets_spin_count:
        os.unsetenv("GOMP_SPINCOUNT")

__all__ = ["features", "ggml_function", "kv_type_number", "lib", "log_errors", "logged_reason"]

log = logging.getLogger("agent.llama.cpp")
log.addHandler(logging.NullHandler())  # without any handler, Python would print warnings itself

_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}
_LOG_LEVEL_CONT = 5
_ABORT_MESSAGES = ("failed with error 1", "compute status: 1", "failed to decode, ret = 2")
"""Ends of lines that report a decode that we aborted as a failure."""
log_errors: list[str] = []
"""Errors that llama.cpp logged since the last load began."""


class _LogLine:
    """The line that llama.cpp is writing; it arrives in pieces."""

    level = logging.DEBUG
    text = ""


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _forward_log(level: int, text: bytes, _data: object) -> None:
    if level != _LOG_LEVEL_CONT:
        _LogLine.level = _LEVELS.get(level, logging.DEBUG)
    if _LogLine.level == logging.DEBUG and not log.isEnabledFor(logging.DEBUG):
        return
    _LogLine.text += text.decode("utf-8", "replace")
    if _LogLine.text.endswith("\n"):
        line, _LogLine.text = _LogLine.text.rstrip(), ""
        if line.endswith(_ABORT_MESSAGES):
            _LogLine.level = logging.DEBUG
        if _LogLine.level == logging.ERROR:
            log_errors.append(line)
        log.log(_LogLine.level, "%s", line)


lib.llama_log_set(_forward_log, ctypes.c_void_p(0))


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # type: ignore[untyped-decorator]
def _on_abort(message: bytes) -> None:
    """End the process with one sentence when ggml aborts, not with a debugger and a backtrace."""
    detail = message.decode("utf-8", "replace").rpartition("/")[2]
    sentence = f"llama.cpp failed, most likely out of memory ({detail})."
    log.critical("%s", sentence)
    os.write(2, f"agent: {sentence}\n".encode())
    os._exit(1)


libggml.ggml_set_abort_callback(_on_abort)


def ggml_function(name: str, result: Any, *arguments: Any) -> Any:
    """Return a C function of ggml that llama-cpp-python does not declare, with its types set."""
    function = libggml[name]
    function.restype, function.argtypes = result, arguments
    return function


def features() -> list[str]:
    """Name what this build has of the API that llama.cpp 1.0 added
    (https://github.com/ggml-org/llama.cpp/releases/tag/v1.0.0)."""
    has = {
        "expert cache": hasattr(lib.llama_context_params, "moe_cache_size"),
        "FP8 KV cache": kv_type_number("f8") is not None,
        "NextN": hasattr(lib._lib, "llama_set_ctx_state_src"),
    }
    return [name for name, present in has.items() if present]


def kv_type_number(name: str) -> int | None:
    """Return the ggml type of this name, of ``f8`` that of OCP's E4M3; None if this build has none."""
    type_name = ggml_function("ggml_type_name", ctypes.c_char_p, ctypes.c_int)
    names = [(type_name(n) or b"").decode() for n in range(lib.GGML_TYPE_COUNT)]
    found = (n for n, x in enumerate(names) if x == name or (name == "f8" and "e4m3" in x))
    return next(found, None)


def logged_reason() -> str:
    """Return the most specific error that llama.cpp logged, in brackets; empty if there is none."""
    for line in log_errors:
        _, is_load_error, reason = line.partition("error loading model: ")
        if is_load_error:
            return f" ({reason.strip()})"
    return f" ({log_errors[0]})" if log_errors else ""
