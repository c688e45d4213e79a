"""The store's tables, and the migration of a file of an earlier version.

A conversation has turns and entries (messages, as the token ids that the model saw or wrote). A
response of ``/v1/responses`` is a turn like one of the app: either side can continue its conversation.
``pragma user_version`` is the number of a file's tables: each migration step adds one.

=================  ====================================================================================
conversations      one row each; ``parent``/``shared``: a branch and how many entries its parent gives
turns              one response each; entries from ``start`` up to ``upto`` are its own
entries            a conversation's messages by position; their ids are in ``messages``
messages           ids by their SHA-256, so that conversations with the same messages share them
pending_entries    reasoning that a response's next one still needs, as its call waits for a client;
                   of a person's turn its reasoning, to continue it from there
turn_items         output items by id, for item references of the Responses API
compactions        the summary of the oldest entries in the prompt; ``shortened``: for long results
entry_marks        what a person has dropped from the prompt or pinned
journal            notes of turns that run (`recorder.py`)
=================  ====================================================================================
"""

import logging
import sqlite3
from array import array
from functools import partial
from pathlib import Path

from agent.store import reserve
from agent.store.damage import NewerStoreError, error_code, is_disk_full
from agent.util import private_files

log = logging.getLogger(__name__)

LOCK_SECONDS = 10.0
"""Seconds that a program waits for another one that writes."""
MAX_VACUUM_PAGES = 20_000
"""Pages of 4 KiB that one deletion gives back at most; the next one gives back more."""
MAX_MEMORY_BYTES = 128 << 20
"""Bytes of a store that is in memory only."""

TABLES = """
create table conversations (
    id text primary key, title text not null, model text not null, vocabulary text,
    created real not null, updated real not null, parent text references conversations(id),
    shared integer not null default 0, revision integer not null default 0,
    hidden integer not null default 0, source text not null default 'local', metadata text
);
create index branches_of on conversations(parent);
create table messages (number integer primary key, digest blob not null unique, ids blob not null);
create table entries (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, message integer not null references messages(number),
    reasoning integer not null, role text, recipient text, primary key (conversation, position)
) without rowid;
create index entries_with on entries(message);
create table turns (
    id text primary key, conversation text not null references conversations(id) on delete cascade,
    prompt text not null, status text not null, response text not null,
    pid integer not null, created real not null, start integer, events blob, upto integer,
    revision integer, served text
);
create index turns_of on turns(conversation, created);
create index turns_by_age on turns(created);
create table pending_entries (
    turn text not null references turns(id) on delete cascade, position integer not null,
    message integer not null references messages(number), role text,
    primary key (turn, position)
) without rowid;
create index pending_with on pending_entries(message);
create table turn_items (
    item text primary key, turn text not null references turns(id) on delete cascade
) without rowid;
create index items_of_turn on turn_items(turn);
create table compactions (
    conversation text primary key references conversations(id) on delete cascade,
    upto integer not null, summary text not null, ids blob not null
);
create table shortened (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, ids blob not null,
    primary key (conversation, position)
) without rowid;
create table entry_marks (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, dropped integer not null, pinned integer not null,
    primary key (conversation, position)
) without rowid;
create table journal (
    number integer primary key, turn text not null references turns(id) on delete cascade,
    note text not null
);
create index journal_of on journal(turn)
"""
"""The tables of the oldest file that is read. In conversations, ``source``: who began it, 'local' or
'http'; ``hidden``: deleted, but a branch still needs its beginning; ``metadata``: JSON, where a client
of ``/v1/conversations`` made or used it, which keeps it until it is deleted. In turns, ``upto``: the
conversation's entries without reasoning once it had ended; ``revision``: that of the conversation then;
``served``: what the endpoint needs of its request and its owner, as JSON, null for a person's."""
FIRST_VERSION = 7
OWNER_COLUMN = "alter table conversations add column owner text not null default ''"
"""The client of the endpoint that a conversation belongs to, as `agent.server.http.clients` marks it;
empty: it belongs to no client, but to a person here, or was made without a key, or before this step. A
response's is in ``served``."""
FOLDER_COLUMN = "alter table conversations add column folder text not null default ''"
"""The folder in which a person began or first continued a conversation (`project_name`); empty: none
did since this step."""
MIGRATION_STEPS = [OWNER_COLUMN, FOLDER_COLUMN]
"""Statements that change the tables, in order, from `FIRST_VERSION` on."""


def connect(path: Path) -> sqlite3.Connection:
    """Open or create the store's file. Raises OSError, sqlite3.Error, NewerStoreError."""
    private_files.make_folder(path.parent)
    path.touch(mode=0o600)
    try:
        db = _open(path)
    except sqlite3.Error as error:
        # For want of space for its shared memory SQLite names only an I/O error.
        full = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        if error_code(error) not in full:
            raise
        if not reserve.release(path) and not is_disk_full(path.parent):
            raise
        try:
            db = _open(path)
        except sqlite3.Error:
            # Without more space, what is there can still be read, by one program at a time.
            db = _open(path, alone=True)
    reserve.hold(db, path)
    return db


def connect_memory() -> sqlite3.Connection:
    """Open an empty database in memory, of at most `MAX_MEMORY_BYTES`. Raises sqlite3.Error."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.execute("pragma foreign_keys = on")
    page_bytes = db.execute("pragma page_size").fetchone()[0]
    db.execute(f"pragma max_page_count = {MAX_MEMORY_BYTES // page_bytes}")
    upgrade(db)
    return db


def _open(path: Path, *, alone: bool = False) -> sqlite3.Connection:
    """``alone``: no other program may use it meanwhile; that needs no shared memory."""
    # A program with an event loop uses it in a thread of the store's own.
    db = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        if alone:
            db.execute("pragma locking_mode = exclusive")
        db.text_factory = partial(str, encoding="utf-8", errors="replace")  # of damaged rows too
        if not path.stat().st_size:  # later it would change nothing, and write
            db.execute("pragma auto_vacuum = incremental")
        db.execute("pragma journal_mode = wal")
        db.execute("pragma foreign_keys = on")
        db.execute("pragma secure_delete = on")
        upgrade(db)
    except BaseException:
        db.close()  # its locks would last as long as the error
        raise
    return db


def give_back_pages(db: sqlite3.Connection) -> None:
    """Shorten the file by free pages, and empty the log, which still has what was deleted."""
    try:
        if (free := db.execute("pragma freelist_count").fetchone()[0] - reserve.RESERVED_PAGES) > 0:
            count = min(free, MAX_VACUUM_PAGES)
            db.executescript(f"pragma incremental_vacuum({count})")  # execute() frees one page
        db.execute("pragma wal_checkpoint(truncate)")
    except sqlite3.Error as error:
        log.warning("what was deleted still takes space: %s", error)


def ids_to_blob(ids: list[int]) -> bytes:
    """Token ids as the tables hold them: 32-bit integers, little-endian on all supported machines."""
    return array("i", ids).tobytes()


def ids_from_blob(blob: bytes) -> list[int]:
    return list(array("i", blob))


def upgrade(db: sqlite3.Connection) -> None:
    """Take the steps that are missing, all or none. Raises sqlite3.Error, NewerStoreError."""
    latest = FIRST_VERSION + len(MIGRATION_STEPS)
    if _version(db) == latest:
        return
    with db:
        db.execute("begin immediate")
        if (version := _version(db)) > latest:  # another process may have been faster
            raise NewerStoreError("a newer version of this program wrote it")
        if version == 0:
            _execute_all(db, TABLES)
            version = FIRST_VERSION
        if version < FIRST_VERSION:
            raise ValueError("a version from before 0.1.0 wrote it")
        for step in MIGRATION_STEPS[version - FIRST_VERSION :]:
            _execute_all(db, step)
        db.execute(f"pragma user_version = {latest}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("pragma user_version").fetchone()[0])


def _execute_all(db: sqlite3.Connection, statements: str) -> None:
    """Within the transaction (``executescript`` would end it)."""
    for statement in statements.split(";"):
        if statement.strip():
            db.execute(statement)
