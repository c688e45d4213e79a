"""What a command may take of a file system, by numbers that this machine's may never show."""

import os

from tools.sandbox.supervise import FreeSpace

GIB = 1 << 30


def space(free_bytes: int, free_files: int = 0, *, total: int = 100 * GIB) -> os.statvfs_result:
    block, files = 4096, 1_000_000 if free_files else 0
    blocks = free_bytes // block
    return os.statvfs_result(
        (block, block, total // block, blocks, blocks, files, free_files, free_files, 0, 255)
    )


def problem(before: os.statvfs_result, now: os.statvfs_result) -> str:
    return FreeSpace(before, 4 * GIB, 200_000).problem(now)


def test_free_space_limits_what_is_taken() -> None:
    assert problem(space(50 * GIB), space(47 * GIB)) == ""
    assert problem(space(50 * GIB), space(45 * GIB)).startswith("more than 4,096 MiB of the disk")
    assert problem(space(50 * GIB, 900_000), space(50 * GIB, 800_000)) == ""
    assert problem(space(50 * GIB, 60_000), space(50 * GIB, 20_000)).startswith("more than 30,000")
    assert problem(space(50 * GIB, 900_000), space(50 * GIB, 600_000)).startswith(
        "more than 200,000"
    )


def test_free_space_keeps_reserve() -> None:
    assert problem(space(2 * GIB), space(GIB)) == ""
    assert problem(space(2 * GIB), space(GIB // 3)) == "less than 512 MiB of the disk left free"
    small = 2 * GIB
    assert problem(space(GIB, total=small), space(GIB // 8, total=small)) == ""
    assert "less than 102 MiB" in problem(space(GIB, total=small), space(GIB // 16, total=small))


def test_free_space_full_disk_still_lets_commands_clear_it() -> None:
    before = space(300 << 20)
    assert problem(before, before) == problem(before, space(200 << 20)) == ""
    assert problem(before, space(140 << 20)) == "less than 150 MiB of the disk left free"
    assert problem(before, space(10 * GIB)) == ""
    assert problem(space(0), space(0)) == "", "whoever filled it, this command did not"
