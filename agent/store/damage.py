"""Rows of a store that cannot be read: each is left out and named, and the rest stays usable."""

import errno
import logging
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import AgentError, describe_cause

log = logging.getLogger(__name__)

READ_ERRORS = (
    *(sqlite3.Error, ValueError, TypeError, AttributeError, LookupError),
    *(ArithmeticError, RecursionError, OSError, zlib.error),
)
MAX_REASON_CHARS = 160
OPENING_BYTES = 1 << 16
"""Disk space that SQLite needs at least for an open store: its shared memory takes half of it."""


class NewerStoreError(AgentError, ValueError):
    """The store has migration steps that this program does not know."""


class DamageLog:
    """Rows that could not be read since the store was opened; each is named once."""

    def __init__(self) -> None:
        self._rows: set[str] = set()
        self._sentences: list[str] = []

    def note(self, row: str, reason: Exception | str) -> None:
        """Name a row, such as ``Turn resp_1``, and why it is left out."""
        if row in self._rows:
            return
        text = reason if isinstance(reason, str) else describe(reason)
        sentence = f"{row} is damaged and left out: {text}."
        log.warning("%s", sentence)
        self._rows.add(row)
        self._sentences.append(sentence)

    @contextmanager
    def noting(self, row: str) -> Iterator[None]:
        """Note an error of reading the row, which ends the block."""
        try:
            yield
        except READ_ERRORS as error:
            self.note(row, error)

    def take(self) -> list[str]:
        sentences, self._sentences = self._sentences, []
        return sentences


def describe(error: Exception) -> str:
    """The message of an exception, in one line without a full stop."""
    lines = describe_cause(error).split("\n")
    if hasattr(error, "errors") and len(lines) > 2:  # pydantic: title, field, message [details]
        lines = [f"{lines[1]}: {lines[2].strip().partition(' [type=')[0]}"]
    return lines[0][:MAX_REASON_CHARS].strip().rstrip(".") or type(error).__name__


def error_code(error: Exception) -> int:
    """SQLite's primary result code; 0: it is another error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_disk_full(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(OPENING_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return False


def explain(store: Path, error: Exception) -> str:
    what = f"The store {store} cannot be used: {describe(error)}."
    code = error_code(error)
    # SQLite calls a full disk an I/O error where it cannot make the files next to the store.
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and is_disk_full(store.parent):
        code = sqlite3.SQLITE_FULL
        what = f"The store {store} cannot be used: the disk is full."
    match code:
        case sqlite3.SQLITE_FULL:
            return f"{what} Free some disk space."
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
            return f"{what} The store itself may be in order: check the disk that it is on."
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"{what} Another program is writing to it; try again when that has ended."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"{what} Check that you may write to it and to its folder."
    if isinstance(error, NewerStoreError):
        return f"{what} Update agent, or move the file away to begin a new store."
    if isinstance(error, OSError):
        return what
    return (
        f"{what} Move it away to begin a new one: mv '{store}' '{store}.damaged'. Its readable part"
        f" can be exported: sqlite3 '{store}.damaged' .recover"
    )
