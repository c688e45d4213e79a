"""The files below a folder, as a person means them: without what git ignores, and never too many."""

from __future__ import annotations

import heapq
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

MOST = 30_000
"""So many are looked at."""
FRESH = 5.0
"""Seconds after which they are listed again."""
_PATIENCE = 5.0
_SKIPPED = {"node_modules", "__pycache__", "venv", "target", "build", "dist"}
"""Folders that are not entered where git does not say what to ignore; nor are hidden ones."""


class Files:
    """Below one folder; ``look`` before they are matched."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: list[tuple[str, str]] = []
        """Lower-case and as they are."""
        self._looked = 0.0

    @property
    def stale(self) -> bool:
        return time.monotonic() - self._looked > FRESH

    def look(self) -> None:
        """List them; blocks for as long as that takes."""
        found = _of_git(self._root)
        paths = list(_walked(self._root)) if found is None else found
        self._paths = [(path.lower(), path) for path in paths]
        self._looked = time.monotonic()

    def best(self, written: str, most: int) -> list[str]:
        """The paths that ``written`` most probably means, the likeliest first."""
        if written.startswith(("/", "~", "../")):
            return _in_folder(self._root, written, most)
        wanted = written.lower().removeprefix("./")
        found = [pair for pair in self._paths if wanted in pair[0]]
        if not found:
            # Letters in order, with others between them.
            letters = re.compile(".*?".join(map(re.escape, wanted)))
            found = [pair for pair in self._paths if letters.search(pair[0])]
        ranked = heapq.nsmallest(most, found, key=lambda pair: _rank(pair[0], wanted))
        return [path for _, path in ranked]


def _rank(path: str, wanted: str) -> tuple[bool, bool, int, str]:
    name = path.rpartition("/")[2]
    return not name.startswith(wanted), wanted not in name, len(path), path


def _of_git(root: Path) -> list[str] | None:
    """What git knows or would add; None where there is no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=root, capture_output=True, timeout=_PATIENCE, check=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    paths = listed.stdout.decode("utf-8", "replace").split("\0")
    return list(dict.fromkeys(filter(None, paths[:MOST])))


def _walked(root: Path) -> Iterator[str]:
    """Those of near folders first; within some time and number."""
    until, seen, folders = time.monotonic() + _PATIENCE, 0, [""]
    for folder in folders:  # which grows meanwhile
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    folders.append(f"{path}/")
            elif entry.is_file():
                seen += 1
                yield path
            if seen >= MOST or time.monotonic() > until:
                return


def _in_folder(root: Path, written: str, most: int) -> list[str]:
    """What a folder elsewhere has; folders end with a slash."""
    folder, slash, start = written.rpartition("/")
    if not slash:  # "~" alone
        return ["~/"]
    hidden = start.startswith(".")
    try:
        entries = sorted(os.scandir(root / Path(folder + slash).expanduser()), key=lambda e: e.name)
    except (OSError, RuntimeError):
        return []
    return [
        f"{folder}/{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if entry.name.startswith(start) and (hidden or not entry.name.startswith("."))
    ][:most]
