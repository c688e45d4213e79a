"""Indexes the files below a folder for completion: without what git ignores, and bounded. The ranking
is by hand because it runs at every key: 2 to 7 ms among 20,000 paths, where
``textual.fuzzy.FuzzySearch`` (Textual 8.2) takes 45 to 700 ms, and for a word like ``sess`` 3 s."""

import heapq
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.git import run_git

MAX_FILES = 30_000
REFRESH_SECONDS = 5.0
_LISTING_SECONDS = 5.0
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "venv", "target", "build", "dist"}
"""Folders that are not entered outside of git repositories; nor are hidden ones."""


class FileIndex:
    """The files below a folder, and in those that are typed. ``refresh`` lists, ``search`` ranks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listings: dict[str | None, tuple[float, list[tuple[str, str]]]] = {}
        """By a typed folder, None the root: when it was listed, its paths in lower case and as is."""

    def is_stale(self, typed: str) -> bool:
        """Whether what ``typed`` may mean has to be listed again; a former list may be there."""
        listing = self._listings.get(folder_of(typed))
        return listing is None or time.monotonic() - listing[0] > REFRESH_SECONDS

    def refresh(self, typed: str = "") -> None:
        """List what ``typed`` may mean. It blocks: call it in a thread."""
        if (folder := folder_of(typed)) is not None:
            paths = _list_folder(self._root, folder)
        elif (tracked := _git_files(self._root)) is not None:
            paths = tracked
        else:
            paths = list(_walk(self._root))
        self._listings[folder] = time.monotonic(), [(path.lower(), path) for path in paths]

    def search(self, typed: str, limit: int) -> list[str]:
        """Return at most ``limit`` paths that ``typed`` may mean, the best first: names that begin with
        it or contain it, then paths with its characters in order; shorter ones first."""
        folder = folder_of(typed)
        _, paths = self._listings.get(folder, (0.0, []))
        if folder is not None:
            hidden = typed.rpartition("/")[2].startswith(".")
            found = [path for _, path in paths if path.startswith(typed)]
            found = [path for path in found if hidden or not path[len(folder) :].startswith(".")]
            return found[:limit]
        query = typed.lower().removeprefix("./")
        matches = [pair for pair in paths if query in pair[0]]
        if not matches:
            # Characters in order, with others between them.
            subsequence = re.compile(".*?".join(map(re.escape, query)))
            matches = [pair for pair in paths if subsequence.search(pair[0])]
        ranked = heapq.nsmallest(limit, matches, key=lambda pair: _rank(pair[0], query))
        return [path for _, path in ranked]


def _rank(path: str, query: str) -> tuple[bool, bool, int, str]:
    """Sort key: the smaller, the better a path fits."""
    name = path.rpartition("/")[2]
    return not name.startswith(query), query not in name, len(path), path


def _git_files(root: Path) -> list[str] | None:
    """List what git does not ignore, without the repository's configuration; None: no git."""
    root = root.resolve()
    top = next((each for each in (root, *root.parents) if (each / ".git").exists()), None)
    if top is None:
        return None
    words = ["ls-files", "-z", "--others", "--exclude-standard"]
    if (excluded := top / ".git" / "info" / "exclude").is_file():
        words.append(f"--exclude-from={excluded}")
    try:
        listed = run_git(*words, work_tree=top, folder=root, seconds=_LISTING_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    paths = listed.decode("utf-8", "replace").split("\0")
    return [path for path in paths[:MAX_FILES] if path and not path.endswith("/")]


def _walk(root: Path) -> Iterator[str]:
    """List the files breadth first, within the limits of number and time."""
    until, seen, folders = time.monotonic() + _LISTING_SECONDS, 0, [""]
    for folder in folders:  # it grows meanwhile
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED_FOLDERS:
                    folders.append(f"{path}/")
            elif _is(entry.is_file):
                seen += 1
                yield path
            if seen >= MAX_FILES or time.monotonic() > until:
                return


def _is(kind: Callable[[], bool]) -> bool:
    """Return what an entry says of its kind; a link that loops, or into what is closed, has none."""
    try:
        return kind()
    except OSError:
        return False


def folder_of(typed: str) -> str | None:
    """Return the folder of a path outside of the index, with its slash; None of any other."""
    if not typed.startswith(("/", "~", "../")):
        return None
    folder, slash, _ = typed.rpartition("/")
    return folder + slash


def _list_folder(root: Path, folder: str) -> list[str]:
    """List the entries of a folder; folders end with a slash."""
    if not folder:  # "~" alone
        return ["~/"]
    try:
        entries = sorted(os.scandir(root / Path(folder).expanduser()), key=lambda e: e.name)
    except (OSError, RuntimeError):
        return []
    return [f"{folder}{entry.name}{'/' if _is(entry.is_dir) else ''}" for entry in entries]
