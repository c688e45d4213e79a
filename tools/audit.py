"""The audit log of calls that were allowed and refused: one JSON object a line, mode 0600."""

import json
import logging
import time
from pathlib import Path
from typing import Any

from agent.util import private_files

log = logging.getLogger(__name__)

MAX_ARGUMENTS_CHARS = 2000
MAX_LOG_BYTES = 10_000_000
"""From this size on the log is renamed to ``….1``, which replaces the one before."""


class AuditLog:
    """Appends decisions to a file."""

    def __init__(self, path: Path | None) -> None:
        """``path``: None logs nothing."""
        self.path = path

    def record(self, server: str, tool: str, arguments: str, **details: Any) -> None:
        """Append one decision; if that fails, the program's own log says so."""
        if self.path is None:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        arguments = arguments[:MAX_ARGUMENTS_CHARS]
        entry = {"at": at, "server": server, "tool": tool, "arguments": arguments, **details}
        line = json.dumps(entry, ensure_ascii=True) + "\n"
        try:
            private_files.make_folder(self.path.parent)
            # Unbuffered: a line of another process may come between two, not into one.
            with open(self.path, "ab", buffering=0, opener=private_files.opener) as file:
                file.write(line.encode())
                full = file.tell() > MAX_LOG_BYTES
            if full:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path, error)

    def record_contact(self, server: str, contact: dict[str, Any], about: str) -> tuple[str, str]:
        """Append what a supervisor reports of a host; return host:port, and why it was refused."""
        host, why = f"{contact['host']}:{contact['port']}", str(contact.get("refused", ""))
        details = {"why": why} if why else {}
        decision = "refused" if why else "allowed"
        arguments = json.dumps({"host": host, "by": about})
        self.record(server, "network", arguments, decision=decision, by="network", **details)
        return host, why
