"""The log of what was allowed and refused: one JSON object a line, readable by its owner only."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from tools import private_files

log = logging.getLogger(__name__)

MAX_ARGUMENTS = 2000
"""Characters of a call's arguments that are kept."""
MAX_BYTES = 10_000_000
"""From this size on the log is put aside as ``….1``, in place of the one before."""


class Audit:
    def __init__(self, path: Path | None) -> None:
        """``path``: None keeps nothing."""
        self.path = path

    def note(self, server: str, tool: str, arguments: str, **said: Any) -> None:
        """One decision; a log that cannot be written is told in the program's own."""
        if self.path is None:
            return
        entry = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "server": server,
            "tool": tool,
            "arguments": arguments[:MAX_ARGUMENTS],
            **said,
        }
        line = json.dumps(entry, ensure_ascii=True) + "\n"
        try:
            private_files.folder(self.path.parent)
            number = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(number, line.encode())
                full = os.fstat(number).st_size > MAX_BYTES
            finally:
                os.close(number)
            if full:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path, error)
