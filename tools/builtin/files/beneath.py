"""Opens folders beneath another one, whatever other processes do to the path meanwhile: each component
is opened in the folder before it, from the root's descriptor on, and a link is an error. ``openat2``
does that in one call (Linux 5.6), a walk everywhere else."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence

SEARCH_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags that open a folder to reach what is in it; with O_PATH that needs no right to list it."""
OPENAT2_SYSCALL = 437
"""Its number, on every architecture that this runs on."""
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08


def open_folder(root: int, parts: Sequence[str]) -> int:
    """Open a folder beneath the descriptor ``root``; ``parts``: no links, no ``..``. Raises OSError."""
    if sys.platform == "linux":
        try:
            return open_by_openat2(root, parts)
        except OSError as error:
            # An older kernel, or a container's filter that does not know the call.
            if error.errno not in (errno.ENOSYS, errno.EPERM):
                raise
    return open_by_walk(root, parts)


def open_by_openat2(root: int, parts: Sequence[str]) -> int:
    """Do what `open_folder` does in one system call of Linux; raises OSError."""
    import ctypes

    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
    how = (ctypes.c_uint64 * 3)(SEARCH_FLAGS, 0, resolve)
    path = os.fsencode("/".join(parts) or ".")
    folder: int = _libc_syscall()(OPENAT2_SYSCALL, root, path, how, ctypes.c_size_t(24))
    if folder < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "/".join(parts))
    return folder


def open_by_walk(root: int, parts: Sequence[str], *, make: bool = False) -> int:
    """Do what `open_folder` does part by part; ``make``: make missing ones. Raises OSError."""
    folder = os.open(".", SEARCH_FLAGS, dir_fd=root)
    for part in parts:
        try:
            if part == "..":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
            try:
                inner = os.open(part, SEARCH_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                inner = os.open(part, SEARCH_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


@functools.cache
def _libc_syscall() -> Callable[..., int]:
    """Return libc's ``syscall``, which sets ctypes' errno."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True).syscall
