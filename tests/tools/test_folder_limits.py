"""Folders that are deep, wide or locked are measured within a budget and removed."""

import os
from pathlib import Path

import pytest

from agent.util.folder_limits import (
    HIDDEN_ENTRIES,
    measure_folder,
    remove_changed_since,
    remove_tree,
)
from tests.support.folders import nest_folders
from tests.support.waiting import wait_until
from tools.builtin import conversation_folders

DEPTH = 1100
"""More than Python recurses, and than a path has room for."""


def test_remove_tree_deep_or_wide_folder_is_gone(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    nest_folders(folder, DEPTH)
    outside.mkdir()
    (outside / "file").write_text("x")
    (folder / "link").symlink_to(outside)
    for number in range(2500):
        (folder / f"file-{number}").touch()
    locked = folder / "locked"
    (locked / "inner" / "deeper").mkdir(parents=True)
    (locked / "inner").chmod(0o300)
    locked.chmod(0)
    assert remove_tree(folder) and not folder.exists()
    assert remove_tree(folder), "a missing folder is gone"
    assert (outside / "file").read_text() == "x"


def test_remove_tree_unremovable_entry_returns_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == "stuck":
            raise PermissionError
        unlink(path, dir_fd=dir_fd)

    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "stuck").touch()
    (tmp_path / "folder" / "file").touch()
    monkeypatch.setattr(os, "unlink", refuse)  # no mode or file system does that to root
    assert not remove_tree(tmp_path / "folder")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "inner", "stuck"]


def test_measure_folder_counts_within_budget(tmp_path: Path) -> None:
    assert measure_folder(tmp_path / "missing").entries == 0
    (tmp_path / "folder").mkdir()
    for number in range(50):
        (tmp_path / "folder" / str(number)).write_bytes(b"x" * 10_000)
    usage = measure_folder(tmp_path)
    assert usage.entries == 51 and usage.bytes >= 500_000
    assert measure_folder(tmp_path, max_entries=10).entries == 11
    assert measure_folder(tmp_path, max_bytes=100_000).entries < 51
    nest_folders(tmp_path / "deep", 150)
    assert measure_folder(tmp_path).entries > HIDDEN_ENTRIES
    remove_tree(tmp_path / "deep")


def test_remove_changed_since_leaves_older_files(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").write_text("x")
    status = (folder / "old").stat()
    while True:  # until the clock of the file system has moved on
        (tmp_path / "clock").write_text("x")
        if (since := (tmp_path / "clock").stat().st_ctime_ns) > status.st_ctime_ns:
            break
    (folder / "new").mkdir()
    (folder / "new" / "file").write_text("x")
    nest_folders(folder / "deep", 150)
    remove_changed_since(folder, since)
    assert [path.name for path in folder.iterdir()] == ["old"]


async def test_conversations_deep_folders_deleted_and_pruned(tmp_path: Path) -> None:
    nest_folders(tmp_path / "python" / "a", DEPTH)
    conversation_folders.delete_conversation(tmp_path, "a")
    assert not [*tmp_path.glob("*/*")]
    nest_folders(tmp_path / "python" / "old", DEPTH)
    os.utime(tmp_path / "python" / "old", (1000, 1000))
    (tmp_path / "python" / "new").mkdir()
    conversation_folders.ConversationFolders(tmp_path / "python", 2).prune(())
    await wait_until(lambda: [path.name for path in (tmp_path / "python").iterdir()] == ["new"])
