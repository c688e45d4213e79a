"""Files and folders that only their owner can read, and URLs without their secrets."""

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from agent.errors import UserError, describe_cause


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents with mode 0700; raises OSError."""
    for missing in reversed([parent for parent in (path, *path.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def opener(path: str, flags: int) -> int:
    """Open a file, with mode 0600 if it is created; an ``opener`` for the built-in ``open``."""
    return os.open(path, flags, 0o600)


def restrict_modes(folder: Path) -> list[Path]:
    """Take others' rights from a folder of ours and what is directly in it; the changed paths."""
    changed: list[Path] = []
    with contextlib.suppress(OSError):
        for path in (folder, *folder.iterdir()):
            # By path: closing a descriptor would release the locks that SQLite has on its file.
            with contextlib.suppress(OSError):
                mode = path.lstat().st_mode
                if mode & 0o077 and not stat.S_ISLNK(mode):
                    path.chmod(mode & 0o700)
                    changed.append(path)
    return changed


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole: until that succeeds it is as it was. A new file gets mode 0600, an
    existing one keeps its mode; a link still leads to it. Devices, pipes, and files whose folder takes
    no other one are written to. Other hard links keep the former text. Raises OSError."""
    target, data = Path(os.path.realpath(path)), text.encode("utf-8", "replace")
    try:
        before = path.stat()
    except FileNotFoundError:
        before = None
    if before and not (stat.S_ISREG(before.st_mode) and os.access(target.parent, os.W_OK)):
        path.write_bytes(data)
        return
    number, name = tempfile.mkstemp(dir=target.parent, prefix=".agent-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)
            if before:
                with contextlib.suppress(PermissionError):  # only root gives files away
                    os.fchown(number, before.st_uid, before.st_gid)
                os.fchmod(number, stat.S_IMODE(before.st_mode))
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def update_text(path: Path, change: Callable[[str], str]) -> None:
    """Replace a file's text (empty: no file) by what ``change`` makes of it, while no other program
    does so. Raises UserError where that fails, or ``change`` raises ValueError."""
    try:
        if path.is_fifo():
            raise ValueError("it is a pipe")  # reading it waits for a writer
        with locked(path):
            text = path.read_bytes().decode("utf-8") if path.exists() else ""  # with its line ends
            changed = change(text)
            if changed != text:
                write_text(path, changed)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot write {path}: {describe_cause(error)}") from error


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file of ours: a file next to it, which stays, as the file is replaced. Raises
    OSError; BlockingIOError where another has it and this one does not ``wait``."""
    make_folder(path.parent)
    with open(path.with_name(f".{path.name}.lock"), "ab", opener=opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def redact_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "its URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
