"""Plans changes of files, and shows them as a diff."""

import contextlib
import difflib
import itertools
from dataclasses import dataclass
from pathlib import Path

from tools.builtin.files import patch
from tools.builtin.files.root_folder import RootFolder
from tools.builtin_server import ToolError

MAX_DIFF_LINES = 400
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
        lines += diff_lines(root.name(change.path), change.before, change.after)
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"[... {len(lines) - MAX_DIFF_LINES} more lines ...]"]
    return "\n".join(lines) or "nothing changes"


def diff_lines(name: str, before: bytes | None, after: bytes | None) -> list[str]:
    """Return the lines of a unified diff; None: no such file."""
    contents = before or b"", after or b""
    if any(b"\0" in content for content in contents):
        return [f"binary file {name}"]
    old, new = (content.decode(errors="replace") for content in contents)
    lines = []
    if old != new and old.splitlines() == new.splitlines():
        lines.append(f"only the ends of lines change in {name}")
    files = (
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    return lines + [*difflib.unified_diff(old.splitlines(), new.splitlines(), *files, lineterm="")]


def summary(root: RootFolder, changes: list[FileChange]) -> str:
    lines = []
    for change in changes:
        verb = "created" if change.before is None else "changed"
        verb = "deleted" if change.after is None else verb
        lines.append(f"{verb} {root.name(change.path)}")
    return "\n".join(lines)
