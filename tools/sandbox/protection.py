"""Makes paths below a command's root read-only, in the terms of each isolation."""

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAX_PROTECTED_CHARS = 60_000
"""Characters of all protected paths: they are arguments of the command lines that confine."""


@dataclass(frozen=True, slots=True)
class Protection:
    """Paths that a command must not change, and the folders on the way to them."""

    read_only: Sequence[str] = ()
    """Files and folders, without links in them; none is below another."""
    pinned: Sequence[str] = ()
    """The folders between the root and those, the upper first: renamed, others could replace them."""
    unreadable: Sequence[str] = ()
    """Those of ``read_only`` that cannot be read either."""
    identities: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Device and inode of each path: what is mounted is compared with them."""
    links: dict[str, str] = field(default_factory=dict)
    """Symbolic links to restore after the command (nothing can be mounted on them), with targets."""

    @property
    def is_too_large(self) -> bool:
        return sum(map(len, self.identities)) > MAX_PROTECTED_CHARS

    def bind_options(self) -> list[str]:
        """bubblewrap's options; folders on the way are mount points, too: those cannot be renamed."""
        pins = [part for path in self.pinned for part in ("--bind", path, path)]
        for path in self.read_only:
            if path not in self.unreadable:
                pins += ["--ro-bind", path, path]
            elif Path(path).is_dir():
                pins += ["--tmpfs", path, "--remount-ro", path]
            else:
                pins += ["--ro-bind", "/dev/null", path]
        return pins

    def partly_writable(self, root: Path) -> dict[str, list[str]]:
        """Folders, the upper first, with the names in them that get no write access as a unit."""
        if not self.read_only:
            return {}
        names: dict[str, list[str]] = {path: [] for path in (str(root), *self.pinned)}
        for path in (*self.pinned, *self.read_only):
            folder, _, name = path.rpartition("/")
            names[folder].append(name)
        return names

    def restore_links(self) -> list[str]:
        """Put back the links that were replaced; return their paths."""
        replaced = []
        for path, target in self.links.items():
            with contextlib.suppress(OSError):
                if Path(path).is_symlink() and str(Path(path).readlink()) == target:
                    continue
            replaced.append(path)
            with contextlib.suppress(OSError):
                if os.path.lexists(path):
                    move_aside(Path(path))
                Path(path).symlink_to(target)
        return replaced


def protect(root: Path, paths: Iterable[Path], keys: Iterable[Path] = ()) -> Protection:
    """The protection of ``paths`` that exist below ``root``; ``keys``: those that stay unread, too."""
    statuses: dict[str, os.stat_result] = {}
    links: dict[str, str] = {}
    read_only: set[str] = set()
    remaining = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - follows no links
    while remaining:
        path = remaining.pop()
        if path == root or not path.is_relative_to(root):
            continue
        steps = _steps(root, path)
        statuses |= steps
        last = next(reversed(steps), "")
        if last and stat.S_ISLNK(steps[last].st_mode):
            if last not in links:
                links[last] = os.readlink(last)  # noqa: PTH115 - its text as it is
                remaining.append(Path(os.path.realpath(path)))  # unlike resolve(), also of a loop
        elif last == str(path):
            read_only.add(last)
    outermost = sorted(path for path in read_only if read_only.isdisjoint(_parents(path)))
    pinned = {parent for path in outermost for parent in _parents(path) if parent in statuses}
    unreadable = sorted(set(map(str, keys)).intersection(outermost))
    used = {path: statuses[path] for path in (*pinned, *outermost) if path not in unreadable}
    identities = {path: (status.st_dev, status.st_ino) for path, status in used.items()}
    pins = sorted(pinned, key=lambda path: path.split("/"))
    return Protection(outermost, pins, unreadable, identities, links)


def move_aside(path: Path) -> Path:
    """Rename a file or folder so that nothing uses it; return its new path. Raises OSError."""
    folder = path.parent
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o300)  # whatever a command has made of it
    number = 0
    while os.path.lexists(new := f"{path}.refused{number or ''}"):
        number += 1
    return path.rename(new)


def _steps(root: Path, path: Path) -> dict[str, os.stat_result]:
    """The status of each step from ``root`` to ``path``, by descriptors: new links lead nowhere."""
    steps: dict[str, os.stat_result] = {}
    mode = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
    folder, here = os.open(root, mode), root
    try:
        for name in path.relative_to(root).parts:
            here /= name
            descriptor = os.open(name, mode, dir_fd=folder)
            os.close(folder)
            folder = descriptor
            steps[str(here)] = status = os.fstat(descriptor)
            if not stat.S_ISDIR(status.st_mode):
                break
    except OSError:
        pass  # it is not there
    finally:
        os.close(folder)
    return steps


def _parents(path: str) -> list[str]:
    return [str(parent) for parent in Path(path).parents]
