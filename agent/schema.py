"""The store's tables, and how a file that an earlier version wrote becomes one of this version.

``pragma user_version`` counts the steps that a file has taken.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable

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

_ROLES = {1428: "user", 173781: "assistant", 77944: "developer"}
"""Second ids of Harmony's messages; a tool's result begins with its name."""


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


def _run(db: sqlite3.Connection, statements: str) -> None:
    """Within the transaction (``executescript`` would end it)."""
    for statement in statements.split(";"):
        if statement.strip():
            db.execute(statement)


STEPS: list[Callable[[sqlite3.Connection], None]] = [_first, _branches]
