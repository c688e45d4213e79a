"""What was sent before, kept across sessions: one JSON string a line."""

from __future__ import annotations

import os
from pathlib import Path

from tools import private_files

KEPT = 1000
"""So many prompts are remembered; the file is cut to them when it is read."""


class History:
    """Walked through with ``earlier`` and ``later``; what was being written is kept at its end."""

    def __init__(self, path: Path | None) -> None:
        """``path``: where it is kept; None keeps it in this process."""
        self._path = path
        self._entries: list[str] | None = None
        self._at = 0
        self._draft = ""

    @property
    def entries(self) -> list[str]:
        """Read when it is first needed: not before the first paint."""
        if self._entries is None:
            self._entries = self._read()
            self._at = len(self._entries)
        return self._entries

    def add(self, text: str) -> None:
        entries = self.entries
        if not entries or entries[-1] != text:
            entries.append(text)
            self._append(text)
        self._at = len(entries)

    def earlier(self, draft: str) -> str | None:
        """The one before; ``draft``: what stands in the prompt now."""
        entries = self.entries
        if self._at == len(entries):
            self._draft = draft
        if self._at == 0:
            return None
        self._at -= 1
        return entries[self._at]

    def later(self) -> str | None:
        """The one after, at last what was being written."""
        entries = self.entries
        if self._at >= len(entries):
            return None
        self._at += 1
        return entries[self._at] if self._at < len(entries) else self._draft

    def _read(self) -> list[str]:
        import json

        if self._path is None:
            return []
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        entries = []
        for line in lines[-KEPT:]:
            try:
                entries.append(str(json.loads(line)))
            except ValueError:
                continue  # a line that another process was cut off in
        if len(lines) > 2 * KEPT:
            self._write("w", "".join(f"{json.dumps(entry)}\n" for entry in entries))
        return entries

    def _append(self, text: str) -> None:
        import json

        self._write("a", json.dumps(text) + "\n")

    def _write(self, mode: str, text: str) -> None:
        if self._path is None:
            return
        try:
            private_files.folder(self._path.parent)
            with open(self._path, mode, encoding="utf-8", opener=private_files.opener) as file:
                os.fchmod(file.fileno(), 0o600)  # where it was there before
                file.write(text)
        except OSError:
            self._path = None  # it cannot be kept; this session's prompts are still there
