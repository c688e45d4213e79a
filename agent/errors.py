"""The root of the program's exceptions, and the words for the system's. Imports nothing of the program:
every package may import it."""

from collections.abc import Iterator
from contextlib import contextmanager


class AgentError(Exception):
    """Base class of every exception that this program defines."""


class UserError(AgentError):
    """Wrong options or files; a command prints the message on stderr and exits with code 2."""


@contextmanager
def user_errors(*kinds: type[Exception], failure: str = "") -> Iterator[None]:
    """Raise errors of these kinds as UserError, with their message, or else "FAILURE: CAUSE."."""
    try:
        yield
    except kinds as error:
        raise UserError(
            f"{failure}: {describe_cause(error)}." if failure else str(error)
        ) from error


def describe_cause(error: Exception) -> str:
    """The cause that an error names; of an OSError without its number and path."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def system_refusal(error: BaseException) -> str | None:
    """Describe an error of the system in a sentence with its file; None: another error."""
    if isinstance(error, MemoryError):
        return "There is not enough memory (ulimit -v says how much this process may take)."
    # A full disk, a broken one, no descriptors.
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if isinstance(error.filename, str) else ""
        return f"{error.strerror}{where}."
    return None
