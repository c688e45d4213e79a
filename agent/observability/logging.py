"""The log file: its owner's alone, made when there is something to write, harmless when it is read."""

from __future__ import annotations

import logging
import logging.handlers
import os
from io import TextIOWrapper
from pathlib import Path

from agent.config.settings import Places
from agent.util.sanitize import harmless
from tools import private_files

MAX_BYTES = 5_000_000


def to_file(where: Places, level: str = "warning") -> None:
    """Everything that is logged goes to the log file; where none can be written, nowhere."""
    logging.raiseExceptions = False  # what cannot be logged (a full disk) is not shown instead
    root = logging.getLogger()
    root.setLevel(level.upper())
    handler = _File(where.log, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.handlers[:] = [handler]
    for name in ("httpx2", "httpcore2", "mcp"):  # addresses and messages may carry keys
        logging.getLogger(name).setLevel(logging.WARNING)


class _File(logging.handlers.RotatingFileHandler):
    """The one behind it, made when this is full, is its owner's alone too."""

    def _open(self) -> TextIOWrapper:
        private_files.folder(Path(self.baseFilename).parent)
        os.close(private_files.opener(self.baseFilename, os.O_WRONLY | os.O_CREAT))
        return super()._open()


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))
