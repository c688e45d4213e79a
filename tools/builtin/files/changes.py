"""Plans changes of files, shows them as a diff, makes all or none of them, and undoes them."""

import contextlib
import difflib
import hashlib
import itertools
import json
import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from agent.util import private_files
from tools.builtin.files import patch
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ToolError

MAX_DIFF_LINES = 400
MAX_UNDO_STEPS = 50
"""Number of changes of a conversation that can be undone, one after the other."""
_REPOSITORY_NAMES = ("HEAD", "objects", "refs", "commondir")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's content before and after a change; None: the file does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None


def plan_write(root: RootFolder, path: str, content: str) -> list[FileChange]:
    data = content.encode("utf-8", "replace")
    if len(data) > root.max_file_bytes:
        raise ToolError(f"more than {root.max_file_bytes // 1_000_000} MB")
    real = root.writable(path)
    return [FileChange(real, root.content(real), data)]


def plan_patch(root: RootFolder, text: str) -> list[FileChange]:
    """Plan the changes of a patch; raises ToolError if it does not fit the files."""
    changes: dict[Path, FileChange] = {}

    def current(real: Path) -> bytes | None:
        return changes[real].after if real in changes else root.content(real)

    def put(real: Path, after: bytes | None) -> None:
        first = changes[real].before if real in changes else root.content(real)
        changes[real] = FileChange(real, first, after)

    for file in patch.parse_patch(text):
        real = root.writable(file.path)
        before = current(real)
        if file.kind == "add":
            if before is not None:
                raise ToolError(f"it is there already: {file.path}; update it instead")
            put(real, "".join(f"{line}\n" for line in file.lines).encode("utf-8", "replace"))
            continue
        if before is None:
            raise ToolError(f"no such file: {file.path}")
        if file.kind == "delete":
            put(real, None)
            continue
        after = patch.apply_patch(file, _decode(before, file.path)).encode("utf-8", "replace")
        target = root.writable(file.move_to) if file.move_to else real
        if target != real:
            if current(target) is not None:
                raise ToolError(f"it is there already: {file.move_to}")
            put(real, None)
        put(target, after)
    return list(changes.values())


def refuse_repositories(root: RootFolder, changes: list[FileChange]) -> None:
    """Raise ToolError for a change in a bare git repository, or one to be: git runs its settings."""
    names: dict[Path, set[str]] = {}
    for change in changes:
        steps = [change.path, *change.path.parents]
        for path, folder in itertools.pairwise(steps[: steps.index(root.path) + 1]):
            created = names.setdefault(folder, set())
            if change.after is not None:
                created.add(path.name.casefold())
    for folder, created in names.items():
        present = (name for name in _REPOSITORY_NAMES if root.entry(folder / name) is not None)
        there = created.union(map(str.casefold, present))
        if "head" in there and ({"objects", "refs"} <= there or "commondir" in there):
            raise ToolError(f"this makes a git repository of {root.name(folder)}")


def _decode(data: bytes, path: str) -> str:
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode()
    raise ToolError(f"not a text file: {path}")


def diff(root: RootFolder, changes: list[FileChange]) -> str:
    """Return a unified diff for the person who is asked about the changes; of several files behind a
    list of them, the deleted ones (``D``) first: a long diff is cut, and scrolls."""
    lines: list[str] = []
    if len(changes) > 1:
        kinds = ["A" if c.before is None else "D" if c.after is None else "M" for c in changes]
        named = [f"{kind} {root.name(c.path)}" for kind, c in zip(kinds, changes, strict=True)]
        lines.append(" · ".join(sorted(named, key=lambda text: text[0] != "D")))
    for change in changes:
        name = root.name(change.path)
        contents = change.before or b"", change.after or b""
        if any(b"\0" in content for content in contents):
            lines.append(f"binary file {name}")
            continue
        old, new = (content.decode(errors="replace") for content in contents)
        if old != new and old.splitlines() == new.splitlines():
            lines.append(f"only the ends of lines change in {name}")
        before = "/dev/null" if change.before is None else f"a/{name}"
        after = "/dev/null" if change.after is None else f"b/{name}"
        texts = old.splitlines(), new.splitlines()
        lines += difflib.unified_diff(*texts, before, after, lineterm="")
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"[... {len(lines) - MAX_DIFF_LINES} more lines ...]"]
    return "\n".join(lines) or "nothing changes"


def summary(root: RootFolder, changes: list[FileChange]) -> str:
    lines = []
    for change in changes:
        verb = "created" if change.before is None else "changed"
        verb = "deleted" if change.after is None else verb
        lines.append(f"{verb} {root.name(change.path)}")
    return "\n".join(lines)


class UndoJournal:
    """Makes the changes of one conversation and stores what undoes them: a numbered folder for each,
    with ``files.json`` (paths, digests of the new contents) and former contents ``0``, ``1``, …"""

    def __init__(self, folder: Path, root: RootFolder, *, max_steps: int = MAX_UNDO_STEPS) -> None:
        self._folder, self._root, self._max_steps = folder, root, max_steps

    def make(self, changes: list[FileChange]) -> None:
        """Make all changes or none, after storing how to undo them. Raises OSError, ToolError."""
        self._store(changes)
        done: list[FileChange] = []
        try:
            for change in changes:
                _replace_file(self._root, change.path, change.after)
                done.append(change)
        except (OSError, ToolError):
            for change in reversed(done):
                with contextlib.suppress(OSError, ToolError):
                    _replace_file(self._root, change.path, change.before)
            shutil.rmtree(self._entries()[-1])
            raise

    def plan_undo(self) -> list[FileChange]:
        """Plan to undo the last change; raises ToolError if a file was changed since."""
        entries = self._entries()
        if not entries:
            raise ToolError("nothing to undo in this conversation")
        reverse = []
        for number, record in enumerate(json.loads((entries[-1] / "files.json").read_text())):
            # As it was when the change was made: a folder on it may be a link since.
            path = Path(record["path"])
            if not path.is_relative_to(self._root.path):
                raise ToolError(f"outside the root folder: {path}")
            saved = entries[-1] / str(number)
            now = None
            if self._root.entry(path) is not None:
                with self._root.open(path) as file:
                    now = file.read()
            if _digest(now) != record["after"]:
                raise ToolError(f"not undone: {path} was changed since by someone else")
            reverse.append(FileChange(path, now, saved.read_bytes() if saved.exists() else None))
        return reverse

    def undo(self) -> list[FileChange]:
        changes = self.plan_undo()
        for change in changes:
            _replace_file(self._root, change.path, change.after)
        shutil.rmtree(self._entries()[-1])
        return changes

    def _store(self, changes: list[FileChange]) -> None:
        entries = self._entries()
        private_files.make_folder(self._folder)
        # One that was only half made, when the program was killed, has its number all the same.
        numbers = [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]
        folder = self._folder / str(max(numbers, default=-1) + 1)
        folder.mkdir(mode=0o700)
        records = [{"path": str(c.path), "after": _digest(c.after)} for c in changes]
        try:
            for number, change in enumerate(changes):
                if change.before is not None:
                    (folder / str(number)).write_bytes(change.before)
            (folder / "files.json").write_text(json.dumps(records))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for old in entries[: max(0, len(entries) + 1 - self._max_steps)]:
            shutil.rmtree(old, ignore_errors=True)

    def _entries(self) -> list[Path]:
        complete = (file.parent for file in self._folder.glob("*/files.json"))
        return sorted(complete, key=lambda path: int(path.name))


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _replace_file(root: RootFolder, path: Path, data: bytes | None) -> None:
    """Write a file atomically, or delete it if there is no data. Raises OSError, ToolError."""
    if data is None:
        with contextlib.suppress(FileNotFoundError), root.parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        return
    before = root.entry(path)
    with root.parent(path, make=True) as (folder, name):
        temporary = f".{name[:50]}.{secrets.token_hex(4)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
                if before is not None and stat.S_ISREG(before.st_mode):
                    os.fchmod(fd, stat.S_IMODE(before.st_mode))
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
