"""ctypes bindings of llama.cpp and ggml: llama-cpp-python's own, plus what they lack.

Importing this module loads the library, sends its log to the logger ``agent.llama.cpp`` instead of
stderr, and turns its abort into one sentence and exit code 1.
"""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Any

import llama_cpp.llama_cpp as lib
from llama_cpp._ggml import libggml

__all__ = ["because", "ggml", "lib", "log_errors"]

log = logging.getLogger("agent.llama.cpp")
log.addHandler(logging.NullHandler())  # without any handler, Python would print warnings itself

_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.INFO, 4: logging.ERROR}
_CONTINUED = 5
_ABORTED = ("failed with error 1", "compute status: 1", "failed to decode, ret = 2")
"""How lines end that call a stop that was asked for a failure."""
log_errors: list[str] = []
"""Errors that llama.cpp logged since the last load began."""


class _Line:
    """The line that llama.cpp is writing; it comes in pieces."""

    level = logging.DEBUG
    text = ""


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _forward(level: int, text: bytes, _data: object) -> None:
    if level != _CONTINUED:
        _Line.level = _LEVELS.get(level, logging.DEBUG)
    if _Line.level == logging.DEBUG and not log.isEnabledFor(logging.DEBUG):
        return
    _Line.text += text.decode("utf-8", "replace")
    if _Line.text.endswith("\n"):
        line, _Line.text = _Line.text.rstrip(), ""
        if line.endswith(_ABORTED):
            _Line.level = logging.DEBUG
        if _Line.level == logging.ERROR:
            log_errors.append(line)
        log.log(_Line.level, "%s", line)


lib.llama_log_set(_forward, ctypes.c_void_p(0))


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # type: ignore[untyped-decorator]
def _give_up(message: bytes) -> None:
    """ggml is going to abort, as it does where small pieces of memory are refused. It would call a
    debugger and print what that says."""
    reason = message.decode("utf-8", "replace").rpartition("/")[2]
    sentence = f"llama.cpp gave up, most likely for want of memory ({reason})."
    log.critical("%s", sentence)
    os.write(2, f"agent: {sentence}\n".encode())
    os._exit(1)


libggml.ggml_set_abort_callback(_give_up)


def ggml(name: str, result: Any, *arguments: Any) -> Any:
    """The C function ``name`` of ggml, which llama-cpp-python does not declare, with its types."""
    function = libggml[name]
    function.restype, function.argtypes = result, arguments
    return function


def because() -> str:
    """The most telling of llama.cpp's own words, in brackets."""
    for line in log_errors:
        _, found, reason = line.partition("error loading model: ")
        if found:
            return f" ({reason.strip()})"
    return f" ({log_errors[0]})" if log_errors else ""
