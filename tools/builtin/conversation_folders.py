"""The folders in which built-in servers store something for each conversation."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path

from agent.util.folder_limits import remove_tree

MAX_CONVERSATION_FOLDERS = 100
"""Conversations whose folders a built-in server leaves on disk; the least recently used go first."""
REMOVED_PREFIX = ".removed-"
"""Begins the names of folders that are about to be removed; a conversation's has no dot."""
STORE_NAMES = ("python", "pages", "changes")
"""Below the work folder: the folders that have one folder for each conversation."""


def conversation_folder(base: Path, key: str) -> Path:
    """Return the folder of a conversation id below ``base``; does not make it."""
    return base / (re.sub(r"[^\w-]", "_", key)[:100] or "none")


def delete_conversation(work: Path, key: str) -> None:
    """Delete what built-in servers have stored for a conversation below the work folder."""
    for name in STORE_NAMES:
        remove_tree(conversation_folder(work / name, key))


def mark_used(folder: Path) -> None:
    """Make a conversation's folder, if it exists, the most recently used one."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def prune_folders(base: Path, count: int, keep: Collection[Path] = ()) -> None:
    """Delete all folders below ``base`` but the ``count`` most recently used ones and ``keep``."""
    for folder in take_old_folders(base, count, keep):
        remove_tree(folder)


def take_old_folders(base: Path, count: int, keep: Collection[Path] = ()) -> list[Path]:
    """Rename all folders but the ``count`` most recently used ones and ``keep``; return those to
    remove, which may take long."""
    try:
        folders = sorted(base.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    removable = [path for path in folders if path.name.startswith(REMOVED_PREFIX)]
    folders = [path for path in folders if path not in removable]
    names = {path.name for path in keep}
    for folder in folders[count:]:
        if folder.name not in names:
            with contextlib.suppress(OSError):
                removable.append(folder.rename(base / f"{REMOVED_PREFIX}{secrets.token_hex(8)}"))
    return removable
