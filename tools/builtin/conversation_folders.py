"""The folders in which built-in servers store something for each conversation."""

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from agent.util.folder_limits import remove_tree
from agent.util.temporary_folders import make_temporary_folder

MAX_CONVERSATION_FOLDERS = 100
"""Conversations whose folders a built-in server leaves on disk; the least recently used go first."""
REMOVED_PREFIX = ".removed-"
"""Begins the names of folders that are about to be removed; a conversation's has no dot."""
STORE_NAMES = ("python", "pages", "changes")
"""Below the work folder: the folders that have one folder for each conversation; the last one was
for undo, which `tools.builtin.files.journal` has now."""


class ConversationFolders:
    """The folders of one built-in server, by conversation id."""

    def __init__(self, base: Path | None, count: int = MAX_CONVERSATION_FOLDERS) -> None:
        """``base``: None: a temporary folder, which goes with this process."""
        self._base, self.count = base, count

    @cached_property
    def base(self) -> Path:
        return (self._base or make_temporary_folder("agent-conversations-")).resolve()

    def find(self, key: str) -> Path:
        """Return a conversation's folder, now the most recently used one; does not make it."""
        folder = _folder(self.base, key)
        with contextlib.suppress(OSError):
            os.utime(folder)
        return folder

    def prune(self, keep: Collection[Path]) -> None:
        """Remove the least recently used folders but ``keep``, in a thread: one may take minutes."""
        if old := self._take_old({path.name for path in keep}):
            threading.Thread(target=lambda: [*map(remove_tree, old)], daemon=True).start()

    def _take_old(self, keep: Collection[str]) -> list[Path]:
        """Rename the folders to remove; return them, with those that an earlier process left."""
        try:
            folders = sorted(self.base.iterdir(), key=lambda path: -path.stat().st_mtime)
        except OSError:
            return []
        removable = [path for path in folders if path.name.startswith(REMOVED_PREFIX)]
        folders = [path for path in folders if path not in removable]
        for folder in folders[self.count - 1 :]:
            if folder.name not in keep:
                with contextlib.suppress(OSError):
                    name = f"{REMOVED_PREFIX}{secrets.token_hex(8)}"
                    removable.append(folder.rename(self.base / name))
        return removable


def delete_conversation(work: Path, key: str) -> None:
    """Delete what built-in servers have stored for a conversation below the work folder."""
    for name in STORE_NAMES:
        remove_tree(_folder(work / name, key))


def _folder(base: Path, key: str) -> Path:
    return base / (re.sub(r"[^\w-]", "_", key)[:100] or "none")
