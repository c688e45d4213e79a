"""The store's tables, and how a file that an earlier version wrote becomes one of this version.

``pragma user_version`` counts the steps that a file has taken.
"""

from __future__ import annotations

import json
import os
import sqlite3
from array import array
from collections.abc import Callable
from pathlib import Path

from agent.events import ResponseError
from tools import private_files

FIRST = """
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

BRANCHES = """
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

RESPONSES = """
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
"""Responses of the endpoint. A message's ids are kept once, however many responses go on from it."""

JOURNAL = """
create table journal (
    number integer primary key, turn text not null references turns(id) on delete cascade,
    note text not null
);
create index journal_of on journal(turn);
alter table turns add column events blob
"""
"""What is known of turns that run (`journal.py`), and the events of those that have ended."""

CLOCK = 60.0
"""Seconds by which the clock may have been set meanwhile."""
_ROLES = {1428: "user", 173781: "assistant", 77944: "developer"}
"""Second ids of Harmony's messages; a tool's result begins with its name."""


def connect(path: Path) -> sqlite3.Connection:
    """Open or create the store's file. Raises OSError, sqlite3.Error, ValueError (too new)."""
    private_files.folder(path.parent)
    path.touch(mode=0o600)
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("pragma foreign_keys = on")
    db.execute("pragma secure_delete = on")
    upgrade(db)
    return db


def mark_lost(db: sqlite3.Connection, table: str) -> None:
    """What ran in a process that is gone has failed. ``table``: of turns or of responses."""
    rows = db.execute(
        f"select id, response, pid, created from {table} where status = 'in_progress'"
    )
    error = ResponseError(code="server_error", message="The process ended during this turn.")
    for name, text, pid, created in rows.fetchall():
        # Our own id is that of a process before us: this one opens the store before its turns.
        if pid == os.getpid() or not _alive(pid, created):
            lost = json.loads(text) | {"status": "failed", "error": error.model_dump()}
            db.execute(
                f"update {table} set status = 'failed', response = ? where id = ?",
                (json.dumps(lost), name),
            )


def _alive(pid: int, since: float) -> bool:
    """A process of this id lives, and did so then (seconds since 1970): ids are given again."""
    import psutil

    try:
        began: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return began <= since + CLOCK


def blob(ids: list[int]) -> bytes:
    """Token ids as they are kept."""
    return array("i", ids).tobytes()


def ids_of(kept: bytes) -> list[int]:
    return list(array("i", kept))


def upgrade(db: sqlite3.Connection) -> None:
    """Take the steps that are missing, all or none. Raises sqlite3.Error, ValueError (too new)."""
    if _version(db) == len(STEPS):
        return
    with db:
        db.execute("begin immediate")
        done = _version(db)  # another process may have been faster
        if done > len(STEPS):
            raise ValueError("a newer version of this program wrote it")
        for step in STEPS[done:]:
            step(db)
        db.execute(f"pragma user_version = {len(STEPS)}")


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("pragma user_version").fetchone()[0]
    return version


def _first(db: sqlite3.Connection) -> None:
    _run(db, FIRST)


def _branches(db: sqlite3.Connection) -> None:
    """Who wrote an entry and where a turn began was not written down: the ids of Harmony tell it."""
    _run(db, BRANCHES)
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


def _responses(db: sqlite3.Connection) -> None:
    _run(db, RESPONSES)


def _journal(db: sqlite3.Connection) -> None:
    _run(db, JOURNAL)


def _run(db: sqlite3.Connection, statements: str) -> None:
    """Within the transaction (``executescript`` would end it)."""
    for statement in statements.split(";"):
        if statement.strip():
            db.execute(statement)


STEPS: list[Callable[[sqlite3.Connection], None]] = [_first, _branches, _responses, _journal]
