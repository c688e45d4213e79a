"""Waking an event loop from a thread that goes on at once.

``loop.call_soon_threadsafe`` gives the interpreter's lock away while it writes to its socket. The loop
takes it, and the thread waits until the loop has done its work: 100 µs beside a token. Here the lock
stays until the thread gives it up by itself, in its next long native call.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress


def _keeping_the_lock() -> Callable[[int, bytes, int], int] | None:
    """C's write, called without giving the interpreter's lock away; None where there is none."""
    try:
        write = ctypes.PyDLL(None).write
    except (AttributeError, OSError, TypeError):  # Windows
        return None
    write.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    write.restype = ctypes.c_ssize_t
    return write


_write = _keeping_the_lock()


class Bell:
    """Makes a loop call back; to be made and closed in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[], object]) -> None:
        self._loop, self._answer = loop, answer
        self._out = self._in = -1
        if _write is not None:
            self._out, self._in = os.pipe()
            os.set_blocking(self._out, False)
            os.set_blocking(self._in, False)
            try:
                loop.add_reader(self._out, self._hear)
            except NotImplementedError:
                self.close()

    def ring(self) -> None:
        """Have the loop call back soon; from any thread, but not beside `close`."""
        if _write is not None and self._in >= 0:
            _write(self._in, b"!", 1)
        else:
            self._loop.call_soon_threadsafe(self._answer)

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._out, 64)
        self._answer()

    def close(self) -> None:
        """Free the pipe."""
        if self._in >= 0:
            with suppress(NotImplementedError):
                self._loop.remove_reader(self._out)
            os.close(self._out)
            os.close(self._in)
            self._out = self._in = -1
