"""One folder, and nothing outside it: paths that a model names, made real."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from tools.builtin.base import HandError

MAX_TEXT = 5_000_000
"""Bytes of a file that is searched or changed."""


class Root:
    """Paths are taken from the folder, and links that leave it are not followed."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def existing(self, path: str) -> Path:
        """The real path; HandError where it is missing or outside the root.

        Models put a space before a word more easily than none: where that is all that is wrong with
        a path (or a query), it is not held against them.
        """
        real = self.real(path)
        if not real.exists():
            real = self.real(path.strip())
        if not real.exists():
            raise HandError(f"Error: no such file: {path}")
        return real

    def real(self, path: str) -> Path:
        try:
            # Joined first: an absolute path is fine as long as it is below the root.
            real = (self.path / Path(path).expanduser()).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL, no such user
            raise HandError(f"Error: not a path: {path!r}") from None
        if not real.is_relative_to(self.path):
            raise HandError(f"Error: outside the root folder: {path}")
        return real

    def writable(self, path: str) -> Path:
        """Where a file may be made or changed."""
        real = self.real(path.strip())
        if real == self.path or real.is_dir():
            raise HandError(f"Error: a folder, not a file: {path}")
        if ".git" in map(str.casefold, real.relative_to(self.path).parts):
            # What lies there is run by git, outside of any sandbox.
            raise HandError(f"Error: files of git itself are not changed: {path}")
        if real.exists() and not real.is_file():
            raise HandError(f"Error: not a file: {path}")
        return real

    def open(self, path: str) -> IO[bytes]:
        real = self.existing(path)
        if real.is_dir():
            raise HandError(f"Error: a folder, not a file: {path}")
        try:
            # Neither a link that was put there a moment ago, nor waiting for a pipe's other end.
            fd = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except PermissionError:
            raise HandError(f"Error: no permission to read: {path}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise HandError(f"Error: not a text file: {path}")
        return os.fdopen(fd, "rb")

    def bytes(self, path: str) -> bytes | None:
        """A file's content, or None where there is no such file."""
        if not self.real(path).exists():
            return None
        with self.open(path) as file:
            data = file.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise HandError(f"Error: larger than {MAX_TEXT // 1_000_000} MB: {path}")
        return data

    def name(self, path: Path) -> str:
        """As a model names it."""
        return path.relative_to(self.path).as_posix()
