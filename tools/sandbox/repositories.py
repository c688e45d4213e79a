"""Finds the git repositories at and below a folder, what of them makes git run programs (even ``git
status`` obeys configuration and hooks), and the files and folders of the table `run_later`."""

import contextlib
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.git import run_git
from tools.run_later import MAX_DEPTH, is_run_later
from tools.sandbox.protection import move_aside

CLOCK_STEP_NS = 1_000_000_000
"""A folder that changed less than this ago may change again without a new time stamp."""
MAX_CONFIG_BYTES, GIT_TIMEOUT_SECONDS = 1 << 20, 10.0
MAX_SCANNED_FOLDERS = 10_000
"""Folders of a new repository, except its objects, that are searched for links."""
_INERT_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|symlinks"
    r"|precomposeunicode|autocrlf|eol)|extensions\.objectformat|init\.defaultbranch"
    r"|user\.(name|email)|remote\..*\.(url|fetch)|branch\..*\.(remote|merge|rebase)",
    re.DOTALL,
)
"""Configuration keys that ``git init``, ``git clone`` and ``git commit`` write."""
_SECTION = re.compile(r"\s*\[[^]]*\]")
_COMMENTS = re.compile(r"^\s*#.*", re.MULTILINE)
_VARIABLES = re.compile(r"\$\w+|\$\{\w+\}")
_WORDS = re.compile(r"[\w./@+~-]+")


@dataclass(frozen=True, slots=True)
class _Listing:
    changed: tuple[int, int, int]
    """Device, inode, and st_ctime_ns, which no program can set."""
    folders: tuple[str, ...]
    git_names: tuple[str, ...]
    """``.git``, however it is spelled; or ``.``: the folder itself is a bare repository."""
    run_later: tuple[str, ...]
    """Names of `run_later`."""


class RepositoryFinder:
    """Looks for repositories again and again; lists only the folders that have changed since."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._listings: dict[str, _Listing] = {}
        self.run_later: set[Path] = set()
        """Paths of the table `run_later` that `find` saw."""

    def find(self) -> set[Path]:
        """Return the ``.git`` entries and the bare repositories at and below the root; blocks."""
        found: set[Path] = set()
        self.run_later = set()
        fresh: dict[str, _Listing] = {}
        now_ns = time.time_ns()
        folders = [self._root]
        while folders:
            path = folders.pop()
            try:
                status = os.lstat(path)
                changed = (status.st_dev, status.st_ino, status.st_ctime_ns)
                listing = self._listings.get(path)
                if listing is None or listing.changed != changed:
                    if not status.st_mode & stat.S_IRUSR and status.st_uid == os.geteuid():
                        os.chmod(path, stat.S_IMODE(status.st_mode) | 0o500)  # noqa: PTH101
                    depth = path.count("/") - self._root.count("/")
                    depth += MAX_DEPTH * ("/node_modules" in path)  # packages bring their own
                    listing = _list_folder(path, changed, depth)
            except OSError:
                continue
            if status.st_ctime_ns < now_ns - CLOCK_STEP_NS:
                fresh[path] = listing
            found.update(Path(path, name) for name in listing.git_names)
            self.run_later.update(Path(path, name) for name in listing.run_later)
            if "." not in listing.git_names or path == self._root:
                folders += [f"{path}/{name}" for name in listing.folders]
        self._listings = fresh
        return found


def _list_folder(path: str, changed: tuple[int, int, int], depth: int) -> _Listing:
    names, folders, git_names = set(), [], []
    with os.scandir(path) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.name.casefold() == ".git":
                git_names.append(entry.name)
            # Whether ".GIT" is git's depends on the file system.
            if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
    if "HEAD" in names and ({"objects", "refs"} <= names or "commondir" in names):
        git_names.append(".")
    run_later = tuple(name for name in names if is_run_later(name, depth))
    return _Listing(changed, tuple(folders), tuple(git_names), run_later)


def configured_files(repository: Path) -> Iterator[Path]:
    """Yield files of the working tree, missing ones too, that a repository's configuration names:
    programs, folders of hooks, and further configurations with what those name."""
    folder, tree = repository, repository.parent
    with contextlib.suppress(OSError, ValueError):
        if repository.is_file():
            folder = tree / repository.read_text("utf-8").removeprefix("gitdir:").strip()
    common = folder
    with contextlib.suppress(OSError, ValueError):
        common = folder / (folder / "commondir").read_text("utf-8").strip()
    yield from _hook_files(common / "hooks", tree)
    configs = [common / "config", common / "config.worktree", folder / "config.worktree"]
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    personal = [Path.home() / ".gitconfig", settings / "git/config"]  # hooks for any repository
    configs += personal
    seen: set[Path] = set()
    while configs:
        config = configs.pop()
        for key, word in [] if config in seen else _config_words(config):
            if config in personal and key != "hookspath":
                continue
            path = Path(config.parent if key == "path" else tree, word)
            if key == "path":  # of [include], relative to its own file
                configs.append(path)
            with contextlib.suppress(OSError):  # a word that is too long for a name
                if key == "hookspath":
                    folders = [path, path.parent] if path.parent.name == ".husky" else [path]
                    for hooks in folders:
                        yield from _hook_files(hooks, tree)
                if key == "hookspath" or path.is_file() or not path.exists():
                    yield path
        seen.add(config)


def _hook_files(hooks: Path, tree: Path) -> Iterator[Path]:
    """Yield hooks that are links, and files that hooks name from the tree or their own folder."""
    try:
        entries = [path for path in hooks.iterdir() if path.suffix != ".sample"]
    except OSError:
        return
    for hook in entries:
        if hook.is_symlink():
            yield hook
        with contextlib.suppress(OSError):
            if not hook.is_file() or hook.stat().st_size > MAX_CONFIG_BYTES:
                continue
            text = _COMMENTS.sub("", hook.read_text("utf-8", "replace"))
            for word in set(_WORDS.findall(_VARIABLES.sub("", text))):
                for folder in (tree, hooks) if "/" in word or "." in word else ():
                    path = folder / word.lstrip("/")
                    if path.is_file() or (word.startswith("./") and not path.exists()):
                        yield path


def _config_words(config: Path) -> Iterator[tuple[str, str]]:
    """Yield the keys of a configuration's lines with what could be a path in their values."""
    try:
        if config.stat().st_size > MAX_CONFIG_BYTES:
            return
        lines = config.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        line = _SECTION.sub("", line)  # a key may follow it
        key, _, value = (part.strip() for part in line.partition("="))
        for word in {value.strip('"'), *value.split()} - {"", "."}:
            if key.lower() in ("path", "hookspath") or "/" in word or "." in word:
                yield key.lower(), word


def disarm(repository: Path) -> Path | None:
    """Rename a repository that a command created if it makes git run programs; its new path."""
    with contextlib.suppress(OSError):
        if _is_inert(repository):
            return None
    bare = repository.name.casefold() != ".git"
    with contextlib.suppress(OSError):
        if not repository.is_symlink() and os.path.lexists(repository / "HEAD"):
            head = move_aside(repository / "HEAD")
            if bare:
                return head
    return None if bare else move_aside(repository)


def _is_inert(repository: Path) -> bool:
    """Return whether nothing in a repository makes git run a program; raises OSError."""
    if repository.is_symlink() or not repository.is_dir():
        return False  # it leads to one that may be changed later
    for name in ("commondir", "modules", "worktrees", "rebase-merge", "rebase-apply", "sequencer"):
        if os.path.lexists(repository / name):
            return False
    hooks = repository / "hooks"
    if hooks.is_dir() and not all(path.suffix == ".sample" for path in hooks.iterdir()):
        return False
    if _has_links(repository):
        return False
    configs = [repository / name for name in ("config", "config.worktree")]
    return all(_is_config_inert(path) for path in configs if os.path.lexists(path))


def _has_links(repository: Path) -> bool:
    """Whether git could write elsewhere by its own files; not by objects. Raises OSError."""
    pending = [str(repository)]
    for seen in range(MAX_SCANNED_FOLDERS):
        if not pending:
            return False
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    return True
                if entry.is_dir():
                    if seen or entry.name != "objects":
                        pending.append(entry.path)
                elif entry.stat().st_nlink > 1:
                    return True
    return True


def _is_config_inert(config: Path) -> bool:
    if config.is_symlink() or not config.is_file() or config.stat().st_nlink > 1:
        return False
    words = ["config", "--file", str(config), "--no-includes", "--list", "--name-only", "-z"]
    top = Path("/")
    try:
        listed = run_git(*words, work_tree=top, folder=top, seconds=GIT_TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return False
    keys = listed.decode("utf-8", "replace").split("\0")[:-1]
    return all(map(_INERT_KEYS.fullmatch, keys))
