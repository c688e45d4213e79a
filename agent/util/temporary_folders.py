"""This process's temporary folders, which go with it, or at a later start if it was killed. All are in
a folder with a lock (``flock``), which the kernel releases whatever ends the process."""

import atexit
import contextlib
import fcntl
import os
import tempfile
import threading
from pathlib import Path

from agent.util.folder_limits import remove_tree

PROCESS_PREFIX = "agent-process-"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_locks: dict[Path, int] = {}
"""Descriptors that hold the locks of this process's folders; the newest folder is used."""
_creation = threading.Lock()


def make_temporary_folder(prefix: str) -> Path:
    """Make a temporary folder (mode 0700) that the caller removes. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=process_folder())).resolve()


def process_folder() -> Path:
    """Return the folder in which this process has its temporary files. Raises OSError."""
    with _creation:
        folder = next(reversed(_locks), None)
        if folder is None or not folder.is_dir():  # someone may clear /tmp
            folder = _lock_new_folder()
        return folder


def clear_leftovers(folder: Path | None = None) -> None:
    """Remove what killed processes of this user left; by default next to ours. Raises no OSError."""
    with contextlib.suppress(OSError):
        for leftover in (folder or Path(tempfile.gettempdir())).glob(f"{PROCESS_PREFIX}*"):
            _remove_if_unlocked(leftover)


def clear_leftovers_in_background() -> None:
    """Start a thread that clears leftovers; the process does not wait for it."""
    threading.Thread(target=clear_leftovers, name="clear-leftovers", daemon=True).start()


def _lock_new_folder() -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PROCESS_PREFIX)).resolve()
        try:
            lock = os.open(folder, _FLAGS)
        except FileNotFoundError:
            continue  # another process has cleared it
        with contextlib.suppress(OSError):  # a file system without locks: it is not cleared there
            fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            if not _locks:
                atexit.register(_remove_own, os.getpid())
            _locks[folder] = lock
            return folder
        os.close(lock)


def _remove_if_unlocked(folder: Path) -> None:
    with contextlib.suppress(OSError):  # its process lives
        lock = os.open(folder, _FLAGS)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder)
        finally:
            os.close(lock)


def _remove_own(pid: int) -> None:
    if os.getpid() == pid:  # not in a fork of this process
        for folder in _locks:
            remove_tree(folder)
