"""The files tool stays beneath its root, also while another process exchanges folders for links."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.swapping import make_changes, swap_attack
from tools.builtin.files import changes
from tools.builtin.files.journal import ChangeJournal
from tools.builtin.files.reading import FileReader
from tools.builtin.files.root_folder import SEARCH_FLAGS, RootFolder, open_folder
from tools.builtin_server import ToolError

ATTEMPTS = 400
"""Rounds of the real attack: without the descriptors some of them get out."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder ``d``, and ``link`` to a folder outside that has the same file."""
    root = tmp_path / "root"
    for folder in (root / "d", tmp_path / "outside", root / ".git"):
        folder.mkdir(parents=True)
        (folder / "f.txt").write_text("secret" if folder != root / "d" else "mine")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "absolute").symlink_to(root / "d")
    (root / "relative").symlink_to("absolute")
    return root


def open_below(root: Path) -> list[str]:
    """What this process has open below a folder; other tests' files may be closed at any time."""
    opened = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            opened.append(str(fd.readlink()))
    return sorted(path for path in opened if path.startswith(str(root)))


def test_open_folder_links_and_parents_refused(root: Path) -> None:
    (root / "d" / "e").mkdir()
    fd = os.open(root, SEARCH_FLAGS)
    before = open_below(root)
    try:
        inner = open_folder(fd, ("d", "e"))
        assert os.path.samestat(os.fstat(inner), (root / "d" / "e").stat())
        os.close(inner)
        for parts in (("link",), ("relative",), ("..",), ("d", "..", ".."), ("absolute", "e")):
            with pytest.raises(OSError) as caught:
                open_folder(fd, parts)
            assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
        with pytest.raises(FileNotFoundError):
            open_folder(fd, ("d", "none"))
        assert open_below(root) == before
    finally:
        os.close(fd)


def test_links_inside_root_followed(root: Path, tmp_path: Path) -> None:
    folder = RootFolder(root)
    files, journal = FileReader(folder), ChangeJournal(folder, tmp_path / "work")
    for link in ("absolute", "relative", "link/../root/d"):
        assert files.read(f"{link}/f.txt") == "mine"
        assert files.list(link) == "f.txt"
        assert files.search("mine", link) == "d/f.txt:1: mine"
        make_changes(journal, changes.plan_write(folder, f"{link}/new.txt", "new"))
        assert (root / "d" / "new.txt").read_text() == "new"
        journal.undo_call("")
        assert not (root / "d" / "new.txt").exists()
    assert files.list() == ".git/\nabsolute/\nd/\nlink\nrelative/"
    assert files.glob("rel*/*") == "relative/f.txt"
    assert files.glob("*") == "absolute/\nd/\nrelative/"
    with pytest.raises(ToolError, match="outside the root"):
        files.read("link/f.txt")


@pytest.mark.parametrize("target", ["outside", "root/.git"])
def test_folder_replaced_by_link_before_open_refused(
    root: Path, tmp_path: Path, target: str
) -> None:
    """Each use of a path comes to the link that was put there after the path was looked at."""
    (root / "link").unlink()
    (root / "link").symlink_to(tmp_path / target)
    folder = RootFolder(root)
    files, journal = FileReader(folder), ChangeJournal(folder, tmp_path / "work")
    make_changes(journal, changes.plan_write(folder, "d/undone.txt", "new"))
    real = folder.existing("d/f.txt")
    plans = [
        changes.plan_write(folder, "d/f.txt", "written"),
        changes.plan_write(folder, "d/new.txt", "written"),
        changes.plan_patch(folder, "*** Begin Patch\n*** Delete File: d/f.txt\n*** End Patch"),
    ]
    (root / "d").rename(root / "away")
    (root / "link").rename(root / "d")
    uses: list[Callable[[], object]] = [
        lambda: folder.open(real),
        lambda: list(files._lines(real, "secret", True, named=True)) or folder.open(real),
        lambda: folder.scan(real.parent).__enter__(),
        lambda: folder.entry(real) or folder.open(real),
        lambda: journal.undo_call(""),
        *(lambda plan=plan: make_changes(journal, plan) for plan in plans),  # type: ignore[misc]
    ]
    for use in uses:
        with pytest.raises((ToolError, OSError)):
            use()
    attacked = tmp_path / target
    assert [path.name for path in attacked.iterdir()] == ["f.txt"]
    assert (attacked / "f.txt").read_text() == "secret"


def test_swap_attack_never_leads_outside(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside" / "only outside").touch()
    inside, outside = swap_attack(root, tmp_path / "work", ATTEMPTS)
    assert inside and outside == 0
