"""Keeps commands from changing what runs later outside of the sandbox, and lists what they change."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agent.util import private_files
from tools.builtin_server import ToolError
from tools.config.named_files import NamedFiles, module_files
from tools.run_later import key_paths, root_paths
from tools.sandbox.protection import move_aside, protect
from tools.sandbox.repositories import RepositoryFinder, configured_files, disarm

USED_BY_GIT = "a configuration names it, so it can be created only with changes_git"
RUN_LATER = (
    "a server or an approval rule names it, so no command can create it; the files tools can"
)
SETTINGS = "other programs run what it says, so no command can create it; the files tools can"
REPOSITORY = "a repository that makes git run programs can be created only with changes_git"
IMPORTED = "a server's Python would import it, so no command can create it; the files tools can"

SNAPSHOT_SECONDS = 0.04
"""Time for one look at a folder; a larger one is not compared."""
MAX_LISTED_PATHS = 50

Snapshot = dict[str, tuple[int, int, int]]
"""Change time (ns), inode and size by path."""


class RootGuard:
    """Knows what to protect below one root; remembers the folders that it has seen."""

    def __init__(
        self, root: Path, own_paths: Iterable[Path], snapshot_seconds: float = SNAPSHOT_SECONDS
    ) -> None:
        """``own_paths``: never to be changed. ``snapshot_seconds``: for each look at all files."""
        self.root, self.snapshot_seconds = root, snapshot_seconds
        self.finder = RepositoryFinder(root)
        self.named_files: Callable[[], NamedFiles] = NamedFiles
        """Files that no command may change; called before each command."""
        self._own_paths = tuple(own_paths)

    def begin(self, *, changes_git: bool) -> CommandGuard:
        """Look at the root before a command; blocks. Raises ToolError."""
        named = self.named_files()
        folders = {form for folder in named.folders for form in _forms(folder)}
        if self.root in self._own_paths or any(map(self.root.is_relative_to, folders)):
            raise ToolError(f"{self.root} is a part of this program; choose another --root")
        for folder in folders:
            if folder.is_relative_to(self.root):
                with contextlib.suppress(OSError):  # what this program cannot make, no command can
                    private_files.make_folder(folder)
        return CommandGuard(self, [*self._own_paths, *folders], named, changes_git)


class CommandGuard:
    """One command: what is protected from it, and afterwards what it changed."""

    def __init__(
        self, guard: RootGuard, paths: list[Path], named_files: NamedFiles, changes_git: bool
    ) -> None:
        self._guard, self._changes_git = guard, changes_git
        repositories = guard.finder.find()
        self._repositories = set() if changes_git else repositories
        self._run_later = self._settings(guard.finder.run_later)
        if guard.root in self._repositories:
            raise ToolError(
                f"{guard.root} is a git repository's own folder: this needs changes_git"
            )
        named = [path for each in self._repositories for path in configured_files(each)]
        run_later = [form for path in named_files.paths for form in _forms(path)]
        always = self._settings(root_paths(guard.root))
        settings = [form for path in always for form in _forms(path)]
        paths += [*self._repositories, *named, *run_later, *self._run_later, *settings]
        self._missing = dict.fromkeys(self._missing_below_root(run_later), RUN_LATER)
        self._missing |= dict.fromkeys(self._missing_below_root(named), USED_BY_GIT)
        self._missing |= dict.fromkeys(self._missing_below_root(settings), SETTINGS)
        """Missing paths that would take effect once created, with the reason to refuse them."""
        self._modules = named_files.modules
        self._module_files = module_files(guard.root, self._modules)
        keys = [form for path in key_paths(guard.root) for form in _forms(path)]
        self.protection = protect(guard.root, paths, keys)
        if self.protection.is_too_large:
            raise ToolError(
                f"{guard.root} holds too many files that run later to protect them all;"
                " choose a smaller folder with --root"
            )
        self.notes: list[str] = []
        """Sentences for the model about changes that were undone."""
        self.changes: dict[str, Any] = {}
        self._before = take_snapshot(guard.root, guard.snapshot_seconds)

    def end(self) -> None:
        """Undo what must not stay, and compare; blocks. No process of the command is left by now."""
        root = self._guard.root
        for path in self.protection.restore_links():
            self.notes.append(f"[{_quoted_path(root, path)} was restored: it is read-only here]")
        for missing, why in sorted(self._missing.items()):
            if os.path.lexists(missing):
                self._refuse(missing, why)
        for module in sorted(module_files(root, self._modules) - self._module_files):
            self._refuse(module, IMPORTED)
        repositories = self._guard.finder.find() - self._repositories
        for setting in sorted(self._settings(self._guard.finder.run_later) - self._run_later):
            if os.path.lexists(setting):
                self._refuse(setting, SETTINGS)
        if not self._changes_git:
            for repository in sorted(repositories):
                self._refuse(repository, REPOSITORY, disarm)
        self.changes = {"unknown": "there are too many files to compare"}
        if self._before is not None:
            after = take_snapshot(root, self._guard.snapshot_seconds)
            if after is not None:
                self.changes = _compare(self._before, after)

    def _settings(self, paths: Iterable[Path]) -> set[Path]:
        """Return paths of `run_later`, without git's own if the command may change git's data."""
        return {p for p in paths if not (self._changes_git and p.name == ".gitmodules")}

    def _missing_below_root(self, paths: Iterable[Path]) -> Iterator[Path]:
        for path in map(_absolute, paths):
            if path.is_relative_to(self._guard.root) and not os.path.lexists(path):
                yield path

    def _refuse(
        self, path: Path, why: str, rename: Callable[[Path], Path | None] = move_aside
    ) -> None:
        """Rename what a command created and would be used later; ``rename``: how; None: it stays."""
        name = _quoted_path(self._guard.root, path)
        try:
            if (moved := rename(path)) is not None:
                self.notes.append(f"[{name} is now {moved.name}: {why}]")
        except OSError as error:
            self.notes.append(f"[{name} should not be used: it could not be renamed: {error}]")


def _forms(path: Path) -> set[Path]:
    """Return a path as it is written and as it is without links: the root has none."""
    forms = {_absolute(path)}
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        forms.add(path.resolve())
    return forms


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - follows no links


def _quoted_path(root: Path, path: str | Path) -> str:
    return json.dumps(str(Path(path).relative_to(root)))


def take_snapshot(root: Path, seconds: float) -> Snapshot | None:
    """Look at all files but git's own; None: that takes ``seconds`` of CPU time, or ten times that."""
    began, deadline = time.thread_time(), time.monotonic() + 10 * seconds
    files: Snapshot = {}
    folders = [str(root)]
    start = len(folders[0]) + 1
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if time.thread_time() - began > seconds or time.monotonic() > deadline:
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


def _compare(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """Return the first ``created``, ``modified`` and ``deleted`` paths, sorted, and their ``total``."""
    kinds = {
        "created": after.keys() - before.keys(),
        "modified": {path for path in after.keys() & before.keys() if after[path] != before[path]},
        "deleted": before.keys() - after.keys(),
    }
    listed = {kind: sorted(paths)[:MAX_LISTED_PATHS] for kind, paths in kinds.items() if paths}
    return {**listed, "total": sum(map(len, kinds.values()))}
