"""The prompts that were sent, also in earlier sessions: a file with one JSON object per line, the text
and the folder. Lines of older versions are strings; they count in every folder."""

import json
import os
from pathlib import Path

from agent.config.text_files import project_name
from agent.util import private_files

MAX_PROMPTS = 1000
"""Prompts that are remembered; a file of more than twice as many is cut to them when it is read."""


class PromptHistory:
    """The prompts in order, behind them the draft, with a position that ``go`` moves.
    An edit stays at its position until something is sent, then among this process's earlier prompts."""

    def __init__(self, path: Path | None, root: Path | None = None) -> None:
        """``path``: the file; None keeps the prompts in this process only. ``root``: the folder that is
        worked in; None: prompts belong to no folder."""
        self._path, self._root, self._folder = path, root, ""
        self._everywhere: list[str] = []
        self._entries: list[str] | None = None
        self._index = self._read_count = 0
        self._edits: dict[int, str] = {}
        """Edited texts by index of the prompt; the draft's index is the number of prompts."""

    @property
    def entries(self) -> list[str]:
        """The prompts of this folder; the file is read when they are first needed, not before the first
        paint."""
        if self._entries is None:
            self._entries = self._read()
            self._index = self._read_count = len(self._entries)
        return self._entries

    @property
    def everywhere(self) -> list[str]:
        """The prompts of all folders."""
        return [*self._everywhere, *self.entries[self._read_count :]]

    def add(self, text: str) -> None:
        """Append a prompt that was sent, unless it repeats the latest one; go to the end."""
        entries = self.entries
        self._edits.pop(self._index, None)
        self.add_unsent()
        if not entries or entries[-1] != text:
            entries.append(text)
            self._write("a", json.dumps({"text": text, "folder": self._folder}) + "\n")
        self._index = len(entries)

    def add_unsent(self, text: str = "") -> None:
        """Append an unsent text, behind those on the way, for this process only; go to the end."""
        for unsent in (*(self._edits[index] for index in sorted(self._edits)), text):
            if unsent.strip() and unsent not in self.entries:
                self.entries.append(unsent)
        self._index, self._edits = len(self.entries), {}

    def go(self, by: int, text: str) -> str | None:
        """Go to the prompt before (-1), or the next or the draft (1). ``text``: what is there now."""
        entries = self.entries
        index = self._index + by
        if not 0 <= index <= len(entries):
            return None
        self._edits[self._index], self._index = text, index
        return self._edits.get(index, entries[index] if index < len(entries) else "")

    def _read(self) -> list[str]:
        if self._path is None:
            return []
        if self._root is not None:
            self._folder = project_name(self._root)
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        entries = []
        for line in (kept := lines[-MAX_PROMPTS:]):
            try:
                value = json.loads(line)
            except ValueError:
                continue  # another process was killed while it wrote this line
            prompt = value if isinstance(value, dict) else {"text": value}
            self._everywhere.append(text := str(prompt.get("text", "")))
            if prompt.get("folder", self._folder) == self._folder:
                entries.append(text)
        if len(lines) > 2 * MAX_PROMPTS:
            self._write("w", "".join(f"{line}\n" for line in kept))
        return entries

    def _write(self, mode: str, text: str) -> None:
        if self._path is None:
            return
        try:
            private_files.make_folder(self._path.parent)
            with open(self._path, mode, encoding="utf-8", opener=private_files.opener) as file:
                os.fchmod(file.fileno(), 0o600)  # also if the file existed before
                file.write(text)
        except OSError:
            self._path = None  # not writable: from now on in this process only
