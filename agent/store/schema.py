"""The store's tables, and the migration of a file of an earlier version.

A conversation has turns and entries (messages, as the token ids that the model saw or wrote). A
response of ``/v1/responses`` is a turn like one of the app: either side can continue its conversation.
``pragma user_version`` counts the migration steps that a file has taken.

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

from __future__ import annotations

import logging
import sqlite3
from array import array
from collections.abc import Callable
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

FIRST_TABLES = """
create table if not exists conversations (
    id text primary key, title text not null, model text not null, vocabulary text,
    created real not null, updated real not null
);
create table if not exists entries (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, ids blob not null, reasoning integer not null,
    primary key (conversation, position)
) without rowid;
create table if not exists turns (
    id text primary key, conversation text not null references conversations(id) on delete cascade,
    prompt text not null, status text not null, response text not null,
    pid integer not null, created real not null
);
create index if not exists turns_of on turns(conversation, created);
"""
"""The tables of the first version, which counted no steps."""

BRANCH_TABLES = """
alter table conversations add column parent text references conversations(id);
alter table conversations add column shared integer not null default 0;
alter table conversations add column revision integer not null default 0;
alter table conversations add column hidden integer not null default 0;
create index branches_of on conversations(parent);
alter table entries add column role text;
alter table entries add column recipient text;
alter table turns add column start integer;
create table compactions (
    conversation text primary key references conversations(id) on delete cascade,
    upto integer not null, summary text not null, ids blob not null
);
create table shortened (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, ids blob not null,
    primary key (conversation, position)
) without rowid;
"""
"""A branch has its own entries from ``shared`` on; those before are its parent's. ``start`` is the
entry that a turn began with. ``hidden``: deleted, but a branch still needs its beginning."""

RESPONSE_TABLES = """
create table responses (
    id text primary key, conversation text not null, vocabulary text, status text not null,
    response text not null, known text not null, inputs text not null,
    request_bytes integer not null, events blob not null, pid integer not null, created real not null
);
create index responses_by_age on responses(created);
create table messages (number integer primary key, digest blob not null unique, ids blob not null);
create table response_messages (
    response text not null references responses(id) on delete cascade, position integer not null,
    message integer not null references messages(number), reasoning integer not null,
    role text, recipient text, primary key (response, position)
) without rowid;
create index responses_with on response_messages(message);
create table response_items (
    item text primary key, response text not null references responses(id) on delete cascade
) without rowid;
create index items_of on response_items(response);
"""
"""Responses of the endpoint. A message's ids are stored once, however many responses contain it."""

RESPONSES_AS_TURNS = """
alter table conversations add column source text not null default 'local';
create index turns_by_age on turns(created);
alter table turns add column upto integer;
alter table turns add column revision integer;
alter table turns add column served text;
create table shared_entries (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, message integer not null references messages(number),
    reasoning integer not null, role text, recipient text, primary key (conversation, position)
) without rowid;
create table pending_entries (
    turn text not null references turns(id) on delete cascade, position integer not null,
    message integer not null references messages(number), role text,
    primary key (turn, position)
) without rowid;
create table turn_items (
    item text primary key, turn text not null references turns(id) on delete cascade
) without rowid;
create index items_of_turn on turn_items(turn)
"""
"""Responses of the endpoint become turns. ``source``: who began the conversation, 'local' or 'http'.
``upto``: entries of the conversation without reasoning, once the turn had ended; ``revision``: that of
the conversation then.
``served``: what the endpoint needs of a response's request, as JSON; null: a turn of a person here."""

JOURNAL_TABLES = """
create table journal (
    number integer primary key, turn text not null references turns(id) on delete cascade,
    note text not null
);
create index journal_of on journal(turn);
alter table turns add column events blob
"""
"""Notes of running turns (`recorder.py`), and the events of those that have ended."""

METADATA_COLUMN = "alter table conversations add column metadata text"
"""Metadata of conversations that a client of ``/v1/conversations`` made or used, as JSON; else null.
One with metadata is kept until it is deleted."""

MARK_TABLE = """
create table entry_marks (
    conversation text not null references conversations(id) on delete cascade,
    position integer not null, dropped integer not null, pinned integer not null,
    primary key (conversation, position)
) without rowid
"""
"""A person's choices for entries of the prompt. Each conversation has its own, as of ``shortened``."""

OWNER_COLUMN = "alter table conversations add column owner text not null default ''"
"""The client of the endpoint that a conversation belongs to, as `agent.server.http.clients` marks it;
empty: it belongs to no client, but to a person here, or was made without a key, or before this step. A
response's is in ``served``."""

_ROLES = {1428: "user", 173781: "assistant", 77944: "developer"}
"""Second ids of Harmony's messages; a tool's result begins with its name."""


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
        free = db.execute("pragma freelist_count").fetchone()[0] - reserve.RESERVED_PAGES
        if free > 0:
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
    if _version(db) == len(MIGRATION_STEPS):
        return
    with db:
        db.execute("begin immediate")
        done = _version(db)  # another process may have been faster
        if done > len(MIGRATION_STEPS):
            raise NewerStoreError("a newer version of this program wrote it")
        if done < 0:
            raise ValueError(f"there is no version {done} of its tables")
        for step in MIGRATION_STEPS[done:]:
            if isinstance(step, str):
                _execute_all(db, step)
            else:
                step(db)
        db.execute(f"pragma user_version = {len(MIGRATION_STEPS)}")


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("pragma user_version").fetchone()[0]
    return version


def _branches(db: sqlite3.Connection) -> None:
    """Add branches. The ids of Harmony tell who wrote an entry and where a turn began."""
    _execute_all(db, BRANCH_TABLES)
    rows = db.execute("select id from conversations where vocabulary = 'o200k_harmony'")
    for (conversation,) in rows.fetchall():
        entries = db.execute(
            "select position, ids from entries where conversation = ?", (conversation,)
        )
        roles = {at: _ROLES.get(array("i", ids)[1], "result") for at, ids in entries.fetchall()}
        db.executemany(
            "update entries set role = ? where conversation = ? and position = ?",
            [(role, conversation, at) for at, role in roles.items()],
        )
        begun = [at for at, role in roles.items() if role == "user"]
        turns = db.execute(
            "select id, status from turns where conversation = ? order by created", (conversation,)
        ).fetchall()
        if len(turns) != len(begun):
            # A turn that failed before its prompt was read has left no entry.
            turns = [(turn, status) for turn, status in turns if status != "failed"]
        if len(turns) == len(begun):
            pairs = [(start, turn) for start, (turn, _) in zip(begun, turns, strict=True)]
            db.executemany("update turns set start = ? where id = ?", pairs)


def _responses_as_turns(db: sqlite3.Connection) -> None:
    from agent.store.merge_responses import merge_responses  # here: most files have taken this step

    _execute_all(db, RESPONSES_AS_TURNS)
    merge_responses(db)


def _execute_all(db: sqlite3.Connection, statements: str) -> None:
    """Within the transaction (``executescript`` would end it)."""
    for statement in statements.split(";"):
        if statement.strip():
            db.execute(statement)


MIGRATION_STEPS: list[str | Callable[[sqlite3.Connection], None]] = [
    FIRST_TABLES, _branches, RESPONSE_TABLES, JOURNAL_TABLES, _responses_as_turns, METADATA_COLUMN,
    MARK_TABLE, OWNER_COLUMN,
]  # fmt: skip
"""Statements, or functions that change the rows too."""
