"""Sends log records to agent.log, which only its owner can read, and which is safe to print."""

import contextlib
import logging
import logging.handlers
import os
from io import TextIOWrapper
from pathlib import Path

from agent.config.paths import Paths
from agent.util import private_files
from agent.util.sanitize import sanitize

log = logging.getLogger(__name__)

MAX_LOG_BYTES = 5_000_000
"""Bytes after which the file is renamed to agent.log.1 and a new one begins."""
ACCEPT_LOG_SECONDS = 60.0
"""Pause between log lines about connections that cannot be accepted."""


def log_to_file(paths: Paths, level: str = "warning", *, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Log ``level`` and above to the log file, or nowhere where it cannot be written. Log files that
    others could read become the owner's alone."""
    logging.raiseExceptions = False  # what cannot be logged (a full disk) is not shown instead
    root = logging.getLogger()
    root.setLevel(level.upper())
    handler = _PrivateRotatingFile(
        paths.log_file, maxBytes=max_bytes, backupCount=1, encoding="utf-8", delay=True
    )
    handler.setFormatter(_SanitizingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.handlers[:] = [handler]
    if loose := private_files.restrict_modes(paths.state):
        names = ", ".join(path.name for path in loose)
        log.warning("Others could read or change what lies in %s; now not: %s", paths.state, names)
    logging.getLogger("asyncio").filters[:] = [_AcceptFilter()]
    for name in ("httpx2", "httpcore2", "mcp"):  # addresses and messages may carry keys
        logging.getLogger(name).setLevel(logging.WARNING)


def open_log_file() -> None:
    """Open the log file now: when file descriptors run out, it could not be opened any more."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            with contextlib.suppress(OSError):  # where it cannot be written, that is shown nowhere
                handler.stream = handler.stream or handler._open()


class _AcceptFilter(logging.Filter):
    """Makes one warning of the error, with its traceback, that asyncio logs once a second for every
    listening socket while no connection can be accepted."""

    _logged_at = -ACCEPT_LOG_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        if "socket.accept() out of system resource" not in str(record.msg):
            return True
        error = record.exc_info[1] if record.exc_info else None
        record.msg, record.exc_info = f"Connections wait until others are closed: {error}", None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        is_first = record.created - self._logged_at >= ACCEPT_LOG_SECONDS
        if is_first:
            self._logged_at = record.created
        return is_first


class _PrivateRotatingFile(logging.handlers.RotatingFileHandler):
    """A rotating file for its owner alone; so is the one that it is renamed to."""

    def _open(self) -> TextIOWrapper:
        private_files.make_folder(Path(self.baseFilename).parent)
        os.close(private_files.opener(self.baseFilename, os.O_WRONLY | os.O_CREAT))
        return super()._open()


class _SanitizingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return sanitize(super().format(record))
