"""The migration step by which responses, which had tables of their own, become turns. Each response had
the list of all its messages. In the order in which they were made, each is appended to the conversation
of the response that it continues if its messages begin with all of that conversation's; otherwise it
begins a branch there, behind the messages that both have."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import NamedTuple

from agent.store.records import prompt_of, title_from
from agent.util.ids import new_id
from agent.util.prefix import common_prefix_length


def merge_responses(db: sqlite3.Connection) -> None:
    """Move entries' ids to ``messages``, then responses to ``turns``; within a transaction."""
    db.create_function("sha256", 1, lambda blob: hashlib.sha256(blob).digest(), deterministic=True)
    db.execute("insert or ignore into messages (digest, ids) select sha256(ids), ids from entries")
    db.execute(
        "insert into shared_entries select conversation, position, number, reasoning, role, recipient"
        " from entries join messages on digest = sha256(entries.ids)"
    )
    db.execute("drop table entries")
    db.execute("alter table shared_entries rename to entries")
    db.execute("create index entries_with on entries(message)")
    db.execute("create index pending_with on pending_entries(message)")
    merge = _Merge(db)
    for row in db.execute(
        "select id, conversation, vocabulary, status, response, known, inputs, request_bytes,"
        " events, pid, created from responses order by created, rowid"
    ).fetchall():
        merge.add(_ResponseRow(*row))
    for table in ("response_items", "response_messages", "responses"):
        db.execute(f"drop table {table}")
    db.execute(
        "delete from messages where not exists (select 1 from entries where message = number)"
        " and not exists (select 1 from pending_entries where message = number)"
    )


class _ResponseRow(NamedTuple):
    id: str
    conversation: str
    vocabulary: str | None
    status: str
    response: str
    known: str
    inputs: str
    request_bytes: int
    events: bytes
    pid: int
    created: float


class _Merge:
    """Appends responses to conversations, one by one."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._conversation_of: dict[str, str] = {}
        self._upto: dict[str, int] = {}
        """Number of messages of the conversation at the end of a response."""
        self._messages: dict[str, list[int]] = {}
        """Numbers of all messages by conversation id."""
        self._revisions: dict[str, int] = {}

    def add(self, row: _ResponseRow) -> None:
        messages = self._db.execute(
            "select message, reasoning, role, recipient from response_messages"
            " where response = ? order by position",
            (row.id,),
        ).fetchall()
        lasting = [message for message in messages if not message[1]]
        content, prompt = json.loads(row.response), prompt_of(json.loads(row.inputs))
        previous_id = content.get("previous_response_id") or ""
        origin = self._conversation_of.get(previous_id) or row.conversation
        numbers = [message[0] for message in lasting]
        name, shared = self._choose_conversation(origin, numbers, self._upto.get(previous_id))
        self._upto[row.id] = len(numbers)
        if name not in self._messages:
            parent = origin if name != row.conversation else None
            self._db.execute(
                "insert into conversations values (?,?,?,?,?,?,?,?,0,0,'http')",
                (name, title_from(prompt), content["model"], row.vocabulary, row.created,
                 row.created, parent, shared),
            )  # fmt: skip
        self._conversation_of[row.id] = name
        self._messages[name] = numbers
        revision = self._revisions[name] = self._revisions.get(name, 0) + 1
        self._db.execute(
            "update conversations set revision = ?, updated = ?, vocabulary = ? where id = ?",
            (revision, row.created, row.vocabulary, name),
        )
        own = list(enumerate(lasting))[shared:]
        self._db.executemany(
            "insert into entries values (?,?,?,0,?,?)",
            [(name, at, number, role, recipient) for at, (number, _, role, recipient) in own],
        )
        users = [at for at, message in own if message[2] == "user"]
        served = {
            "history": json.loads(row.known),
            "inputs": json.loads(row.inputs),
            "request_bytes": row.request_bytes,
        }
        self._db.execute(
            "insert into turns values (?,?,?,?,?,?,?,?,?,?,?,?)",
            (row.id, name, prompt, row.status, row.response, row.pid, row.created,
             users[-1] if users else shared, row.events or None,
             len(lasting), revision, json.dumps(served)),
        )  # fmt: skip
        pending = [(at, message) for at, message in enumerate(messages) if message[1]]
        self._db.executemany(
            "insert into pending_entries values (?,?,?,?)",
            [(row.id, at, number, role) for at, (number, _, role, _) in pending],
        )
        self._db.execute(
            "insert into turn_items select item, response from response_items where response = ?",
            (row.id,),
        )

    def _choose_conversation(
        self, conversation: str, messages: list[int], upto: int | None
    ) -> tuple[str, int]:
        """The conversation that takes these messages, and the position of its first own one. ``upto``:
        the end of the response that they continue; a branch begins there at the latest."""
        if (before := self._messages.get(conversation)) is None:
            return conversation, 0
        shared = common_prefix_length(before, messages)
        if shared == len(before):
            return conversation, shared
        return new_id("conv"), shared if upto is None else min(shared, upto)
