"""The tools that change nothing: ``read``, ``list``, ``glob`` and ``search``."""

from __future__ import annotations

import fnmatch
import itertools
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.builtin.base import HandError
from tools.builtin.files.root_folder import MAX_TEXT, Root

MAX_READ = 2_000_000
"""Bytes that one read gives; more must be asked for in ranges of lines."""
MAX_MATCHES = 200
MAX_PATHS = 500
MAX_LINE = 300
"""Characters of a matching line."""
SEARCH_SECONDS = 20.0
MORE = "[more matches; search for something rarer]"


Lines = list[str]


class Stop(threading.Event):
    """The caller of a search does not wait for it any more."""

    def __init__(self) -> None:
        super().__init__()
        self.process: subprocess.Popen[bytes] | None = None

    def set(self) -> None:
        super().set()
        if self.process is not None:
            self.process.kill()


class Reading:
    """Below one root."""

    def __init__(self, root: Root) -> None:
        self.root = root

    def read(self, path: str, first_line: int | None = None, last_line: int | None = None) -> str:
        if (first_line is not None and first_line < 1) or (last_line is not None and last_line < 1):
            raise HandError("Error: lines are counted from 1")
        with self.root.open(path) as file:
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
        folder = self.root.existing(path)
        if not folder.is_dir():
            raise HandError(f"Error: not a folder: {path}")
        with os.scandir(folder) as entries:
            names = sorted(entry.name + "/" * entry.is_dir() for entry in entries)
        return "\n".join(names) or "the folder is empty"

    def glob(self, pattern: str, path: str = ".", stop: Stop | None = None) -> str:
        """``**`` stands for any folders; hidden ones are left out unless the pattern names them."""
        parts = Path(pattern.strip()).parts
        if not parts or ".." in parts or Path(pattern.strip()).is_absolute():
            raise HandError("Error: the pattern must be one below a folder, like src/**/*.py")
        folder = self.root.existing(path)
        hidden = any(part.startswith(".") for part in parts)
        found: list[str] = []
        deadline = time.monotonic() + SEARCH_SECONDS
        for one in _globbed(folder, parts, hidden):
            if (stop is not None and stop.is_set()) or time.monotonic() > deadline:
                found.append(f"[stopped after {SEARCH_SECONDS:g} s; look in a smaller folder]")
                break
            if one is None:
                continue
            if not one.resolve().is_relative_to(self.root.path):
                continue
            if len(found) == MAX_PATHS:
                return "\n".join([*sorted(found), "[more paths; use a narrower pattern]"])
            found.append(one.relative_to(self.root.path).as_posix() + "/" * one.is_dir())
        return "\n".join(sorted(found)) or "no matches"

    def search(self, query: str, path: str = ".", stop: Stop | None = None) -> str:
        """Upper and lower case count only where the query has upper case."""
        if not query.strip():
            raise HandError("Error: the query is empty")
        start = self.root.existing(path)
        ripgrep = shutil.which("rg")
        stop = stop or Stop()
        found = (
            self._ripgrep(ripgrep, query, start, stop)
            if ripgrep
            else self._scan(query, start, stop)
        )
        if not found and query != query.strip():
            return self.search(query.strip(), path, stop)
        return "\n".join(found) or "no matches"

    def _ripgrep(self, program: str, query: str, start: Path, stop: Stop) -> Lines:
        command = [program, "--no-config", "--no-messages", "--no-ignore", "--hidden"]
        command += ["--glob=!.*/", "--fixed-strings", "--line-number", "--with-filename", "--null"]
        command += ["--no-heading", "--color=never", "--sort=path", "--max-columns=4000"]
        command += ["--max-columns-preview", f"--max-filesize={MAX_TEXT}"]
        command += ["--ignore-case"] if query == query.lower() else []
        process = subprocess.Popen(
            [*command, "--regexp", query, "--", str(start)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        stop.process = process
        if stop.is_set():
            process.kill()
        late = threading.Timer(SEARCH_SECONDS, process.kill)
        late.start()
        found: list[str] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if stop.is_set():
                    break
                file, nul, rest = line.partition(b"\0")
                if not nul:
                    continue  # a binary file matches
                if len(found) == MAX_MATCHES:
                    return [*found, MORE]
                number, _, text = rest.decode(errors="replace").partition(":")
                found.append(self._shown(Path(os.fsdecode(file)), number, text))
        finally:
            late.cancel()
            process.kill()
            process.communicate()
        if process.returncode < 0 and not stop.is_set():
            found.append(_stopped())
        return found

    def _scan(self, query: str, start: Path, stop: Stop) -> Lines:
        fold = query == query.lower()
        deadline = time.monotonic() + SEARCH_SECONDS
        found: list[str] = []
        for file in self._walk(start):
            if stop.is_set():
                break
            if time.monotonic() > deadline:
                return [*found, _stopped()]
            for number, line in self._lines(file):
                if query in (line.lower() if fold else line):
                    if len(found) == MAX_MATCHES:
                        return [*found, MORE]
                    found.append(self._shown(file, str(number), line))
        return found

    def _shown(self, file: Path, number: str, line: str) -> str:
        return f"{self.root.name(file)}:{number}: {line.strip()[:MAX_LINE]}"

    def _walk(self, start: Path) -> Iterator[Path]:
        """Files at or below, in order; hidden folders and links are left out."""
        if start.is_file():
            yield start
            return
        for folder, folders, files in os.walk(start):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                if not (file := Path(folder, name)).is_symlink():
                    yield file

    def _lines(self, file: Path) -> Iterator[tuple[int, str]]:
        """Numbered; none of what is not a text of ordinary size below the root."""
        try:
            with self.root.open(str(file)) as opened:
                data = opened.read(MAX_TEXT + 1)
        except (HandError, OSError):
            return
        if len(data) > MAX_TEXT or b"\0" in data[:8192]:
            return
        yield from enumerate(data.decode("utf-8-sig", errors="replace").splitlines(), 1)


def _globbed(folder: Path, parts: Sequence[str], hidden: bool) -> Iterator[Path | None]:
    """What fits, once each; None after every folder, so that the caller can stop there."""
    places = {(folder, 0)}
    waiting = list(places)
    seen: set[Path] = set()
    while waiting:
        at, depth = waiting.pop()
        yield None
        try:
            with os.scandir(at) as entries:
                names = [(entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries]
        except OSError:
            continue
        for name, is_folder, is_link in names:
            if name.startswith(".") and not hidden:
                continue
            one, rest = at / name, depth
            further = set()
            while rest < len(parts) and parts[rest] == "**":
                if is_folder and not is_link:
                    further.add(rest)
                rest += 1
            if rest == len(parts):
                fits = is_folder
            elif fits := fnmatch.fnmatchcase(name, parts[rest]):
                further.add(rest + 1)
                fits = all(part == "**" for part in parts[rest + 1 :])
            if fits and one not in seen:
                seen.add(one)
                yield one
            for step in further if is_folder else ():
                if step < len(parts) and (one, step) not in places:
                    places.add((one, step))
                    waiting.append((one, step))


def _stopped() -> str:
    return f"[stopped after {SEARCH_SECONDS:g} s; search a smaller folder]"


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
