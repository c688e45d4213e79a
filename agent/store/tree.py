"""The tree of conversations: a branch keeps its own entries and reads its parent's before them.

    position     0   1   2   3   4   5   6
    A            u   a   u   a   u   a            parent = null
    B (of A)                 :   u'  a'  u"       parent = A, shared = 4
    C (of B)                 :           u*  a*   parent = B, shared = 6

``PATH`` yields a conversation and its ancestors, each with the number of entries that it gives:
C → (C, all), (B, 6), (A, 4). Reading C takes 0…3 of A, 4…5 of B, and its own from 6 on.

- When A is rewritten from position 2 on, B first gets copies of 2…3 as its own entries and shares
  only 2 (``_copy_to_branches``).
- ``revision`` counts how often a conversation was written. If two processes continue one, the slower
  sees another number than it read, and its conversation becomes a branch (``fork_on_conflict``).
- A deleted conversation that a branch still reads is only hidden (``collect_deleted``).

A ``Conversation`` in memory keeps what the store read or wrote last as a ``StoredVersion``, also in its
copies and branches."""

import hashlib
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace

from agent.conversation.conversation import Conversation, Entry, StoredVersion
from agent.errors import AgentError
from agent.events import Response
from agent.store.damage import READ_ERRORS, describe
from agent.store.records import title_from
from agent.store.schema import ids_from_blob, ids_to_blob
from agent.util.ids import new_id
from agent.util.prefix import common_prefix_length

MAX_TIME_SECONDS = 4_102_444_800.0
"""Seconds since 1970 at the end of the year 2099: a later stamp is a damaged row."""
STEP_SECONDS = 0.001
"""Time between two stamps where the system's clock has gone back."""
PATH = """
with recursive path(id, upto) as (
    select ?, 9e15 union
    select parent, min(upto, shared) from path join conversations using (id)
    where parent is not null
)
"""
"""A conversation and those it branched from, each with the number of entries that it gives."""


class StoreClock:
    """The time of one store, in seconds since 1970. Times within a store never go back, and a clock
    that jumped at one start ages nothing: a stamp is the system's time, or just after the last one."""

    def __init__(self, db: sqlite3.Connection) -> None:
        """Raises sqlite3.Error."""
        self._db = db
        self._opened, self._opened_at = self.now(), time.monotonic()
        if (latest := self._latest()) is not None:
            self._opened = latest

    def now(self) -> float:
        """The system's time, or one just after the latest in the store. Raises sqlite3.Error."""
        return max(time.time(), (self._latest() or 0.0) + STEP_SECONDS)

    def confirmed(self) -> float:
        """The time to measure ages against: never later than the latest stamp when the store was
        opened, and the time that this process has run since."""
        return min(time.time(), self._opened + time.monotonic() - self._opened_at)

    def _latest(self) -> float | None:
        query = "select max(created) from turns where created < ?"
        latest: float | None = self._db.execute(query, (MAX_TIME_SECONDS,)).fetchone()[0]
        return latest


class ConversationChangedError(AgentError):
    """Another process has written the conversation since it was read, or is about to."""


def position_of(conversation: Conversation) -> StoredVersion:
    """Where a conversation is in the tree; a branch that is not stored shares what is stored of it."""
    version = conversation.saved or StoredVersion(conversation.id)
    if version.conversation_id == conversation.id:
        return version  # it shares as much as before until it is written
    if version.revision == 0:  # a branch of what that one, which has no entries yet, branched from
        shared = min(version.shared, version.count)
        return StoredVersion(conversation.id, shared, version.parent, shared)
    return StoredVersion(conversation.id, version.count, version.conversation_id, version.count)


class ConversationTree:
    """Rows of conversations and entries; every method runs within the caller's transaction."""

    def __init__(self, db: sqlite3.Connection, folder: str = "") -> None:
        """``folder``: to which a person's new conversations belong."""
        self._db, self._folder = db, folder
        self.clock = StoreClock(db)

    # --- writing ---

    def add(
        self,
        conversation: Conversation,
        prompt: str,
        model: str,
        source: str = "local",
        owner: str = "",
        folder: str | None = None,
    ) -> None:
        """Insert or touch the row, titled by ``prompt``; a branch's parent is one it shares with.
        ``owner``: the client that a new conversation belongs to; a branch belongs to its parent's.
        ``folder``: another one than a person's new conversations belong to."""
        now, title = self.clock.now(), title_from(prompt)
        query = "select 1 from conversations where id = ? and not hidden"
        if self._db.execute(query, (conversation.id,)).fetchone() is None:
            title = self._attach(conversation, title)
        position = position_of(conversation)
        self._db.execute(
            "insert into conversations values (?1,?2,?3,?4,?5,?5,?6,?7,0,0,?8,null,"
            " coalesce((select owner from conversations where id = ?6), ?9), ?10)"
            " on conflict(id) do update set updated = excluded.updated, hidden = 0,"
            " shared = min(shared, excluded.shared),"
            " revision = iif(hidden, 0, revision), title = iif(title = '', excluded.title, title),"
            " source = iif(excluded.source = 'local', 'local', source),"
            " folder = iif(folder = '', excluded.folder, folder)",
            (conversation.id, title, model, conversation.vocabulary, now,
             position.parent, position.shared, source, owner,
             (self._folder if folder is None else folder) if source == "local" else ""),
        )  # fmt: skip

    def _attach(self, conversation: Conversation, title: str) -> str:
        """Settle what a new row shares, and with which ancestor; returns its title."""
        position = position_of(conversation)
        if position.revision:  # deleted meanwhile, and continued all the same
            shared = min(position.shared, position.count)
            theirs = [entry.ids for entry in self.read_entries(conversation.id)[0]]
            ours = [entry.ids for entry in conversation.entries]
            kept = max(shared, common_prefix_length(theirs, ours))  # branches still read it
            position = StoredVersion(conversation.id, kept, position.parent, shared)
        query = "select parent, shared, title from conversations where id = ?"
        while (parent := position.parent) is not None:
            row = self._db.execute(query, (parent,)).fetchone()
            if row is None:  # deleted: all entries are the branch's own
                position = StoredVersion(conversation.id)
            elif row[0] is not None and position.shared <= row[1]:
                position = replace(position, parent=row[0])
            else:  # share no more with the parent than is still the same there
                theirs = [entry.ids for entry in self.read_entries(parent)[0]]
                ours = [entry.ids for entry in conversation.entries[: position.shared]]
                shared = common_prefix_length(ours, theirs)
                count = min(position.count, shared)
                position = StoredVersion(conversation.id, count, parent, shared)
                title = str(row[2]) if shared else title
                break
        conversation.saved = position
        return title

    def check_unchanged(self, conversation: Conversation) -> None:
        """Raises ConversationChangedError if it was written or deleted since, or a turn runs."""
        row = self._db.execute(
            "select revision, exists (select 1 from turns where conversation = ?1"
            " and status = 'in_progress') from conversations where id = ?1 and not hidden",
            (conversation.id,),
        ).fetchone()
        if row != (position_of(conversation).revision, 0):
            raise ConversationChangedError

    def fork_on_conflict(self, conversation: Conversation, response: Response) -> None:
        """Make it a branch of itself if it was written since. Raises sqlite3.IntegrityError."""
        query = "select revision, title, source from conversations where id = ? and not hidden"
        if (row := self._db.execute(query, (conversation.id,)).fetchone()) is None:
            raise sqlite3.IntegrityError("it was deleted meanwhile")
        if row[0] != position_of(conversation).revision:
            self._fork(conversation, response, row[1], row[2])

    def fork_abandoned(self, conversation: Conversation, response: Response) -> None:
        """Make a branch of a conversation that this response does not extend."""
        query = "select title from conversations where id = ?"
        if (row := self._db.execute(query, (conversation.id,)).fetchone()) is not None:
            self._fork(conversation, response, row[0], "http")

    def _fork(
        self, conversation: Conversation, response: Response, title: str, source: str
    ) -> None:
        conversation.id = new_id("conv")
        self.add(conversation, title, response.model, source)
        change = "update turns set conversation = ? where id = ?"
        self._db.execute(change, (conversation.id, response.id))

    def write(self, conversation: Conversation) -> None:
        name, position = conversation.id, position_of(conversation)
        saved = position.count
        self._copy_to_branches(name, saved)
        self._db.execute(
            "update conversations set vocabulary = ?, revision = revision + 1,"
            " shared = min(shared, ?) where id = ?",
            (conversation.vocabulary, saved, name),
        )
        self.write_entries(name, saved, conversation.entries[saved:])
        shared, count = min(position.shared, saved), len(conversation.entries)
        revision = position.revision + 1
        conversation.saved = StoredVersion(name, count, position.parent, shared, revision)
        self.write_prompt_choices(conversation)
        self._db.execute("delete from compactions where conversation = ?", (name,))
        if (compacted := conversation.compacted) is not None:
            row = (name, compacted.end, compacted.text, ids_to_blob(compacted.ids))
            self._db.execute("insert into compactions values (?,?,?,?)", row)

    def write_entries(self, name: str, start: int, entries: Sequence[Entry]) -> None:
        """Replace the entries from ``start`` on."""
        delete = "delete from entries where conversation = ? and position >= ?"
        self._db.execute(delete, (name, start))
        rows = (
            (name, at, self.message(entry.ids), entry.reasoning, entry.role, entry.recipient)
            for at, entry in enumerate(entries, start)
        )
        self._db.executemany("insert into entries values (?,?,?,?,?,?)", rows)

    def write_prompt_choices(self, conversation: Conversation) -> None:
        name, count = conversation.id, conversation.saved_count
        entries = list(enumerate(conversation.entries[:count]))
        for table in ("shortened", "entry_marks"):
            self._db.execute(f"delete from {table} where conversation = ?", (name,))
        shortened = [
            (name, at, ids_to_blob(entry.shortened_ids))
            for at, entry in entries
            if entry.shortened_ids is not None
        ]
        self._db.executemany("insert into shortened values (?,?,?)", shortened)
        marks = [(name, at, e.dropped, e.pinned) for at, e in entries if e.dropped or e.pinned]
        self._db.executemany("insert into entry_marks values (?,?,?,?)", marks)

    def message(self, ids: Sequence[int]) -> int:
        """The number under which these ids are stored; a damaged row of theirs is mended."""
        blob = ids_to_blob(list(ids))
        digest = hashlib.sha256(blob).digest()
        find = "select number from messages where digest = ? and ids = ?"
        if (row := self._db.execute(find, (digest, blob)).fetchone()) is None:
            self._db.execute(
                "insert into messages (digest, ids) values (?,?)"
                " on conflict(digest) do update set ids = excluded.ids",
                (digest, blob),
            )
            row = self._db.execute(find, (digest, blob)).fetchone()
        return int(row[0])

    def _copy_to_branches(self, name: str, saved: int) -> None:
        """Give branches that share what is about to be rewritten their own copy of it."""
        query = "select id, shared from conversations where parent = ? and shared > ?"
        for branch, shared in self._db.execute(query, (name, saved)).fetchall():
            self._db.execute(
                f"{PATH} insert into entries select ?, position, message, reasoning, role, recipient"
                " from path join entries on conversation = path.id and position < path.upto"
                " where position >= ? and position < ?",
                (name, branch, saved, shared),
            )
            self._db.execute("update conversations set shared = ? where id = ?", (saved, branch))

    def collect_deleted(self, conversation_id: str | None) -> None:
        """Remove what no branch reads of a hidden conversation, then look at its parent."""
        while conversation_id is not None:
            parent, hidden, needed = self._db.execute(
                "select c.parent, c.hidden, max(b.shared) from conversations c"
                " left join conversations b on b.parent = c.id where c.id = ?",
                (conversation_id,),
            ).fetchone()
            if not hidden:
                break
            if needed is None:
                self._db.execute("delete from conversations where id = ?", (conversation_id,))
            for table in ("compactions", "shortened", "entry_marks"):
                self._db.execute(f"delete from {table} where conversation = ?", (conversation_id,))
            for table, column in (("entries", "position"), ("turns", "coalesce(start, 0)")):
                delete = f"delete from {table} where conversation = ? and {column} >= ?"
                self._db.execute(delete, (conversation_id, needed or 0))
            conversation_id = parent
        self.collect_messages()

    def collect_messages(self) -> None:
        self._db.execute(
            "delete from messages where"
            " not exists (select 1 from entries where message = number)"
            " and not exists (select 1 from pending_entries where message = number)"
        )

    # --- reading ---

    def read_entries(self, name: str) -> tuple[list[Entry], str | None]:
        """The entries of a conversation, its ancestors' included, up to the first damaged one, and what
        is wrong with that; None: nothing is."""
        entries: list[Entry] = []
        try:
            rows = self._db.execute(
                f"{PATH} select e.position, m.ids, reasoning, role, recipient, s.ids,"
                " coalesce(dropped, 0), coalesce(pinned, 0) from path"
                " join entries e on e.conversation = path.id and e.position < path.upto"
                " left join messages m on m.number = e.message"
                " left join shortened s on s.conversation = ? and s.position = e.position"
                " left join entry_marks k on k.conversation = ? and k.position = e.position"
                " order by e.position",
                (name, name, name),
            )
            for position, ids, reasoning, role, recipient, short, drop, pin in rows:
                if position != len(entries):
                    return entries, f"message {len(entries)} is missing"
                short_ids = short and _read_ids(short)
                marks = bool(drop), bool(pin)
                entries.append(
                    Entry(_read_ids(ids), bool(reasoning), None, role, recipient, short_ids, *marks)
                )
        except READ_ERRORS as error:
            return entries, f"message {len(entries)}: {describe(error)}"
        return entries, None

    def lineage(self, conversation_id: str) -> list[str]:
        """A conversation and those that it branched from, itself first; none if it is not stored."""
        # The cross join keeps the order.
        query = f"{PATH} select path.id from path cross join conversations using (id)"
        return [row[0] for row in self._db.execute(query, (conversation_id,))]

    def alternatives(self, conversation_id: str, start: int) -> list[str]:
        """The conversations that continue differently from an entry on, the oldest first: versions of
        one message that a person edited or retried. None of one that is not stored."""
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

    def _origin(self, conversation_id: str) -> tuple[str | None, int]:
        query = "select parent, shared from conversations where id = ?"
        row: tuple[str | None, int] | None
        row = self._db.execute(query, (conversation_id,)).fetchone()
        return row or (None, 0)


def _read_ids(blob: object) -> list[int]:
    if not isinstance(blob, bytes):
        raise ValueError("its tokens are missing")
    ids = ids_from_blob(blob)
    if min(ids, default=0) < 0:
        raise ValueError("its tokens are invalid")
    return ids
