"""Files and folders that only their owner can read, and URLs without their secrets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents with mode 0700; raises OSError."""
    for missing in reversed([parent for parent in (path, *path.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def opener(path: str, flags: int) -> int:
    """Open a file, with mode 0600 if it is created; an ``opener`` for the built-in ``open``."""
    return os.open(path, flags, 0o600)


def overwrite_text(path: Path, text: str) -> None:
    """Write a file that a person named: mode 0600 if it is created, else as it was. Raises OSError."""
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        file.write(text)


def restrict_modes(folder: Path) -> list[Path]:
    """Take all rights of others from a folder of ours, then from what is directly in it.

    Returns the paths that were changed; links, and what belongs to others, stay as they are.
    """
    try:
        return [path for path in (folder, *folder.iterdir()) if _restrict_mode(path)]
    except OSError:
        return []


def _restrict_mode(path: Path) -> bool:
    # By path: closing a descriptor would release the locks that SQLite has on its file.
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & 0o077:
            return False
        path.chmod(mode & 0o700)
    except OSError:
        return False
    return True


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, with mode 0600; raises OSError."""
    make_folder(path.parent)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path.resolve())
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for other programs that read and write a file anew, and let none begin. Raises OSError."""
    make_folder(path.parent)
    # A file beside it, for `write_text` puts another one in its place.
    with open(path.with_name(f".{path.name}.lock"), "a", opener=opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def redact_url(url: str) -> str:
    """Return scheme, host and path of a URL, without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
