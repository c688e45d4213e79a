"""Measures and removes folders that someone hostile may have filled: however deep, however many."""

import contextlib
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 100
"""Folders nested deeper are not looked into: a path of them soon exceeds the kernel's PATH_MAX."""
HIDDEN_ENTRIES = 1_000_000
"""Number of entries that a folder counts as if it is nested deeper, or cannot be read."""
HIDING_ERRORS = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}
"""Errors that someone hostile can cause in their own folder; others are this program's."""
BATCH_ENTRIES = 1_000
"""Names that are in memory at a time while a folder is removed."""


@dataclass(frozen=True, slots=True)
class FolderUsage:
    """The usage of a folder on its file system."""

    bytes: int
    """Allocated bytes. A file with several names below the folder counts once for each."""
    entries: int
    """Files, folders and links."""


def measure_folder(
    folder: Path,
    max_bytes: float = float("inf"),
    max_entries: float = float("inf"),
    hidden_entries: int = HIDDEN_ENTRIES,
) -> FolderUsage:
    """Count what is below a folder, without links, until a maximum is exceeded. ``hidden_entries``: for
    a folder too deep or unreadable. Takes 10 µs an entry. Raises no OSError."""
    used_bytes = entries = 0
    pending = [(str(folder), 0)]
    while pending:
        path, depth = pending.pop()
        try:
            for name, status in _scan(path, depth):
                used_bytes += status.st_blocks * 512
                entries += 1
                if stat.S_ISDIR(status.st_mode):
                    pending.append((name, depth + 1))
                if used_bytes > max_bytes or entries > max_entries:
                    return FolderUsage(used_bytes, entries)
        except OSError as error:
            entries += hidden_entries if error.errno in HIDING_ERRORS else 0
    return FolderUsage(used_bytes, entries)


def remove_changed_since(folder: Path, changed_ns: int) -> None:
    """Remove files whose status changed at ``changed_ns`` or later, and folders empty then."""
    pending, changed = [(str(folder), 0, False)], list[tuple[str, bool]]()
    while pending:
        path, depth, is_new = pending.pop()
        try:
            for name, status in _scan(path, depth):
                is_folder = stat.S_ISDIR(status.st_mode)
                is_changed = status.st_ctime_ns >= changed_ns
                if is_folder:
                    pending.append((name, depth + 1, is_changed))
                if is_changed:
                    changed.append((name, is_folder))
        except OSError as error:
            if is_new and error.errno in HIDING_ERRORS:
                remove_tree(Path(path))
    for name, is_folder in reversed(changed):
        with contextlib.suppress(OSError):
            Path(name).rmdir() if is_folder else Path(name).unlink()


def remove_tree(folder: Path) -> bool:
    """Remove a folder and all below it; return whether it is gone. Not recursive: each folder's own
    folders are moved up first. Follows no links and raises no OSError."""
    numbers, prefix = itertools.count(), f".removed-{secrets.token_hex(8)}"
    with contextlib.suppress(OSError), _opened(str(folder), None) as top:

        def remove(entry: os.DirEntry[str]) -> None:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=top)
                return
            with _opened(entry.name, top) as inner:
                _drain(inner, lambda child: lift(child, inner))
            os.rmdir(entry.name, dir_fd=top)

        def lift(child: os.DirEntry[str], inner: int) -> None:
            if not child.is_dir(follow_symlinks=False):
                os.unlink(child.name, dir_fd=inner)
                return
            name = f"{prefix}-{next(numbers)}"
            try:
                os.rename(child.name, name, src_dir_fd=inner, dst_dir_fd=top)
            except PermissionError:  # its own ``..`` is written
                os.chmod(child.name, 0o700, dir_fd=inner)
                os.rename(child.name, name, src_dir_fd=inner, dst_dir_fd=top)

        _drain(top, remove)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not os.path.lexists(folder)


def _scan(path: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of a folder's entries; raises OSError if it is unreadable or too deep."""
    if depth > MAX_DEPTH:
        raise OSError(errno.ENAMETOOLONG, "nested too deep", path)
    with os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.path, entry.stat(follow_symlinks=False)


def _drain(folder: int, remove: Callable[[os.DirEntry[str]], None]) -> None:
    """Call ``remove`` for a folder's entries until none is left but those for which it fails."""
    failed: set[str] = set()
    while True:
        with os.scandir(folder) as entries:
            removable = (entry for entry in entries if entry.name not in failed)
            batch = list(itertools.islice(removable, BATCH_ENTRIES))
        if not batch:
            return
        for entry in batch:
            try:
                remove(entry)
            except OSError:
                failed.add(entry.name)


@contextlib.contextmanager
def _opened(name: str, parent: int | None) -> Iterator[int]:
    """Open a folder for listing, also one whose mode forbids its owner that; raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent)
        descriptor = os.open(name, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
