"""Files, folders and links below a root as values: how they are, and making them so."""

import contextlib
import functools
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Self

from tools.builtin.files.root_folder import MAX_FILE_BYTES, RootFolder, open_folder
from tools.builtin_server import ToolError

MAX_ENTRIES, SCAN_SECONDS = 50_000, 5.0
"""A root with more files and folders, or that takes more CPU time to look at, is not scanned."""
SKIPPED_NAMES = frozenset(
    (".git", ".hg", ".jj", ".svn", "node_modules", ".venv", "venv", ".tox", ".nox", "__pycache__")
    + (".mypy_cache", ".pytest_cache", ".ruff_cache", ".gradle", ".next", ".direnv")
)
"""Folders that a scan leaves out: version control's, and those that programs fill and make again."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, folder or link as it was."""

    kind: str
    """file, folder, link or other"""
    mode: int = 0
    content: str = ""
    """A file's digest, or ``~`` and size and time of one that is not read; a link's target."""

    @property
    def is_read(self) -> bool:
        return self.kind != "other" and not (self.kind == "file" and self.content.startswith("~"))

    def encoded(self) -> bytes:
        return os.fsencode(f"{self.kind} {self.mode:o} {self.content}")

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        kind, mode, content = os.fsdecode(data).split(" ", 2)
        return cls(kind, int(mode, 8), content)


State = FileEntry | None
"""A path's state, now or before; None: there is nothing."""


def new_file(data: bytes, before: State = None) -> FileEntry:
    """Return a file's state once it is written; one that is replaced keeps its mode."""
    mode = before.mode if before and before.kind == "file" else 0o666 & ~_umask()
    return FileEntry("file", mode, digest(data))


def new_folder() -> FileEntry:
    return FileEntry("folder", 0o777 & ~_umask())


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


@functools.cache
def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


def unread_file(status: os.stat_result) -> FileEntry:
    text = f"~{status.st_size} {status.st_mtime_ns}"
    return FileEntry("file", stat.S_IMODE(status.st_mode), text)


class FileTree:
    """Reads and changes what is below a root, by paths relative to it, and never through a link. Its
    methods raise OSError and ToolError."""

    def __init__(self, root: RootFolder) -> None:
        self._root = root

    def status(self, path: str) -> os.stat_result | None:
        """Return a path's status; None: there is nothing. Raises ToolError if a link leads to it."""
        if (status := self._root.entry(self._root.path / path)) is None:
            for parent in PurePath(path).parents:
                entry = self._root.entry(self._root.path / parent)
                if entry and stat.S_ISLNK(entry.st_mode):
                    raise ToolError(f"{parent} is a link now")
        return status

    def state(self, path: str, contents: dict[str, bytes] | None = None) -> State:
        """Return how a path is now. ``contents``: takes a file's content, by its digest."""
        if (status := self.status(path)) is None:
            return None
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            return FileEntry("folder", mode)
        if stat.S_ISREG(status.st_mode) and status.st_size > MAX_FILE_BYTES:
            return unread_file(status)
        with self._root.parent(self._root.path / path) as (folder, name):
            if stat.S_ISLNK(status.st_mode):
                return FileEntry("link", 0, os.readlink(name, dir_fd=folder))
            if not stat.S_ISREG(status.st_mode):
                return FileEntry("other", mode)
            try:
                number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            except PermissionError:
                return unread_file(status)
        with os.fdopen(number, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            return unread_file(status)
        if contents is not None:
            contents[digest(data)] = data
        return FileEntry("file", mode, digest(data))

    def scan(self) -> dict[str, os.stat_result] | None:
        """Return the status of all that is below the root; None: there is too much."""
        deadline, found = time.thread_time() + SCAN_SECONDS, dict[str, os.stat_result]()
        folders, private = [""], self._root.private_paths()
        while folders:
            if len(found) > MAX_ENTRIES or time.thread_time() > deadline:
                return None
            folder = folders.pop()
            start = f"{folder}/" if folder else ""
            try:
                with self._root.scan(self._root.path / folder) as entries:
                    for entry in entries:
                        path, is_folder = start + entry.name, entry.is_dir(follow_symlinks=False)
                        if path in private or (is_folder and entry.name in SKIPPED_NAMES):
                            continue
                        found[path] = entry.stat(follow_symlinks=False)
                        if is_folder:
                            folders.append(path)
                        elif len(found) > MAX_ENTRIES:
                            return None
            except (OSError, ToolError):
                continue  # it may not be read, or is gone
        return found

    def apply(
        self, targets: Mapping[str, State], load: Callable[[str], bytes | None],
        on_temporary: Callable[[Iterable[str]], None], *, strict: bool = True,
    ) -> dict[str, str]:  # fmt: skip
        """Make each path what it has to be. ``load``: a content by its digest. ``on_temporary``: takes
        the names that are used meanwhile. Returns the paths that failed, with the reason; ``strict``:
        raises the first."""
        failed: dict[str, str] = {}
        names = {path: f".{PurePath(path).name[:50]}.{secrets.token_hex(4)}" for path in targets}
        on_temporary(str(PurePath(path).with_name(name)) for path, name in names.items())

        def attempt(
            paths: Iterable[str], act: Callable[[int, str, State, str], None], *, make: bool = False
        ) -> None:
            for path in paths:
                target, real = targets[path], self._root.path / path
                try:
                    if path not in failed:
                        is_made = make and target is not None
                        with self._root.parent(real, make=is_made) as (folder, name):
                            act(folder, name, target, names[path])
                except (OSError, ToolError) as error:
                    if isinstance(error, FileNotFoundError | NotADirectoryError) and not is_made:
                        continue  # there is no folder to change anything in
                    if strict:
                        raise
                    failed[path] = failure(error)

        def create(folder: int, name: str, target: State, temporary: str) -> None:
            if target is not None and target.kind == "folder":
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700 | target.mode, dir_fd=folder)
            elif target is not None:
                data = load(target.content) if target.kind == "file" else None
                _replace(folder, name, target, temporary, data)

        downwards = sorted(targets, key=lambda path: path.count("/"))
        attempt(downwards, _take_rights)
        attempt(reversed(downwards), _remove)
        attempt(downwards, create, make=True)
        attempt(reversed(downwards), _set_mode)
        on_temporary(())
        return failed

    def remove_file(self, path: str) -> None:
        real = self._root.path / path
        with contextlib.suppress(OSError, ToolError), self._root.parent(real) as (folder, name):
            os.unlink(name, dir_fd=folder)


def failure(error: Exception) -> str:
    reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
    return f"cannot be changed: {reason}"


def _replace(folder: int, name: str, target: FileEntry, temporary: str, data: bytes | None) -> None:
    try:
        if target.kind == "link":
            os.symlink(target.content, temporary, dir_fd=folder)
        else:
            assert data is not None, "the plan has seen that it is kept"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), target.mode)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _mode(folder: int, name: str) -> int:
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode


def _take_rights(folder: int, name: str, target: State, _: str) -> None:
    """Give the owner all rights to a folder, in which something may change now."""
    with contextlib.suppress(FileNotFoundError):
        mode = _mode(folder, name)
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            _change_mode(folder, name, stat.S_IMODE(mode) | 0o700)


def _remove(folder: int, name: str, target: State, _: str) -> None:
    """Remove what has another kind than what is to come; files and links are replaced at once."""
    try:
        is_folder = stat.S_ISDIR(_mode(folder, name))
    except FileNotFoundError:
        return
    if is_folder and (target is None or target.kind != "folder"):
        os.rmdir(name, dir_fd=folder)
    elif not is_folder and (target is None or target.kind == "folder"):
        os.unlink(name, dir_fd=folder)


def _set_mode(folder: int, name: str, target: State, _: str) -> None:
    if target is not None and target.kind == "folder":
        _change_mode(folder, name, target.mode)


def _change_mode(folder: int, name: str, mode: int) -> None:
    """Change a folder's mode, of none that a link leads to."""
    inner = open_folder(folder, (name,))
    try:
        path = Path(f"/proc/self/fd/{inner}")  # a descriptor to search gives no right to do it
        if path.exists():
            path.chmod(mode)
        else:
            os.fchmod(inner, mode)
    finally:
        os.close(inner)
