"""Paths as people write them, on the command line and in files."""

import errno
import os
from pathlib import Path

from agent.errors import UserError

MAX_TEXT_LENGTH = 16_000_000
"""Characters of a file that a person names as text."""


def provide_home() -> None:
    """Let ``AGENT_HOME`` be the home folder of a user who has none: a system service, a container."""
    own = os.environ.get("AGENT_HOME", "")
    if own and not own.startswith("~") and os.path.expanduser("~") == "~":  # noqa: PTH111
        os.environ["HOME"] = os.path.abspath(own)  # noqa: PTH100


def expand_path(path: str | Path) -> Path:
    """Return a path with the home folder in place of ``~``; nothing need be there. Raises UserError
    where nothing can be: ``is_file`` or ``exists`` of the result raise no error."""
    try:
        expanded = Path(path).expanduser()
        expanded.stat()
        return expanded
    except (FileNotFoundError, NotADirectoryError):
        return expanded
    except OSError as error:
        number = error.errno or 0
        reason = "its links form a loop" if number == errno.ELOOP else os.strerror(number)
    except ValueError:
        reason = "it has a NUL in it"
    except RuntimeError:
        reason = "there is no such user"
    raise UserError(f"{str(path)!r} cannot be used: {reason}.")


def read_text(path: Path, *, accept_pipe: bool = True) -> str:
    """Read a UTF-8 file. Raises OSError; ValueError: it is too long, or a pipe (which may block)."""
    if not accept_pipe and path.is_fifo():
        raise ValueError("it is a pipe")
    with path.open(encoding="utf-8-sig") as file:
        text = file.read(MAX_TEXT_LENGTH + 1)
    if len(text) > MAX_TEXT_LENGTH:
        raise ValueError(f"it has more than {MAX_TEXT_LENGTH:,} characters")
    return text


def refuse_link(path: Path, folder: Path | None = None) -> None:
    """Raise UserError for an output that a link in ``folder`` (default: here) leads elsewhere."""
    file, root = path.absolute(), (folder or Path()).absolute()
    below = [each for each in (file, *file.parents) if root in each.parents]
    if root != root.parent and (link := next(filter(Path.is_symlink, below), None)):
        raise UserError(f"{link} is a link to {link.readlink()}: name the file itself.")
