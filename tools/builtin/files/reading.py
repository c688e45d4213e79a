"""The files server's tools that change nothing: ``read``, ``list``, ``glob`` and ``search``."""

import codecs
import contextlib
import fnmatch
import io
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from agent.util.programs import find_program
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ToolError

MAX_READ_BYTES = 2_000_000
"""Bytes that one read returns; larger files must be read in ranges of lines."""
MAX_MATCHES, MAX_PATHS, MAX_LINE_CHARS, BLOCK_CHARS = 200, 500, 300, 1 << 20
SEARCH_SECONDS = 20.0
MORE_MATCHES_NOTE = "[more matches; search for something rarer]"


class SearchCancellation(threading.Event):
    """Set when the caller of a search no longer waits for it; kills the search's process."""

    def __init__(self) -> None:
        super().__init__()
        self.process: subprocess.Popen[bytes] | None = None

    def set(self) -> None:
        super().set()
        if self.process is not None:
            self.process.kill()


class FileReader:
    """Reads, lists and searches below one root; methods raise ToolError."""

    def __init__(self, root: RootFolder, *, max_read_bytes: int = MAX_READ_BYTES) -> None:
        self.root, self._max_read_bytes = root, max_read_bytes

    def read(self, path: str, first_line: int | None = None, last_line: int | None = None) -> str:
        """Return a text file, or its lines from ``first_line`` (from 1) to ``last_line``."""
        if (first_line is not None and first_line < 1) or (last_line is not None and last_line < 1):
            raise ToolError("lines are counted from 1")
        real = self.root.existing(path)
        with self.root.open(real) as on_disk:
            unsaved = self.root.unsaved(real)
            file = on_disk if unsaved is None else io.BufferedReader(io.BytesIO(unsaved))
            if b"\0" in file.peek(8192)[:8192]:  # type: ignore[attr-defined]
                raise ToolError(f"not a text file: {path}")
            if first_line is None and last_line is None:
                data = bytearray(file.read(self._max_read_bytes + 1))
            else:
                data = bytearray()
                start = min((first_line or 1) - 1, sys.maxsize)
                stop = last_line and min(last_line, sys.maxsize)
                for line in itertools.islice(file, start, stop):
                    data += line
                    if len(data) > self._max_read_bytes:
                        break
        if len(data) > self._max_read_bytes:
            limit = f"{self._max_read_bytes // 1_000_000} MB"
            raise ToolError(f"more than {limit}: {path}; read a part with first_line and last_line")
        return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")

    def list(self, path: str = ".") -> str:
        """List a folder's entries, one a line; folders end with a slash."""
        folder = self.root.existing(path)
        if not self.root.is_folder(folder):
            raise ToolError(f"not a folder: {path}")
        with self.root.scan(folder) as found:
            names = sorted(e.name + "/" * bool(_entry_folder(self.root, e, folder)) for e in found)
        return "\n".join(names) or "the folder is empty"

    def glob(self, pattern: str, path: str = ".", cancel: SearchCancellation | None = None) -> str:
        """Return the paths that fit a pattern, sorted, at most MAX_PATHS; hidden ones if named."""
        parts = Path(pattern.strip()).parts
        if not parts or ".." in parts or Path(pattern.strip()).is_absolute():
            raise ToolError("the pattern must be one below a folder, like src/**/*.py")
        folder = self.root.existing(path)
        hidden = any(part.startswith(".") for part in parts)
        matches: list[str] = []
        deadline = time.monotonic() + SEARCH_SECONDS
        for match in _glob(self.root, folder, parts, hidden):
            cancelled = cancel is not None and cancel.is_set()
            if cancelled or time.monotonic() > deadline:
                matches.append(f"[stopped after {SEARCH_SECONDS:g} s; look in a smaller folder]")
                break
            if match is None:
                continue
            if len(matches) == MAX_PATHS:
                return "\n".join([*sorted(matches), "[more paths; use a narrower pattern]"])
            matches.append(match)
        return "\n".join(sorted(matches)) or "no matches"

    def search(self, query: str, path: str = ".", cancel: SearchCancellation | None = None) -> str:
        """Return lines with a text, ``path:line: text``, at most MAX_MATCHES; lower case fits both."""
        if not query.strip():
            raise ToolError("the query is empty")
        start = self.root.existing(path)
        cancel = cancel or SearchCancellation()
        lines = self._matching_lines(query, start, cancel)
        if not lines and query != query.strip():
            return self.search(query.strip(), path, cancel)
        return "\n".join(lines) or "no matches"

    def _matching_lines(self, query: str, start: Path, cancel: SearchCancellation) -> Sequence[str]:
        ignore_case = query == query.lower()
        deadline = time.monotonic() + SEARCH_SECONDS
        matches: list[str] = []
        program = find_program("rg")
        candidates = self._ripgrep(program, query, start, cancel) if program else self._walk(start)
        with contextlib.closing(candidates) as files:
            for file in files:
                if cancel.is_set() or time.monotonic() > deadline:
                    break
                for number, line in self._lines(file, query, ignore_case, named=file == start):
                    if len(matches) == MAX_MATCHES:
                        return [*matches, MORE_MATCHES_NOTE]
                    text = line.strip()[:MAX_LINE_CHARS]
                    matches.append(f"{self.root.name(file)}:{number}: {text}")
        if time.monotonic() > deadline:
            matches.append(f"[stopped after {SEARCH_SECONDS:g} s; search a smaller folder]")
        return matches

    def _ripgrep(
        self, program: str, query: str, start: Path, cancel: SearchCancellation
    ) -> Generator[Path]:
        """Yield the files in which ripgrep finds the query: hints, as it may be led outside."""
        command = [program, "--no-config", "--no-messages", "--no-ignore", "--hidden"]
        command += ["--glob=!.*/", "--fixed-strings", "--files-with-matches", "--null"]
        command += ["--color=never", "--sort=path", f"--max-filesize={self.root.max_file_bytes}"]
        command += ["--ignore-case"] if query == query.lower() else []
        process = subprocess.Popen(
            [*command, "--regexp", query, "--", str(start)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        cancel.process = process
        if cancel.is_set():
            process.kill()
        timer = threading.Timer(SEARCH_SECONDS, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            rest = b""
            while data := os.read(process.stdout.fileno(), 1 << 16):
                *names, rest = (rest + data).split(b"\0")
                yield from (Path(os.fsdecode(name)) for name in names)
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def _walk(self, start: Path) -> Generator[Path]:
        """Yield the files at or below a real path, in order, without hidden folders and links."""
        if not self.root.is_folder(start):
            yield start
            return
        waiting = [start]
        while waiting:
            folder = waiting.pop()
            folders, files = [], []
            try:
                with self.root.scan(folder) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            folders += [] if entry.name.startswith(".") else [entry.name]
                        elif not entry.is_symlink():
                            files.append(entry.name)
            except (ToolError, OSError):
                continue
            yield from (folder / name for name in sorted(files))
            waiting += [folder / name for name in sorted(folders, reverse=True)]

    def _lines(
        self, file: Path, query: str, ignore_case: bool, *, named: bool
    ) -> Iterator[tuple[int, str]]:
        """Yield the numbered lines that have the query; none of a file that is binary or cannot be
        read, nor of a large one that is not ``named`` itself."""
        try:
            with self.root.open(file) as stream:
                head = stream.peek(8192)[:8192]  # type: ignore[attr-defined]
                utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
                large = os.fstat(stream.fileno()).st_size > self.root.max_file_bytes
                if (large and not named) or (b"\0" in head and not utf16):
                    return
                encoding = "utf-16" if utf16 else "utf-8-sig"
                text = io.TextIOWrapper(stream, encoding, errors="replace", newline="\n")
                before = 0
                while block := text.read(BLOCK_CHARS):
                    block += text.readline(BLOCK_CHARS)
                    # Most have none: then their lines need not be looked at.
                    if query in (block.lower() if ignore_case else block):
                        for number, line in enumerate(block.split("\n"), before + 1):
                            if query in (line.lower() if ignore_case else line):
                                yield number, line
                    before += block.count("\n")
        except (ToolError, OSError):
            return


def _entry_folder(root: RootFolder, entry: os.DirEntry[str], path: Path) -> Path | None:
    """The real folder that an entry of ``path`` is or links to; None: none, or outside the root."""
    if not entry.is_symlink():
        return path / entry.name if entry.is_dir(follow_symlinks=False) else None
    with contextlib.suppress(ToolError, OSError):
        real = root.real(str(path / entry.name))
        return real if root.is_folder(real) else None
    return None


def _glob(root: RootFolder, top: Path, parts: Sequence[str], hidden: bool) -> Iterator[str | None]:
    """Yield each name that fits the parts once, folders with a slash, and None at each folder, where
    the caller can stop. Walks pairs of folder and number of parts: ``**`` may match several times."""
    states = {(top, 0)}
    waiting = [(top, top, 0)]
    seen: set[Path] = set()
    while waiting:
        folder, real, depth = waiting.pop()
        yield None
        try:
            with root.scan(real) as scanned:
                entries = [
                    (entry.name, entry.is_symlink(), _entry_folder(root, entry, real))
                    for entry in scanned
                    if hidden or not entry.name.startswith(".")
                ]
        except (ToolError, OSError):
            continue
        for name, is_link, real_folder in entries:
            path, rest = folder / name, depth
            next_depths = set()
            while rest < len(parts) and parts[rest] == "**":
                if real_folder and not is_link:
                    next_depths.add(rest)
                rest += 1
            if rest == len(parts):
                fits = real_folder is not None
            elif fits := fnmatch.fnmatchcase(name, parts[rest]):
                next_depths.add(rest + 1)
                fits = all(part == "**" for part in parts[rest + 1 :])
            if fits and path not in seen and not (is_link and _leads_outside(root, real / name)):
                seen.add(path)
                yield root.name(path) + "/" * (real_folder is not None)
            if real_folder is not None:
                steps = {(path, step) for step in next_depths if step < len(parts)} - states
                states |= steps
                waiting += [(path, real_folder, step) for _, step in steps]


def _leads_outside(root: RootFolder, link: Path) -> bool:
    try:
        root.real(str(link))
    except ToolError:
        return True
    return False
