"""Conversations kept on disk: one SQLite file for every face.

A turn is written when it starts (in progress, with this process's id) and when it ends. One whose
process is gone is marked failed the next time the store is opened.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from agent.conversation import Conversation, Entry
from agent.events import Response, ResponseError

SCHEMA = """
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


class StoreError(Exception):
    """The store cannot be used; one sentence."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A conversation as a list shows it; times in seconds since 1970."""

    id: str
    title: str
    model: str
    updated: float
    turns: int


class Store:
    def __init__(self, path: Path) -> None:
        """Open or create it. Raises StoreError."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None)
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma foreign_keys = on")
            self._db.executescript(SCHEMA)
            self._mark_lost()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The store {path} cannot be used: {error}.") from error

    def close(self) -> None:
        self._db.close()

    def begin(self, conversation: Conversation, prompt: str, response: Response) -> None:
        """A turn starts; its conversation appears with it."""
        now, title = time.time(), " ".join(prompt.split())[:80]
        with self._db:
            self._db.execute("begin immediate")
            self._db.execute(
                "insert into conversations values (?,?,?,?,?,?)"
                " on conflict(id) do update set updated = excluded.updated",
                (conversation.id, title, response.model, None, now, now),
            )
            self._db.execute(
                "insert into turns values (?,?,?,?,?,?,?)",
                (response.id, conversation.id, prompt, "in_progress",
                 response.model_dump_json(), os.getpid(), now),
            )  # fmt: skip

    def finish(self, conversation: Conversation, response: Response) -> None:
        """A turn ended: its final response, and the conversation's ids as they are now."""
        with self._db:
            self._db.execute("begin immediate")
            self._db.execute(
                "update turns set status = ?, response = ? where id = ?",
                (response.status, response.model_dump_json(), response.id),
            )
            self._db.execute(
                "update conversations set vocabulary = ? where id = ?",
                (conversation.vocabulary, conversation.id),
            )
            kept = conversation.saved
            self._db.execute(
                "delete from entries where conversation = ? and position >= ?",
                (conversation.id, kept),
            )
            self._db.executemany(
                "insert into entries values (?,?,?,?)",
                (
                    (conversation.id, at, array("i", entry.ids).tobytes(), entry.reasoning)
                    for at, entry in enumerate(conversation.entries[kept:], kept)
                ),
            )
        conversation.saved = len(conversation.entries)

    def load(self, conversation_id: str | None) -> Conversation:
        """One conversation, by its id or the beginning of it; None: the latest. Raises StoreError."""
        if conversation_id is None:
            row = self._db.execute("select id from conversations order by updated desc").fetchone()
            if row is None:
                raise StoreError("There is no conversation to continue yet.")
        else:
            pattern = conversation_id.replace("_", r"\_").replace("%", r"\%") + "%"
            rows = self._db.execute(
                r"select id from conversations where id like ? escape '\' limit 2", (pattern,)
            ).fetchall()
            if len(rows) != 1:
                what = "no conversation" if not rows else "more than one conversation"
                raise StoreError(f"There is {what} with the id {conversation_id}.")
            row = rows[0]
        entries = self._db.execute(
            "select ids, reasoning from entries where conversation = ? order by position", row
        )
        conversation = Conversation(
            row[0],
            [Entry(list(array("i", ids)), bool(reasoning)) for ids, reasoning in entries],
            vocabulary=self._db.execute(
                "select vocabulary from conversations where id = ?", row
            ).fetchone()[0],
        )
        conversation.saved = len(conversation.entries)
        return conversation

    def summaries(self) -> list[Summary]:
        """All conversations, the latest first."""
        rows = self._db.execute(
            "select c.id, title, model, updated, count(t.id) from conversations c"
            " left join turns t on t.conversation = c.id group by c.id order by updated desc"
        )
        return [Summary(*row) for row in rows]

    def responses(self, conversation_id: str) -> list[tuple[str, Response]]:
        """The turns of a conversation, in order: what was asked, and the response."""
        rows = self._db.execute(
            "select prompt, response from turns where conversation = ? order by created",
            (conversation_id,),
        )
        return [(prompt, Response.model_validate_json(text)) for prompt, text in rows]

    def _mark_lost(self) -> None:
        rows = self._db.execute("select id, response, pid from turns where status = 'in_progress'")
        error = ResponseError(code="server_error", message="The process ended during this turn.")
        for turn, text, pid in rows.fetchall():
            # Our own id is that of a process before us: this one opens the store before its turns.
            if pid == os.getpid() or not _alive(pid):
                lost = json.loads(text) | {"status": "failed", "error": error.model_dump()}
                self._db.execute(
                    "update turns set status = 'failed', response = ? where id = ?",
                    (json.dumps(lost), turn),
                )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
