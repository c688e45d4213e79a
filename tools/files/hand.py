"""The ``read``, ``list`` and ``search`` tools: they read below one folder and change nothing."""

from __future__ import annotations

import asyncio
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tools.base import Tool
from tools.hands import HandError

MAX_READ = 2_000_000
"""Bytes that one read gives; more must be asked for in ranges of lines."""
MAX_SEARCHED = 5_000_000
"""Bytes of a file that a search still looks into."""
MAX_MATCHES = 200
MAX_TEXT = 300
"""Characters of a matching line."""
SEARCH_SECONDS = 20.0


def _tool(name: str, description: str, required: list[str], **properties: str) -> Tool:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
    }
    if required:
        schema["required"] = required
    return Tool("files", name, description, schema, read_only=True)


class Files:
    """A hand. Paths are taken from the root, and links that leave it are not followed."""

    name = "files"
    short = "files"
    default: Sequence[str] = ("read", "list", "search")
    tools: Sequence[Tool] = (
        _tool(
            "read",
            "Read a text file.",
            ["path"],
            path="string",
            first_line="integer",
            last_line="integer",
        ),
        _tool("list", "List a folder.", [], path="string"),
        _tool("search", "Search files for a text.", ["query"], query="string", path="string"),
    )

    def __init__(self, root: Path | None = None) -> None:
        """``root``: None is the current directory."""
        self.root = (root or Path.cwd()).resolve()

    def contained(self, name: str) -> bool:
        return True

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        return None

    async def start(self) -> None:
        pass

    def problem(self) -> str | None:
        return None if self.root.is_dir() else f"has no such folder as its root: {self.root}"

    async def close(self) -> None:
        pass

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        stop = threading.Event()
        work: Callable[..., str] = getattr(self, name)
        if name == "search":
            arguments = {**arguments, "stop": stop}
        try:
            return await asyncio.to_thread(work, **arguments)
        except OSError as error:
            raise HandError(f"Error: {(error.strerror or str(error)).lower()}") from None
        finally:
            stop.set()  # where the caller was cancelled, the thread is still walking

    def read(self, path: str, first_line: int | None = None, last_line: int | None = None) -> str:
        if (first_line is not None and first_line < 1) or (last_line is not None and last_line < 1):
            raise HandError("Error: lines are counted from 1")
        with self._open(path) as file:
            if b"\0" in file.peek(8192)[:8192]:  # type: ignore[attr-defined]
                raise HandError(f"Error: not a text file: {path}")
            if first_line is None and last_line is None:
                data = file.read(MAX_READ + 1)
            else:
                lines = itertools.islice(file, (first_line or 1) - 1, last_line)
                data = _within(lines, MAX_READ + 1)
        if len(data) > MAX_READ:
            limit = f"{MAX_READ // 1_000_000} MB"
            raise HandError(
                f"Error: more than {limit}: {path}; read a part with first_line and last_line"
            )
        return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")

    def list(self, path: str = ".") -> str:
        folder = self._resolve(path)
        if not folder.is_dir():
            raise HandError(f"Error: not a folder: {path}")
        with os.scandir(folder) as entries:
            names = sorted(entry.name + "/" * entry.is_dir() for entry in entries)
        return "\n".join(names) or "the folder is empty"

    def search(self, query: str, path: str = ".", stop: threading.Event | None = None) -> str:
        """Upper and lower case count only where the query has upper case."""
        if not query.strip():
            raise HandError("Error: the query is empty")
        fold = query == query.lower()
        wanted = query if not fold else query.lower()
        deadline = time.monotonic() + SEARCH_SECONDS
        found: list[str] = []
        for file in self._walk(self._resolve(path)):
            if stop is not None and stop.is_set():
                break
            if time.monotonic() > deadline:
                found.append(f"[stopped after {SEARCH_SECONDS:g} s; search a smaller folder]")
                break
            for number, line in self._lines(file):
                if wanted in (line.lower() if fold else line):
                    if len(found) == MAX_MATCHES:
                        found.append("[more matches; search for something rarer]")
                        return "\n".join(found)
                    shown = line.strip()[:MAX_TEXT]
                    found.append(f"{file.relative_to(self.root).as_posix()}:{number}: {shown}")
        if not found and query != query.strip():
            return self.search(query.strip(), path, stop)
        return "\n".join(found) or "no matches"

    def _resolve(self, path: str) -> Path:
        """The real path; HandError where it is missing or outside the root.

        Models put a space before a word more easily than none: where that is all that is wrong with
        a path (or a query), it is not held against them.
        """
        real = self._real(path)
        if not real.exists():
            real = self._real(path.strip())
        if not real.exists():
            raise HandError(f"Error: no such file: {path}")
        return real

    def _real(self, path: str) -> Path:
        try:
            # Joined first: an absolute path is fine as long as it is below the root.
            real = (self.root / Path(path).expanduser()).resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL, no such user
            raise HandError(f"Error: not a path: {path!r}") from None
        if not real.is_relative_to(self.root):
            raise HandError(f"Error: outside the root folder: {path}")
        return real

    def _open(self, path: str) -> IO[bytes]:
        real = self._resolve(path)
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

    def _walk(self, start: Path) -> Iterator[Path]:
        """Files at or below, in order; hidden folders are left out."""
        if start.is_file():
            yield start
            return
        for folder, folders, files in os.walk(start):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                yield Path(folder, name)

    def _lines(self, file: Path) -> Iterator[tuple[int, str]]:
        """Numbered; none of what is not a text of ordinary size below the root."""
        try:
            with self._open(str(file)) as opened:
                data = opened.read(MAX_SEARCHED + 1)
        except (HandError, OSError):
            return
        if len(data) > MAX_SEARCHED or b"\0" in data[:8192]:
            return
        yield from enumerate(data.decode("utf-8-sig", errors="replace").splitlines(), 1)


def _within(lines: Iterator[bytes], limit: int) -> bytes:
    """Joined, but no more than has reached the limit."""
    kept: list[bytes] = []
    size = 0
    for line in lines:
        kept.append(line)
        size += len(line)
        if size >= limit:
            break
    return b"".join(kept)
