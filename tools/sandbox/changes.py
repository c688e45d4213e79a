"""Compares the files below a folder before and after a command, as far as that is quick."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

SNAPSHOT_SECONDS = 0.04
"""Time for one look at a folder; a larger one is not compared."""
MAX_LISTED_PATHS = 50

Snapshot = dict[str, tuple[int, int, int]]
"""Change time (ns), inode and size by path."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Paths below the root that a command created, modified and deleted, sorted."""

    created: list[str]
    modified: list[str]
    deleted: list[str]

    def summary(self) -> dict[str, object]:
        """Return the first MAX_LISTED_PATHS of each kind, and how many there are in all."""
        kinds = {"created": self.created, "modified": self.modified, "deleted": self.deleted}
        listed: dict[str, object] = {
            kind: paths[:MAX_LISTED_PATHS] for kind, paths in kinds.items() if paths
        }
        return listed | {"total": sum(map(len, kinds.values()))}


def take_snapshot(root: Path, seconds: float) -> Snapshot | None:
    """Look at all files below ``root`` but git's own; None if that takes longer than ``seconds``."""
    deadline = time.monotonic() + seconds
    files: Snapshot = {}
    folders = [str(root)]
    start = len(folders[0]) + 1
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if time.monotonic() > deadline:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != ".git":
                            folders.append(entry.path)
                        continue
                    status = entry.stat(follow_symlinks=False)
                    files[entry.path[start:]] = (status.st_ctime_ns, status.st_ino, status.st_size)
        except OSError:
            continue  # it may not be read, or is gone
    return files


def compare(before: Snapshot, after: Snapshot) -> FileChanges:
    return FileChanges(
        sorted(after.keys() - before.keys()),
        sorted(path for path in after.keys() & before.keys() if after[path] != before[path]),
        sorted(before.keys() - after.keys()),
    )
