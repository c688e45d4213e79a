"""After a process that was killed: its turns have failed, and keep what their journals have of them."""

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from agent.conversation.conversation import Entry
from agent.events import Response, ResponseError
from agent.store.damage import READ_ERRORS, DamageLog
from agent.store.event_codec import decode_line, pack
from agent.store.tree import ConversationTree
from agent.turn.response_builder import ResponseBuilder

CLOCK_TOLERANCE_SECONDS = 60.0
"""By how much the system's clock may have been set since a process began."""
LOST = "The process ended during this turn."

_UNRECOVERED = (
    "select distinct turn from journal join turns on id = turn where status != 'in_progress'"
)
begun_here: set[str] = set()
"""Response ids of the turns that this process has begun and not ended, in any store."""


def mark_lost_turns(db: sqlite3.Connection) -> None:
    rows = db.execute("select id, response, pid, created from turns where status = 'in_progress'")
    error = ResponseError(code="server_error", message=LOST)
    for name, text, pid, created in rows.fetchall():
        # Our own process id on a turn that this process did not begin is that of an earlier process.
        own = pid == os.getpid()
        if name not in begun_here if own else not _is_running(pid, created):
            with suppress(*READ_ERRORS):  # a reader of the turn names it
                lost = json.loads(text) | {"status": "failed", "error": error.model_dump()}
                text = json.dumps(lost)
            db.execute(  # unless it has ended meanwhile
                "update turns set status = 'failed', response = ? where id = ?"
                " and status = 'in_progress'",
                (text, name),
            )


def _is_running(pid: int, since: float) -> bool:
    """A process with this id runs, and ran at ``since`` (seconds since 1970): ids are reused."""
    import psutil

    try:
        began: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return began <= since + CLOCK_TOLERANCE_SECONDS


def recover(db: sqlite3.Connection, damage: DamageLog) -> None:
    """Give turns that were marked lost what their journals have, and empty those. See `recorder`."""
    if db.execute(_UNRECOVERED).fetchone() is None:
        return
    with db:
        db.execute("begin immediate")
        for (name,) in db.execute(_UNRECOVERED).fetchall():
            db.execute("savepoint recovery")
            try:
                _recover_turn(db, name)
            except sqlite3.OperationalError:  # such as a full disk: the journal waits
                raise
            except READ_ERRORS as error:
                db.execute("rollback to recovery")
                damage.note(f"The journal of turn {name}", error)
            db.execute("delete from journal where turn = ?", (name,))
            db.execute("release recovery")


def cut_impossible_parents(db: sqlite3.Connection, damage: DamageLog) -> None:
    """Make conversations roots whose parent is missing, or among their own descendants."""
    parents = dict(db.execute("select id, parent from conversations where parent is not null"))
    known = {name for (name,) in db.execute("select id from conversations")} if parents else set()
    checked: set[str] = set()
    for name in list(parents):
        path: set[str] = set()
        while (parent := parents.get(name)) is not None and name not in checked:
            path.add(name)
            if parent in path or parent not in known:
                db.execute("update conversations set parent = null where id = ?", (name,))
                damage.note(f"The parent of conversation {name}", f"{parent} cannot be it")
                del parents[name]
            name = parent
        checked |= path


def _recover_turn(db: sqlite3.Connection, name: str) -> None:
    rows = db.execute("select note from journal where turn = ? order by number", (name,))
    notes = [json.loads(text) for (text,) in rows]
    response = _recover_response(db, name, [line for note in notes for line in note["events"]])
    if not response.abandons_conversation:
        _recover_entries(db, name, notes)


def _recover_response(db: sqlite3.Connection, name: str, lines: list[str]) -> Response:
    (text,) = db.execute("select response from turns where id = ?", (name,)).fetchone()
    builder = ResponseBuilder()
    for line in lines:
        builder.apply(decode_line(line)[1])
    output = builder.interrupted(LOST)
    response = Response.model_validate_json(text).model_copy(update={"output": output})
    change = "update turns set response = ?, events = ? where id = ?"
    db.execute(change, (response.model_dump_json(), pack(lines), name))
    db.executemany(
        "insert or replace into turn_items select ?, id from turns"
        " where id = ? and served is not null",
        [(item.id, name) for item in output],
    )
    return response


def _recover_entries(db: sqlite3.Connection, name: str, notes: Sequence[dict[str, Any]]) -> None:
    """Put the noted entries into the conversation, unless it was continued elsewhere meanwhile."""
    query = "select conversation, start from turns where id = ?"
    conversation, start = db.execute(query, (name,)).fetchone()
    entries: list[Entry] = []
    for note in notes:
        for at, same, ids, role, recipient in note["entries"]:
            start_ids = entries[at].ids[:same] if at < len(entries) else []
            entries[at : at + 1] = [Entry(start_ids + ids, role=role, recipient=recipient)]
        del entries[note["count"] :]
    base, last = notes[0]["base"], notes[-1]
    query = "select 1 from entries where conversation = ? and position >= ?"
    if db.execute(query, (conversation, start)).fetchone() or not entries:
        return
    ConversationTree(db).write_entries(conversation, base, entries)
    change = "update conversations set vocabulary = ?, revision = revision + 1 where id = ?"
    db.execute(change, (last["of"], conversation))
    db.execute(
        "update turns set upto = ?, revision ="
        " (select revision from conversations where conversations.id = ?) where id = ?",
        (base + len(entries), conversation, name),
    )
