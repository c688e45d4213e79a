"""Reads the text files that a folder brings along, none of which can hang or mislead the start."""

import codecs
import errno
import os
import stat
from pathlib import Path

from agent.errors import AgentError
from agent.util.sanitize import sanitize
from tools.sanitize import strip_hidden

SKILL_FOLDERS = (Path(".agents", "skills"), Path(".claude", "skills"))
"""The folders of a project's skills (`agent.config.skills`)."""


class UnusableFileError(AgentError):
    """A file that is left out; the message is the predicate of a sentence about it."""


def project_folders(root: Path) -> list[Path]:
    """The folders from the git repository's root, or else ``root``, down to ``root``, resolved. A
    ``.git`` of another user does not count: any user can put one into ``/tmp``."""
    root = root.resolve()
    for folder in (root, *root.parents):
        try:
            if (folder / ".git").lstat().st_uid in (os.getuid(), 0):
                return [root, *root.parents][: len(root.parts) - len(folder.parts) + 1][::-1]
        except OSError:
            continue
    return [root]


def project_name(root: Path) -> str:
    """The path of the repository that ``root`` is in, or else of ``root``, as conversations keep it."""
    return os.fsencode(project_folders(root)[0]).decode(errors="backslashreplace")


def read_clean_text(path: Path, max_bytes: int, *, inside: Path | None = None) -> tuple[str, bool]:
    """Read a regular UTF-8 file's start, without control and hidden characters; the text, and whether
    there is more. ``inside``: links must not leave it. Raises FileNotFoundError, UnusableFileError."""
    try:
        real = path.resolve(strict=True)
        if inside is not None and not real.is_relative_to(inside):
            raise UnusableFileError("is a link that leads out of its project")
        data = read_regular_file(real, max_bytes + 1)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "its links form a loop"
        raise UnusableFileError(f"cannot be read: {reason}") from error
    cut = len(data) > max_bytes
    try:
        # A character that the bound cuts through is left out.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data[:max_bytes], final=not cut)
    except UnicodeDecodeError as error:
        raise UnusableFileError("is not UTF-8 text") from error
    if "\0" in text:
        raise UnusableFileError("is not UTF-8 text")
    return strip_hidden(sanitize(text)), cut


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Read a file that is neither a link nor a pipe or device by the time it is open."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(max_bytes)
