"""Changes of files: shown as a diff, made all or none, and taken back."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools import private_files
from tools.builtin.base import HandError
from tools.builtin.files import patch
from tools.builtin.files.root_folder import MAX_TEXT, Root

MAX_DIFF = 400
"""Lines of a diff that are shown."""
MAX_UNDO = 50
"""Changes that can be taken back, one after the other."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file: what it held and what it is to hold; None: it does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None


def written(root: Root, path: str, content: str) -> list[Change]:
    data = content.encode("utf-8", "replace")
    if len(data) > MAX_TEXT:
        raise HandError(f"Error: more than {MAX_TEXT // 1_000_000} MB")
    real = root.writable(path)
    return [Change(real, root.bytes(str(real)), data)]


def patched(root: Root, text: str) -> list[Change]:
    """What a patch would change. Raises HandError where it does not fit."""
    changes: dict[Path, Change] = {}

    def now(real: Path) -> bytes | None:
        return changes[real].after if real in changes else root.bytes(str(real))

    def put(real: Path, after: bytes | None) -> None:
        first = changes[real].before if real in changes else root.bytes(str(real))
        changes[real] = Change(real, first, after)

    for file in patch.parse(text):
        real = root.writable(file.path)
        before = now(real)
        if file.kind == "add":
            if before is not None:
                raise HandError(f"Error: it is there already: {file.path}; update it instead")
            put(real, "".join(f"{line}\n" for line in file.lines).encode("utf-8", "replace"))
            continue
        if before is None:
            raise HandError(f"Error: no such file: {file.path}")
        if file.kind == "delete":
            put(real, None)
            continue
        after = patch.apply(file, _text(before, file.path)).encode("utf-8", "replace")
        target = root.writable(file.move_to) if file.move_to else real
        if target != real:
            if now(target) is not None:
                raise HandError(f"Error: it is there already: {file.move_to}")
            put(real, None)
        put(target, after)
    return list(changes.values())


def _text(data: bytes, path: str) -> str:
    try:
        if b"\0" not in data:
            return data.decode()
    except UnicodeDecodeError:
        pass
    raise HandError(f"Error: not a text file: {path}")


def diff(root: Root, changes: list[Change]) -> str:
    """As a person reads it before they allow it."""
    lines: list[str] = []
    for change in changes:
        name = root.name(change.path)
        for data in (change.before, change.after):
            if data is not None and b"\0" in data:
                lines.append(f"binary file {name}")
                break
        else:
            old, new = ((d or b"").decode(errors="replace") for d in (change.before, change.after))
            if old != new and old.splitlines() == new.splitlines():
                lines.append(f"only the ends of lines change in {name}")
            lines += difflib.unified_diff(
                old.splitlines(),
                new.splitlines(),
                "/dev/null" if change.before is None else f"a/{name}",
                "/dev/null" if change.after is None else f"b/{name}",
                lineterm="",
            )
    if len(lines) > MAX_DIFF:
        lines[MAX_DIFF:] = [f"[... {len(lines) - MAX_DIFF} more lines ...]"]
    return "\n".join(lines) or "nothing changes"


def summary(root: Root, changes: list[Change]) -> str:
    """What was done, for the model."""
    said = []
    for change in changes:
        what = "created" if change.before is None else "changed"
        what = "deleted" if change.after is None else what
        said.append(f"{what} {root.name(change.path)}")
    return "\n".join(said)


class Journal:
    """What was changed in one conversation, on disk, so that it can be taken back."""

    def __init__(self, folder: Path, root: Root) -> None:
        self._folder, self._root = folder, root

    def make(self, changes: list[Change]) -> None:
        """All or none; remembered first. Raises OSError."""
        self._remember(changes)
        done: list[Change] = []
        try:
            for change in changes:
                _put(change.path, change.after)
                done.append(change)
        except OSError:
            for change in reversed(done):
                with contextlib.suppress(OSError):
                    _put(change.path, change.before)
            shutil.rmtree(self._entries()[-1])
            raise

    def last(self) -> list[Change]:
        """What taking back the last change would do. Raises HandError where it cannot be."""
        entries = self._entries()
        if not entries:
            raise HandError("Error: nothing to undo in this conversation")
        back = []
        for number, kept in enumerate(json.loads((entries[-1] / "files.json").read_text())):
            path = Path(kept["path"])
            saved = entries[-1] / str(number)
            now = path.read_bytes() if path.is_file() else None
            if _digest(now) != kept["after"]:
                raise HandError(f"Error: not undone: {path} was changed since by somebody else")
            back.append(Change(path, now, saved.read_bytes() if saved.exists() else None))
        return back

    def undo(self) -> list[Change]:
        """Take back the last change; what was done. Raises HandError, OSError."""
        back = self.last()
        for change in back:
            # A folder may have become a link since.
            self._root.writable(str(change.path))
            _put(change.path, change.after)
        shutil.rmtree(self._entries()[-1])
        return back

    def _remember(self, changes: list[Change]) -> None:
        entries = self._entries()
        private_files.folder(self._folder)
        # One that was only half made, when the program was killed, has its number all the same.
        numbers = [int(one.name) for one in self._folder.iterdir() if one.name.isdecimal()]
        folder = self._folder / str(max(numbers, default=-1) + 1)
        folder.mkdir(mode=0o700)
        kept = [{"path": str(one.path), "after": _digest(one.after)} for one in changes]
        try:
            for place, change in enumerate(changes):
                if change.before is not None:
                    (folder / str(place)).write_bytes(change.before)
            (folder / "files.json").write_text(json.dumps(kept))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for old in entries[: max(0, len(entries) + 1 - MAX_UNDO)]:
            shutil.rmtree(old, ignore_errors=True)

    def _entries(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        kept = [one for one in self._folder.iterdir() if (one / "files.json").exists()]
        return sorted(kept, key=lambda one: int(one.name))


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _put(path: Path, data: bytes | None) -> None:
    """Write a file whole or not at all, or delete it. Raises OSError."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o7777 if path.exists() else None
    temporary = path.parent / f".{path.name[:50]}.{secrets.token_hex(4)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
            if mode is not None:
                os.fchmod(fd, mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
