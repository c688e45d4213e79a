"""Allocates disk space for the store in advance, so that no turn is lost on a full disk.

=================  ==================================================================================
write-ahead log    blocks behind its end, where every commit goes first; it is deleted when the last
                   process closes the store
database           free pages, where a checkpoint copies the log's pages to; else the log would grow
spare file         given up for a log when the store is opened on a disk that is full already
=================  ==================================================================================

All belong to the store's files at any time, so that another program that fills the disk cannot take
them. They are refilled once there is room. Blocks behind a file's end need Linux and a file system that
has them (fallocate(2): ext4, xfs, btrfs, tmpfs)."""

import errno
import os
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path

LOG_RESERVE_BYTES = 4 << 20
"""Bytes behind the log's end: what SQLite commits between two checkpoints."""
SPARE_BYTES = 2 * LOG_RESERVE_BYTES
"""Bytes of the spare file: the log's reserve, and what SQLite needs to open the store."""
PAGE_BYTES, RESERVED_PAGES = 4096, 512
"""Free pages in the database: 2 MiB."""
MIN_FREE_BYTES = 4 * SPARE_BYTES
"""Free bytes of the disk below which spare file and free pages are not refilled."""
_FALLOC_FL_KEEP_SIZE = 1


def hold(db: sqlite3.Connection, store: Path) -> None:
    """Allocate what is missing of the reserve; where that fails, the store works without."""
    with suppress(OSError, sqlite3.Error):
        if not _allocate_log(store) and release(store):
            _allocate_log(store)
        disk = os.statvfs(store.parent)
        if disk.f_bavail * disk.f_frsize >= MIN_FREE_BYTES:
            _allocate(_spare(store), SPARE_BYTES, os.O_CREAT)
            _free_pages(db)


def _free_pages(db: sqlite3.Connection) -> None:
    """Let the database grow by pages that are free. Raises sqlite3.Error."""
    if db.execute("pragma freelist_count").fetchone()[0] >= RESERVED_PAGES // 2:
        return
    insert = "insert into messages (digest, ids) values ('reserve', zeroblob(?))"
    with db:
        db.execute("begin immediate")
        db.execute(insert, (RESERVED_PAGES * PAGE_BYTES,))
        db.execute("delete from messages where digest = 'reserve'")


def release(store: Path) -> bool:
    """Give up the spare file; False where there is none."""
    try:
        _spare(store).unlink()
    except OSError:
        return False
    return True


def _spare(store: Path) -> Path:
    return store.with_name(f"{store.name}-reserve")


def _allocate_log(store: Path) -> bool:
    log = store.with_name(f"{store.name}-wal")
    return _allocate(log, log.stat().st_size + LOG_RESERVE_BYTES)


def _allocate(path: Path, size: int, flags: int = 0) -> bool:
    """Allocate a file's blocks up to ``size`` bytes; its length stays. False if the disk is full.
    ``os.posix_fallocate`` changes the length, or writes into the file concurrently with SQLite."""
    if sys.platform != "linux":
        return True
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        if os.fstat(number).st_blocks * 512 >= size:
            return True
        import ctypes  # here: most starts find the spare file as it must be

        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
        done = fallocate(number, _FALLOC_FL_KEEP_SIZE, 0, size) == 0
        return done or ctypes.get_errno() != errno.ENOSPC
    finally:
        os.close(number)
