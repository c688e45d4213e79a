"""Conversations kept on disk: one SQLite file for every face.

A turn is written when it starts (in progress, with this process's id), noted as it goes on, and
written when it ends. One whose process is gone is marked failed the next time the store is opened,
with what was noted of it. Conversations form a tree: a branch
keeps its own entries and turns, and reads its parent's before them.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from pathlib import Path

from agent.conversation.conversation import Compacted, Conversation, Entry
from agent.events import Response
from agent.formats.tokenizer_text import alike
from agent.store.recorder import Timed, recover, steered, unpacked
from agent.store.records import KeptTurn, Summary, titled
from agent.store.schema import blob, connect, ids_of, mark_lost
from agent.turn.output import new_id

PATH = """
with recursive path(id, upto) as (
    select ?, 9e15 union all
    select parent, min(upto, shared) from path join conversations using (id)
    where parent is not null
)
"""
"""A conversation and those it branched from, each up to the entry that it gives."""


class StoreError(Exception):
    """The store cannot be used; one sentence."""


class Store:
    def __init__(self, path: Path) -> None:
        """Open or create it. Raises StoreError."""
        try:
            self._db = connect(path)
            mark_lost(self._db, "turns")
            recover(self._db)
        except (OSError, ValueError, sqlite3.Error) as error:
            raise StoreError(f"The store {path} cannot be used: {error}.") from error

    def close(self) -> None:
        self._db.close()

    # --- writing ---

    def begin(self, conversation: Conversation, prompt: str, response: Response) -> None:
        """A turn starts; its conversation appears with it."""
        with self._db:
            self._db.execute("begin immediate")
            self._add(conversation, prompt, response.model)
            self._db.execute(
                "insert into turns values (?,?,?,?,?,?,?,?,null)",
                (response.id, conversation.id, prompt, "in_progress", response.model_dump_json(),
                 os.getpid(), time.time(), len(conversation.entries)),
            )  # fmt: skip

    def note(self, response_id: str, note: str) -> None:
        """Something of a turn that runs. It outlives this process; the machine's end it may not, for
        the disk is not waited for."""
        self._db.execute("pragma synchronous = normal")
        self._db.execute("insert into journal values (null,?,?)", (response_id, note))
        self._db.execute("pragma synchronous = full")

    def finish(
        self, conversation: Conversation, response: Response, events: bytes | None = None
    ) -> None:
        """A turn ended: its final response, its events (packed), and the conversation as it is now.

        Where another process went on with the conversation meanwhile, it becomes a branch of that one.
        """
        with self._db:
            self._db.execute("begin immediate")
            self._db.execute(
                "update turns set status = ?, response = ?, events = ? where id = ?",
                (response.status, response.model_dump_json(), events, response.id),
            )
            self._db.execute("delete from journal where turn = ?", (response.id,))
            if conversation.entries or conversation.revision:
                self._part(conversation, response)
                self._write(conversation)

    def fork(self, conversation: Conversation, before: int | None = None) -> Conversation:
        """A branch before an entry (None: after all), kept at once."""
        at = len(conversation.entries) if before is None else before
        branch = conversation.branch(new_id("conv"), at)
        with self._db:
            self._db.execute("begin immediate")
            title, model = self._db.execute(
                "select title, model from conversations where id = ?", (conversation.id,)
            ).fetchone()
            self._add(branch, title, model)
            self._write(branch)
        return branch

    def retell(self, conversation: Conversation, before: str, model: str) -> None:
        """Keep one that tells another again, with that one's title and turns."""
        with self._db:
            self._db.execute("begin immediate")
            (title,) = self._db.execute(
                "select title from conversations where id = ?", (before,)
            ).fetchone()
            self._add(conversation, title, model)
            for turn in self.turns(before):
                response = turn.response.model_copy(update={"id": new_id("resp")})
                self._db.execute(
                    "insert into turns values (?,?,?,?,?,?,?,null,null)",
                    (response.id, conversation.id, turn.prompt, response.status,
                     response.model_dump_json(), os.getpid(), time.time()),
                )  # fmt: skip
            self._write(conversation)

    def rename(self, conversation_id: str, title: str) -> None:
        self._db.execute(
            "update conversations set title = ? where id = ?", (titled(title), conversation_id)
        )

    def delete(self, conversation_id: str) -> None:
        """Forget it; what branches of it share with it stays theirs."""
        with self._db:
            self._db.execute("begin immediate")
            self._db.execute("update conversations set hidden = 1 where id = ?", (conversation_id,))
            self._sweep(conversation_id)
        self._db.execute("pragma wal_checkpoint(truncate)")

    def _add(self, conversation: Conversation, prompt: str, model: str) -> None:
        """The conversation's row; a branch's parent is the one whose own entries it still shares."""
        now, title = time.time(), titled(prompt)
        known = self._db.execute(
            "select revision from conversations where id = ? and not hidden", (conversation.id,)
        ).fetchone()
        if known is None and conversation.revision:  # deleted, but it goes on
            conversation.saved, conversation.revision = conversation.shared, 0
        while known is None and (parent := conversation.parent) is not None:
            row = self._db.execute(
                "select parent, shared, title from conversations where id = ?", (parent,)
            ).fetchone()
            if row is None:  # never kept: all entries are the branch's own
                conversation.parent, conversation.shared, conversation.saved = None, 0, 0
            elif row[0] is not None and conversation.shared <= row[1]:
                conversation.parent = row[0]
            else:
                title = row[2] if conversation.shared else title
                self._compare(conversation, parent)
                break
        self._db.execute(
            "insert into conversations values (?,?,?,?,?,?,?,?,?,?)"
            " on conflict(id) do update set updated = excluded.updated, hidden = 0,"
            " shared = min(shared, excluded.shared),"
            " revision = iif(hidden, 0, revision)",
            (conversation.id, title, model, conversation.vocabulary, now, now,
             conversation.parent, conversation.shared, 0, 0),
        )  # fmt: skip

    def _compare(self, conversation: Conversation, parent: str) -> None:
        """It shares no more with its parent than is the same: that may have changed meanwhile."""
        theirs = [entry.ids for entry in self._entries(parent)]
        ours = [entry.ids for entry in conversation.entries[: conversation.shared]]
        conversation.shared = alike(ours, theirs)
        conversation.saved = min(conversation.saved, conversation.shared)

    def _part(self, conversation: Conversation, response: Response) -> None:
        """What another process went on with meanwhile stays as it is: this becomes a branch of it."""
        row = self._db.execute(
            "select revision, title from conversations where id = ? and not hidden",
            (conversation.id,),
        ).fetchone()
        if row is None:
            raise sqlite3.IntegrityError("it was deleted meanwhile")
        if row[0] != conversation.revision:
            conversation.parent, conversation.shared = conversation.id, conversation.saved
            conversation.id, conversation.revision = new_id("conv"), 0
            self._add(conversation, row[1], response.model)
            self._db.execute(
                "update turns set conversation = ? where id = ?", (conversation.id, response.id)
            )

    def _write(self, conversation: Conversation) -> None:
        """Entries that are new, and what the prompt is made of."""
        name, kept = conversation.id, conversation.saved
        self._leave(name, kept)
        conversation.shared = min(conversation.shared, kept)
        self._db.execute(
            "update conversations set vocabulary = ?, revision = revision + 1,"
            " shared = min(shared, ?) where id = ?",
            (conversation.vocabulary, kept, name),
        )
        self._db.execute(
            "delete from entries where conversation = ? and position >= ?", (name, kept)
        )
        self._db.executemany(
            "insert into entries values (?,?,?,?,?,?)",
            (
                (name, at, blob(entry.ids), entry.reasoning, entry.role, entry.recipient)
                for at, entry in enumerate(conversation.entries[kept:], kept)
            ),
        )
        self._db.execute("delete from shortened where conversation = ?", (name,))
        self._db.executemany(
            "insert into shortened values (?,?,?)",
            (
                (name, at, blob(entry.short))
                for at, entry in enumerate(conversation.entries)
                if entry.short is not None
            ),
        )
        self._db.execute("delete from compactions where conversation = ?", (name,))
        if (made := conversation.compacted) is not None:
            self._db.execute(
                "insert into compactions values (?,?,?,?)",
                (name, made.upto, made.text, blob(made.ids)),
            )
        conversation.saved = len(conversation.entries)
        conversation.revision += 1

    def _leave(self, name: str, kept: int) -> None:
        """What is written anew stays as it was in the branches that share it, as their own."""
        branches = self._db.execute(
            "select id, shared from conversations where parent = ? and shared > ?", (name, kept)
        )
        for branch, shared in branches.fetchall():
            self._db.execute(
                f"{PATH} insert into entries select ?, position, ids, reasoning, role, recipient"
                " from path join entries on conversation = path.id and position < path.upto"
                " where position >= ? and position < ?",
                (name, branch, kept, shared),
            )
            self._db.execute("update conversations set shared = ? where id = ?", (kept, branch))

    def _sweep(self, conversation_id: str | None) -> None:
        """Of a deleted conversation only what branches share stays; then its parent is looked at."""
        while conversation_id is not None:
            parent, hidden, needed = self._db.execute(
                "select c.parent, c.hidden, max(b.shared) from conversations c"
                " left join conversations b on b.parent = c.id where c.id = ?",
                (conversation_id,),
            ).fetchone()
            if not hidden:
                return
            if needed is None:
                self._db.execute("delete from conversations where id = ?", (conversation_id,))
            for table in ("compactions", "shortened"):
                self._db.execute(f"delete from {table} where conversation = ?", (conversation_id,))
            for table, place in (("entries", "position"), ("turns", "coalesce(start, 0)")):
                self._db.execute(
                    f"delete from {table} where conversation = ? and {place} >= ?",
                    (conversation_id, needed or 0),
                )
            conversation_id = parent

    # --- reading ---

    def find(self, conversation_id: str | None) -> str:
        """A whole id, by its beginning; None: the latest. Raises StoreError."""
        if conversation_id is None:
            row = self._db.execute(
                "select id from conversations where not hidden order by updated desc"
            ).fetchone()
            if row is None:
                raise StoreError("There is no conversation to continue yet.")
            return str(row[0])
        rows = self._db.execute(
            "select id from conversations where not hidden and (id = ?1"
            " or substr(id, 1, length(?1)) = ?1 or substr(id, 1, length(?1) + 5) = 'conv_' || ?1)"
            " order by id != ?1 limit 2",
            (conversation_id,),
        ).fetchall()
        if not rows or (len(rows) > 1 and rows[0][0] != conversation_id):
            what = "no conversation" if not rows else "more than one conversation"
            raise StoreError(f"There is {what} with the id {conversation_id}.")
        return str(rows[0][0])

    def load(self, conversation_id: str | None) -> Conversation:
        """One conversation, by its id or the beginning of it; None: the latest. Raises StoreError."""
        found = self.find(conversation_id)
        row = self._db.execute(
            "select vocabulary, parent, shared, revision, c.upto, summary, ids from conversations"
            " left join compactions c on c.conversation = id where id = ?",
            (found,),
        ).fetchone()
        conversation = Conversation(
            found,
            self._entries(found),
            vocabulary=row[0],
            compacted=Compacted(row[4], row[5], ids_of(row[6])) if row[4] is not None else None,
            parent=row[1],
            shared=row[2],
            revision=row[3],
        )
        conversation.saved = len(conversation.entries)
        return conversation

    def _entries(self, name: str) -> list[Entry]:
        rows = self._db.execute(
            f"{PATH} select e.ids, reasoning, role, recipient, s.ids from path"
            " join entries e on e.conversation = path.id and e.position < path.upto"
            " left join shortened s on s.conversation = ? and s.position = e.position"
            " order by e.position",
            (name, name),
        )
        return [
            Entry(ids_of(ids), bool(reasoning), None, role, recipient, short and ids_of(short))
            for ids, reasoning, role, recipient, short in rows
        ]

    def summaries(self) -> list[Summary]:
        """All conversations, the latest first."""
        rows = self._db.execute(
            "select c.id, c.title, c.model, c.created, c.updated, p.id, c.shared"
            " from conversations c left join conversations p on p.id = c.parent and not p.hidden"
            " where not c.hidden order by c.updated desc"
        )
        return [Summary(*(*row, self._count(row[0]))) for row in rows.fetchall()]

    def search(self, text: str) -> set[str]:
        """Ids of the conversations that have this in their title or in what was said in them, also
        before they branched. Small and capital letters are the same (ASCII)."""
        escaped = re.sub(r"([\\%_])", r"\\\1", text)
        like = f"%{escaped}%"
        # As JSON a text is spelled otherwise: its own quotes and line breaks are not found.
        rows = self._db.execute(
            """
            with recursive said(id, start) as (
                select conversation, coalesce(start, 0) from turns
                where prompt like ?1 escape '\\' or (response like ?1 escape '\\' and exists (
                    select 1 from json_tree(response, '$.output') where type = 'text'
                    and key in ('text', 'arguments', 'output', 'input') and value like ?1 escape '\\'))
                union select b.id, start from said join conversations b on b.parent = said.id
                where start < b.shared
            )
            select id from said union
            select id from conversations where title like ?1 escape '\\'
            """,
            (like,),
        )
        return {row[0] for row in rows}

    def _count(self, conversation_id: str) -> int:
        number: int = self._db.execute(
            f"{PATH} select count(*) from path join turns t"
            " on t.conversation = path.id and coalesce(start, 0) < upto",
            (conversation_id,),
        ).fetchone()[0]
        return number

    def turns(self, conversation_id: str) -> list[KeptTurn]:
        """The turns of a conversation, those before its branching included, in order."""
        rows = self._db.execute(
            f"{PATH} select prompt, response, start, events from path join turns t"
            " on t.conversation = path.id and coalesce(start, 0) < upto order by t.created",
            (conversation_id,),
        )
        return [
            KeptTurn(prompt, Response.model_validate_json(text), start, steered(events))
            for prompt, text, start, events in rows
        ]

    def events(self, response_id: str) -> list[Timed]:
        """Of a turn, as they came; none where they were not kept."""
        row = self._db.execute("select events from turns where id = ?", (response_id,)).fetchone()
        return unpacked(row[0]) if row and row[0] else []

    def alternatives(self, conversation_id: str, start: int) -> list[str]:
        """The conversations that say something else at an entry (itself among them), oldest first.

        They share everything before it: what a person tells by editing or retrying a message.
        """
        origin, (parent, shared) = conversation_id, self._origin(conversation_id)
        while parent is not None and shared >= start:
            origin, (parent, shared) = parent, self._origin(parent)
        rows = self._db.execute(
            "select id from conversations where not hidden and (parent = ?1 and shared = ?2 or"
            " id = ?1 and exists (select * from entries where conversation = ?1 and position = ?2))"
            " order by created",
            (origin, start),
        )
        return [row[0] for row in rows]

    def lineage(self, conversation_id: str) -> list[str]:
        """A conversation and those that it branched from, itself first."""
        return [
            row[0] for row in self._db.execute(f"{PATH} select id from path", (conversation_id,))
        ]

    def _origin(self, conversation_id: str) -> tuple[str | None, int]:
        parent, shared = self._db.execute(
            "select parent, shared from conversations where id = ?", (conversation_id,)
        ).fetchone()
        return parent, shared
