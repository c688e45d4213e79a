"""Wakes an event loop from another thread without giving up the GIL, as ``loop.call_soon_threadsafe``
does: the caller then waits for the loop, 100 µs a token. ctypes.PyDLL keeps it until the caller's next
long native call (https://docs.python.org/3/library/ctypes.html#ctypes.PyDLL)."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress


def _find_c_write() -> Callable[[int, bytes, int], int] | None:
    """Return C's write, called with the GIL held; None on a system without it."""
    try:
        write = ctypes.PyDLL(None).write
    except (AttributeError, OSError, TypeError):  # Windows
        return None
    write.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    write.restype = ctypes.c_ssize_t
    return write


_write_holding_gil = _find_c_write()


class LoopWakeup:
    """Makes an event loop call back; made and closed in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop, self._callback = loop, callback
        self._read_fd = self._write_fd = -1
        if _write_holding_gil is not None:
            self._read_fd, self._write_fd = os.pipe()
            os.set_blocking(self._read_fd, False)
            os.set_blocking(self._write_fd, False)
            try:
                loop.add_reader(self._read_fd, self._on_readable)
            except NotImplementedError:
                self.close()

    def wake(self) -> None:
        """Have the loop call back soon; safe from any thread, but not at the same time as `close`."""
        if _write_holding_gil is not None and self._write_fd >= 0:
            _write_holding_gil(self._write_fd, b"!", 1)
        else:
            self._loop.call_soon_threadsafe(self._callback)

    def _on_readable(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_fd, 64)
        self._callback()

    def close(self) -> None:
        if self._write_fd >= 0:
            with suppress(NotImplementedError):
                self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            os.close(self._write_fd)
            self._read_fd = self._write_fd = -1
