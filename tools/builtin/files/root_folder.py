"""Resolves the paths that a model names, and refuses those outside of one folder, also by links. The
*real* path has no links, and is only ever opened beneath the root's descriptor: whatever other
processes do to the path meanwhile, each component is opened in the folder before it, never a link."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tools.builtin_server import ToolError
from tools.run_later import key_paths

MAX_FILE_BYTES = 5_000_000
"""Size of the largest file that is searched or changed."""
SEARCH_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags that open a folder to reach what is in it; with O_PATH that needs no right to list it."""


def open_folder(root: int, parts: Sequence[str], *, make: bool = False) -> int:
    """Open a folder beneath a descriptor, through no link; ``make``: missing ones. Raises OSError."""
    folder = os.open(".", SEARCH_FLAGS, dir_fd=root)
    for part in parts:
        try:
            if part == "..":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            inner = os.open(part, SEARCH_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


class RootFolder:
    """Resolves paths relative to a folder, and does not follow links that leave it."""

    def __init__(
        self, path: Path, *, own_folders: Sequence[Path] = (), max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        """``own_folders``: this program's, never changed. ``max_file_bytes``: to search or change."""
        self.path = path.resolve()
        self._own_folders = tuple(own_folders)
        self._keys = [Path(os.path.realpath(path)) for path in key_paths(self.path)]
        self.max_file_bytes = max_file_bytes
        self.unsaved: Callable[[Path], bytes | None] = lambda real: None
        """Returns the content that an editor has of a file, None: as on disk. May block."""

    def existing(self, path: str) -> Path:
        """Return the real path; outer spaces and the @ of a mention are forgiven. Raises ToolError."""
        for spelled in dict.fromkeys((path, path.strip(), path.strip().removeprefix("@"))):
            real = self.real(spelled)
            if self.entry(real) is not None:
                return real
        raise ToolError(f"no such file: {path}")

    def real(self, path: str) -> Path:
        """Return the real path, which need not exist; raises ToolError if it is outside."""
        try:
            # Joined first: an absolute path is fine as long as it is below the root.
            real = (self.path / Path(path).expanduser()).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL, no such user
            raise ToolError(f"not a path: {path!r}") from None
        if not real.is_relative_to(self.path):
            raise ToolError(f"outside the root folder: {path}")
        if any(map(real.is_relative_to, self._keys)):
            raise ToolError(f"files with keys are neither read nor changed: {path}")
        return real

    def private_paths(self) -> set[str]:
        """Return the names below the root of what holds keys, or is this program's own."""
        own = (Path(os.path.realpath(folder)) for folder in self._own_folders)
        below = (path for path in (*self._keys, *own) if path.is_relative_to(self.path))
        return set(map(self.name, below))

    def writable(self, path: str) -> Path:
        """Return the real path of a file to make or change; raises ToolError if that is not allowed."""
        real = self.real(path.strip())
        entry = self.entry(real)
        if real == self.path or (entry and stat.S_ISDIR(entry.st_mode)):
            raise ToolError(f"a folder, not a file: {path}")
        if ".git" in map(str.casefold, real.relative_to(self.path).parts):
            # Git runs hooks and configuration from there, outside of any sandbox.
            raise ToolError(f"files of git itself are not changed: {path}")
        if any(real.is_relative_to(os.path.realpath(folder)) for folder in self._own_folders):
            raise ToolError(f"files of this program are not changed: {path}")
        if entry and not stat.S_ISREG(entry.st_mode):
            raise ToolError(f"not a file: {path}")
        return real

    @contextmanager
    def parent(self, real: Path, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a real path; yields its descriptor and the name in it. ``make``: make
        missing folders. Raises OSError, and ToolError if the path has a link now."""
        parts = real.relative_to(self.path).parts
        try:
            root = os.open(self.path, SEARCH_FLAGS)
            try:
                folder = open_folder(root, parts[:-1], make=make)
            finally:
                os.close(root)
            try:
                yield folder, parts[-1] if parts else "."
            finally:
                os.close(folder)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            name = self.name(real)
            raise ToolError(f"{name} was replaced by a link meanwhile; try again") from None

    def entry(self, real: Path) -> os.stat_result | None:
        """Return the status of a real path; None if it does not exist. Raises OSError, ToolError."""
        try:
            with self.parent(real) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_folder(self, real: Path) -> bool:
        entry = self.entry(real)
        return entry is not None and stat.S_ISDIR(entry.st_mode)

    @contextmanager
    def scan(self, real: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Yield a real folder's entries, valid inside the block. Raises OSError, ToolError."""
        with self.parent(real) as (parent, name):
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            with os.scandir(folder) as entries:
                yield entries
        finally:
            os.close(folder)

    def open(self, real: Path) -> IO[bytes]:
        """Open a regular file, by its real path, for reading; raises ToolError, OSError."""
        name = self.name(real)
        if any(map(real.is_relative_to, self._keys)):  # what a search comes upon
            raise ToolError(f"files with keys are not read: {name}")
        try:
            with self.parent(real) as (folder, entry):
                # O_NONBLOCK: a pipe is not waited for.
                fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except PermissionError:
            raise ToolError(f"no permission to read: {name}") from None
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            reason = "a folder, not a file" if stat.S_ISDIR(mode) else "not a text file"
            raise ToolError(f"{reason}: {name}")
        return os.fdopen(fd, "rb")

    def content(self, real: Path) -> bytes | None:
        """Return a file's content, None if there is no such file; raises ToolError, OSError."""
        if self.entry(real) is None:
            return None
        with self.open(real) as file:
            data = self.unsaved(real)
            data = file.read(self.max_file_bytes + 1) if data is None else data
        if len(data) > self.max_file_bytes:
            limit = f"{self.max_file_bytes // 1_000_000} MB"
            raise ToolError(f"larger than {limit}: {self.name(real)}")
        return data

    def name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()
