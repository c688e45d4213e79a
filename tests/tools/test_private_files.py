"""Files that are written as a whole, and changed by several programs at once."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.util.private_files import locked, update_text, write_text
from tests.support.full_disk import full_disk

WRITERS = 10


def test_write_text_that_fails_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("as it was")
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write_text(file, "new")
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write_text(tmp_path / "b.toml", "new")
    assert file.read_text() == "as it was"
    assert os.listdir(tmp_path) == ["a.toml"]  # noqa: PTH208


def test_write_text_keeps_mode_and_link(tmp_path: Path) -> None:
    real, link, new = tmp_path / "dotfiles", tmp_path / "config.toml", tmp_path / "new"
    real.write_text("old")
    real.chmod(0o644)
    link.symlink_to("dotfiles")
    for path in (link, new):
        write_text(path, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    assert stat.S_IMODE(new.stat().st_mode) == 0o600


def test_write_text_follows_link_to_missing_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("later")
    write_text(link, "x")
    assert link.is_symlink() and (tmp_path / "later").read_text() == "x"


def test_write_text_loop_of_links_raises(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("link")
    with pytest.raises(OSError, match="symbolic links"):
        write_text(link, "x")
    assert link.is_symlink()


def test_write_text_into_device_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_text(Path("/dev/full"), "x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)  # noqa: PTH116
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        write_text(pipe, "x")
    assert read.result() == "x" and pipe.is_fifo()


def test_update_text_of_many_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lines"
    start, done = threading.Barrier(WRITERS), threading.Event()

    def write(number: int) -> None:
        start.wait()
        for line in range(10):
            update_text(file, lambda text: f"{text}{number}.{line}\n")  # noqa: B023

    def read() -> bool:
        while not done.is_set():
            if file.exists() and not file.read_text().endswith("\n"):
                return False
        return True

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reader = pool.submit(read)
        for writer in [pool.submit(write, number) for number in range(WRITERS)]:
            writer.result()
        done.set()
        assert reader.result(), "a reader saw a file that was not written to its end"
    expected = {f"{number}.{line}" for number in range(WRITERS) for line in range(10)}
    assert set(file.read_text().splitlines()) == expected


def test_locked_makes_folder_and_leaves_file_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        assert not (tmp_path / "a" / "b").exists()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
