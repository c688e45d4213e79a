"""Conversations on disk: one SQLite file for every interface. A turn is written when it starts, noted
while it runs (`recorder.py`), and written when it ends. One whose process is gone is marked failed when
the store is opened again (`recovery.py`). Conversations form a tree (`tree.py`)."""

import asyncio
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from agent.conversation.conversation import CompactedPrefix, Conversation, Entry, StoredVersion
from agent.errors import AgentError
from agent.events import Response
from agent.store import reserve
from agent.store.damage import DamageLog, explain
from agent.store.event_codec import TimedEvent, read_record, unpack_events
from agent.store.lookup import SHORT_ID_LENGTH
from agent.store.records import ConversationSummary, ServedTurn, StoredTurn, TurnRecord, title_from
from agent.store.recovery import begun_here, cut_impossible_parents, mark_lost_turns, recover
from agent.store.schema import connect, connect_memory, give_back_pages, ids_from_blob
from agent.store.tree import MAX_TIME_SECONDS, PATH, ConversationTree, position_of
from agent.util.ids import new_id

T = TypeVar("T")


class StoreError(AgentError):
    """The store cannot be used; the message is one sentence."""


class Store:
    """The conversations of one file. A method blocks, for up to `LOCK_SECONDS` while another program
    writes; a program with an event loop calls all of them in the store's own thread (`run`). A damaged
    row is left out and named in ``damage``, without an exception."""

    def __init__(self, path: Path | None, *, folder: str = "") -> None:
        """Open or create the file, and mark turns of dead processes. ``path``: None: in memory, at most
        `MAX_MEMORY_BYTES`. ``folder``: the one that a person works in, which their new conversations
        belong to. Raises StoreError."""
        damage = DamageLog()
        try:
            db = connect_memory() if path is None else connect(path)
            mark_lost_turns(db)
            cut_impossible_parents(db, damage)
            tree = ConversationTree(db, folder)
            recover(db, damage)
        except (OSError, ValueError, sqlite3.Error) as error:
            raise StoreError(explain(path or Path("memory"), error)) from error
        self.db, self.tree, self.damage, self.folder = db, tree, damage, folder
        self._path, self._thread = path, ThreadPoolExecutor(1, "store")

    # --- its thread ---

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have ``work`` done in the store's thread, after all that was submitted before."""
        return self._thread.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` in the store's thread, after all that was submitted before. Work that has not
        begun when the caller is cancelled is not done."""
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        """Close the file once all that was submitted is done."""
        self.submit(self.db.close).result()

    # --- writing ---

    def begin(
        self,
        conversation: Conversation,
        prompt: str,
        response: Response,
        *,
        start: int | None = None,
        served: dict[str, Any] | None = None,
        folder: str | None = None,
    ) -> None:
        """Write a turn that starts, and its conversation; like `note`, without waiting for the disk.
        ``start``: its first entry (None: the next one). ``served``: for the endpoint; None: a person's
        turn. ``folder``: a new conversation's, where not the store's. Raises sqlite3.Error, and
        ConversationChangedError where it cannot extend a client's."""
        source = "local" if served is None else "http"
        if start is None:
            start = len(conversation.entries)
        if self._path is not None:
            if not self._path.exists():  # SQLite would write to a file without a name
                raise sqlite3.InterfaceError(f"{self._path} is gone")
            reserve.hold(self.db, self._path)
        stored = None if served is None else json.dumps(served)
        owner = (served or {}).get("owner", "")
        begun_here.add(response.id)  # first: another thread may look for turns that are lost
        with self._not_waiting_for_disk(), self.db:
            self.db.execute("begin immediate")
            if response.conversation is not None:
                self.tree.check_unchanged(conversation)
            self.tree.add(conversation, prompt, response.model, source, owner, folder)
            self.db.execute(
                "insert into turns values (?,?,?,?,?,?,?,?,null,null,null,?)",
                (response.id, conversation.id, prompt, "in_progress", response.model_dump_json(),
                 os.getpid(), self.tree.clock.now(), start, stored),
            )  # fmt: skip

    @contextmanager
    def _ending(self, response_id: str) -> Iterator[None]:
        """A transaction that ends a turn, which is not lost before."""
        try:
            with self.db:
                self.db.execute("begin immediate")
                yield
        finally:
            begun_here.discard(response_id)

    @contextmanager
    def _not_waiting_for_disk(self) -> Iterator[None]:
        """Writes outlive this process, but not a crash of the system; a commit saves up to 8 ms."""
        self.db.execute("pragma synchronous = normal")
        try:
            yield
        finally:
            self.db.execute("pragma synchronous = full")

    def note(self, response_id: str, note: str) -> None:
        """Append to a running turn's journal, without waiting for the disk. Raises sqlite3.Error."""
        with self._not_waiting_for_disk():
            self.db.execute(
                "insert into journal select null, id, ? from turns"
                " where id = ? and status = 'in_progress'",
                (note, response_id),
            )

    def finish(
        self,
        conversation: Conversation,
        response: Response,
        events: bytes | None = None,
        served: dict[str, Any] | None = None,
    ) -> None:
        """Write a turn that ended, its packed events, and the conversation. Raises sqlite3.Error. If
        the conversation was continued meanwhile, or may not be extended, this is a branch. A served
        turn that was deleted meanwhile is not written."""
        with self._ending(response.id):
            query = "select 1 from turns where id = ?"
            if served is not None and not self.db.execute(query, (response.id,)).fetchone():
                return
            self.db.execute("delete from journal where turn = ?", (response.id,))
            if response.abandons_conversation:
                self.tree.fork_abandoned(conversation, response)
            if conversation.entries or position_of(conversation).revision:
                self.tree.fork_on_conflict(conversation, response)
                self.tree.write(conversation)
            upto = sum(not entry.reasoning for entry in conversation.entries)
            self._leave_reasoning_out_of_start(conversation, response.id)
            self.db.execute(
                "update turns set status = ?, response = ?, events = ?, upto = ?, revision = ?,"
                " served = ? where id = ?",
                (response.status, response.model_dump_json(), events, upto,
                 position_of(conversation).revision,
                 None if served is None else json.dumps(served), response.id),
            )  # fmt: skip
            if served is not None:
                # For a continuation of exactly this response, and its items by id.
                pending = [(at, e) for at, e in enumerate(conversation.entries) if e.reasoning]
                self._write_reasoning(response.id, pending)
                items = [(item.id, response.id) for item in response.output]
                self.db.executemany("insert or replace into turn_items values (?,?)", items)
            else:
                self._write_reasoning(response.id, conversation.finished_reasoning)

    def _leave_reasoning_out_of_start(self, conversation: Conversation, response_id: str) -> None:
        """Count no reasoning before the turn, as ``upto`` does: an open call still had it."""
        query = "select coalesce(start, 0) from turns where id = ?"
        for (start,) in self.db.execute(query, (response_id,)).fetchall():
            reasoning = sum(at < start for at, _ in conversation.finished_reasoning)
            reasoning += sum(entry.reasoning for entry in conversation.entries[:start])
            change = "update turns set start = start - ? where id = ?"
            self.db.execute(change, (reasoning, response_id))

    def write_prompt_choices(self, conversation: Conversation) -> None:
        """Write what a person folded, dropped or pinned of a conversation, unless another process has
        continued it: then the branch that its next turn makes has it. Raises sqlite3.Error."""
        query = "select 1 from conversations where id = ? and revision = ? and not hidden"
        with self.db:
            self.db.execute("begin immediate")
            revision = position_of(conversation).revision
            if self.db.execute(query, (conversation.id, revision)).fetchone():
                self.tree.write_prompt_choices(conversation)

    def discard(self, conversation: Conversation, response_id: str) -> None:
        """Delete a turn that never began, and an otherwise empty conversation. Raises sqlite3.Error."""
        name = conversation.id
        with self._ending(response_id):
            self.db.execute("delete from journal where turn = ?", (response_id,))
            self.db.execute("delete from turns where id = ?", (response_id,))
            self.db.execute(
                "delete from conversations where id = ? and revision = 0 and metadata is null"
                " and not exists (select 1 from turns where conversation = conversations.id)"
                " and not exists (select 1 from conversations as c where c.parent = conversations.id)",
                (name,),
            )
            self.db.execute(  # it is not the latest one because of this turn
                "update conversations set updated = coalesce("
                "(select max(created) from turns where conversation = ?1), updated) where id = ?1",
                (name,),
            )

    def _write_reasoning(self, turn: str, reasoning: Sequence[tuple[int, Entry]]) -> None:
        rows = [(turn, at, self.tree.message(entry.ids), entry.role) for at, entry in reasoning]
        self.db.executemany("insert or replace into pending_entries values (?,?,?,?)", rows)

    def fork(self, conversation: Conversation, before: int | None = None) -> Conversation:
        """Branch before an entry (None: after all), and write the branch. Raises sqlite3.Error."""
        at = len(conversation.entries) if before is None else before
        branch = conversation.branch(new_id("conv"), at)
        query = "select title, model from conversations where id = ?"
        with self.db:
            self.db.execute("begin immediate")
            title, model = self.db.execute(query, (conversation.id,)).fetchone()
            self.tree.add(branch, title, model)
            self.tree.write(branch)
        return branch

    def save_converted(
        self, conversation: Conversation, original: str, turns: Sequence[StoredTurn], model: str
    ) -> None:
        """Write a conversation with the texts and the title of ``original``. Raises sqlite3.Error."""
        query = "select title from conversations where id = ?"
        with self.db:
            self.db.execute("begin immediate")
            row = self.db.execute(query, (original,)).fetchone()
            prompt = turns[0].prompt if turns else ""
            title = prompt if row is None else row[0]  # None: deleted meanwhile
            self.tree.add(conversation, title, model)
            prompts = [n for n, e in enumerate(conversation.entries) if e.role == "user"]
            bounds = pairwise([*prompts, len(conversation.entries)])
            for turn, (start, end) in zip(turns, bounds, strict=True):
                response = turn.response.model_copy(update={"id": new_id("resp")})
                self.db.execute(
                    "insert into turns (id, conversation, prompt, status, response, pid, created,"
                    " start, upto) values (?,?,?,?,?,?,?,?,?)",
                    (response.id, conversation.id, turn.prompt, response.status,
                     response.model_dump_json(), os.getpid(), self.tree.clock.now(), start, end),
                )  # fmt: skip
            self.tree.write(conversation)

    def rename(self, conversation_id: str, title: str) -> None:
        change = "update conversations set title = ? where id = ?"
        self.db.execute(change, (title_from(title), conversation_id))

    def first_line_title(self, conversation_id: str) -> str | None:
        """A conversation's title, while it is the first line of its first prompt; else None."""
        row = self.db.execute(
            "select title, prompt from conversations join turns on turns.conversation ="
            " conversations.id where conversations.id = ? order by turns.created limit 1",
            (conversation_id,),
        ).fetchone()
        return str(row[0]) if row is not None and row[0] == title_from(row[1]) else None

    def replace_title(self, conversation_id: str, before: str, title: str) -> None:
        """Give a conversation another title, unless it has another than ``before`` by now."""
        change = "update conversations set title = ? where id = ? and title = ?"
        self.db.execute(change, (title_from(title), conversation_id, before))

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation, but for what branches share, and branches of unfinished responses."""
        with self.db:
            self.db.execute("begin immediate")
            for name in [*self._abandoned_branches(conversation_id), conversation_id]:
                self.db.execute("update conversations set hidden = 1 where id = ?", (name,))
                self.tree.collect_deleted(name)
        give_back_pages(self.db)

    def _abandoned_branches(self, conversation_id: str) -> list[str]:
        rows = self.db.execute(
            "select distinct c.id from conversations c cross join turns on turns.conversation = c.id"
            " where parent is not null and source = 'http' and metadata is null and c.id != ?1"
            " and json_valid(response) and json_extract(response, '$.conversation.id') = ?1",
            (conversation_id,),
        )
        return [name for (name,) in rows.fetchall()]

    # --- reading ---

    def find(self, conversation_id: str | None) -> str:
        """The full id of a conversation, from the beginning of its id or that of one of its responses;
        None: the one that a person continued last in this folder. Raises StoreError."""
        if conversation_id is None:
            row = self.db.execute(
                "select id from conversations where not hidden and source = 'local'"
                " and folder = ? order by updated desc",
                (self.folder,),
            ).fetchone()
            if row is None:
                raise StoreError(
                    "There is no conversation to continue yet in this folder; for those of others, see:"
                    " agent sessions list --all"
                )
            return str(row[0])
        # A shorter one is not chosen by a person: it is a variable that is not set, say.
        is_long = len(conversation_id.removeprefix("conv_")) >= SHORT_ID_LENGTH
        rows = self.db.execute(
            "select id from conversations where not hidden and (id = ?1"
            " or id = (select conversation from turns where turns.id = ?1)"
            " or ?2 and (substr(id, 1, length(?1)) = ?1"
            " or substr(id, 1, length(?1) + 5) = 'conv_' || ?1))"
            " order by id != ?1 limit 2",
            (conversation_id, is_long),
        ).fetchall()
        if not rows and not is_long:
            raise StoreError(
                f"{conversation_id!r} is not an id: give at least {SHORT_ID_LENGTH} characters of one."
            )
        if not rows or (len(rows) > 1 and rows[0][0] != conversation_id):
            what = "no conversation" if not rows else "more than one conversation"
            raise StoreError(f"There is {what} with the id {conversation_id}.")
        return str(rows[0][0])

    def load(self, conversation_id: str | None) -> Conversation:
        """Read a conversation, named as in `find`; a damaged one as a branch. Raises StoreError."""
        conversation, intact = self._read(self.find(conversation_id))
        if not intact:
            return self.fork(conversation)
        if (last := self.last_turn(conversation)) and (response := self._response(*last[:2])):
            conversation.unanswered = response.client_calls
        return conversation

    def _rows(self, subject: str, query: str, values: tuple[object, ...]) -> Iterator[Any]:
        """The rows of a query, up to where the file cannot be read any more."""
        try:
            yield from self.db.execute(query, values)
        except sqlite3.Error as error:
            self.damage.note(subject, error)

    def read(self, name: str) -> Conversation:
        """Read a conversation by its full id, up to its first damaged message."""
        return self._read(name)[0]

    def _read(self, name: str) -> tuple[Conversation, bool]:
        """A conversation as far as it can be read, and whether that is all of it."""
        entries, flaw = self.tree.read_entries(name)
        if flaw is not None:
            self.damage.note(f"The end of conversation {name}", flaw)
        query = "select vocabulary, parent, shared, revision from conversations where id = ?"
        vocabulary, parent, shared, revision = self.db.execute(query, (name,)).fetchone()
        conversation = Conversation(
            name, entries, vocabulary=vocabulary, compacted=self._compacted(name, len(entries))
        )
        conversation.saved = StoredVersion(name, len(entries), parent, shared, revision)
        return conversation, flaw is None

    def _compacted(self, name: str, entry_count: int) -> CompactedPrefix | None:
        query = "select upto, summary, ids from compactions where conversation = ?"
        for upto, summary, ids in self._rows(f"Conversation {name}", query, (name,)):
            with self.damage.noting(f"The summary of conversation {name}"):
                if not 0 < upto <= entry_count:
                    raise ValueError(f"it stands for {upto} of {entry_count} messages")
                return CompactedPrefix(upto, summary + "", ids_from_blob(ids))
        return None

    def last_turn(self, conversation: Conversation) -> tuple[str, str, bool] | None:
        """The turn with which a conversation ends: id, response (JSON), whether it is the API's."""
        row: tuple[str, str, bool] | None = self.db.execute(
            "select id, response, served is not null from turns where conversation = ? and upto = ?"
            " order by created desc, rowid desc limit 1",
            (conversation.id, sum(not entry.reasoning for entry in conversation.entries)),
        ).fetchone()
        return row

    def _response(self, name: str, text: str) -> Response | None:
        with self.damage.noting(f"Turn {name}"):
            return Response.model_validate_json(text)
        return None

    def summaries(self, *, everywhere: bool = True) -> list[ConversationSummary]:
        """All conversations, the latest first, or those of this folder."""
        if everywhere:
            return list(self._summaries("", ()))
        return list(self._summaries("and c.folder = ?", (self.folder,)))

    def summary(self, name: str) -> ConversationSummary | None:
        return next(self._summaries("and c.id = ?", (name,)), None)

    def _summaries(
        self, condition: str, values: tuple[object, ...]
    ) -> Iterator[ConversationSummary]:
        rows = self._rows(
            "The list of conversations",
            "select c.id, c.title, c.model, c.created, c.updated, p.id, c.shared, c.folder"
            " from conversations c left join conversations p on p.id = c.parent and not p.hidden"
            f" where not c.hidden {condition} order by c.updated desc",
            values,
        )
        for row in rows:
            with self.damage.noting(f"Conversation {row[0]}"):
                if not all(isinstance(value, str) for value in row[:3]):
                    raise TypeError("its title or model is not text")
                created = self.system_time(row[0], row[3], "asc")
                updated = self.system_time(row[0], row[4], "desc")
                for seconds in (created, updated):
                    datetime.fromtimestamp(seconds)
                name, title, model, _, _, parent, shared, folder = row
                times, count = (created, updated), self._count(name)
                yield ConversationSummary(
                    name, title, model, *times, parent, shared, count, str(folder)
                )

    def system_time(self, name: str, stamp: float, order: Literal["asc", "desc"]) -> float:
        """A conversation's stamp, or if it is ahead of the system's clock (`StoreClock`), what that
        clock said at the first turn (``asc``) or at the last one."""
        if not time.time() < stamp < MAX_TIME_SECONDS:
            return stamp
        query = (
            "select json_extract(response, '$.created_at') from turns"
            f" where conversation = ? and json_valid(response) order by created {order} limit 1"
        )
        rows = self._rows(f"Conversation {name}", query, (name,))
        return next((float(seconds) for (seconds,) in rows if isinstance(seconds, int)), stamp)

    def search(self, text: str) -> set[str]:
        """Ids of conversations with this text in title, prompts or answers, in either case (ASCII)."""
        escaped = re.sub(r"([\\%_])", r"\\\1", text)
        like = f"%{escaped}%"
        # As JSON a text is spelled otherwise: its own quotes and line breaks are not found.
        rows = self._rows(
            "The searched data",
            """
            with recursive matching(id, start) as (
                select conversation, coalesce(start, 0) from turns
                where prompt like ?1 escape '\\' or (response like ?1 escape '\\' and exists (
                    select 1 from json_tree(iif(json_valid(response), response, '{}'), '$.output')
                    where type = 'text' and key in ('text', 'arguments', 'output', 'input')
                    and value like ?1 escape '\\'))
                union select b.id, start from matching join conversations b on b.parent = matching.id
                where start < b.shared
            )
            select id from matching union
            select id from conversations where title like ?1 escape '\\'
            """,
            (like,),
        )
        return {row[0] for row in rows}

    def _count(self, conversation_id: str) -> int:
        rows = self.db.execute(
            f"{PATH} select count(*) from path join turns t"
            " on t.conversation = path.id and coalesce(start, 0) < path.upto",
            (conversation_id,),
        )
        return int(rows.fetchone()[0])

    def branches_at(self, conversation: Conversation, start: int) -> tuple[int, list[str]]:
        """The conversations that differ from entry ``start`` on, the oldest first, and this one's
        number, from 1; (0, []): there is only one. An unstored branch is the last of its origin's."""
        name, position = conversation.id, position_of(conversation)
        parent, shared = position.parent, position.shared
        if lineage := self.tree.lineage(name):
            branches = self.tree.alternatives(name, start)
        elif parent is not None and start <= shared:
            lineage = [name, *self.tree.lineage(parent)]
            branches = self.tree.alternatives(parent, start)
            branches += [name] if start == shared else []
        else:
            branches = []
        own = next((branch for branch in lineage if branch in branches), None)
        return (branches.index(own) + 1, branches) if own and len(branches) > 1 else (0, [])

    # --- turns ---

    def turns(self, conversation_id: str) -> list[StoredTurn]:
        """The turns of a conversation, those before its branching included, in order."""
        rows = self._rows(
            f"The turns of conversation {conversation_id}",
            f"{PATH} select t.id, prompt, response, start, events from path join turns t"
            " on t.conversation = path.id and coalesce(start, 0) < path.upto order by t.created",
            (conversation_id,),
        )
        turns = []
        for name, prompt, text, start, events in rows:
            if (response := self._response(name, text)) is None:
                continue
            record = TurnRecord()
            with self.damage.noting(f"The record of events of turn {name}"):
                record = read_record(events)
            if isinstance(prompt, str) and isinstance(start, int | None):
                turns.append(StoredTurn(prompt, response, start, record))
            else:
                self.damage.note(f"Turn {name}", "its prompt or start has the wrong type")
        return turns

    def events(self, response_id: str) -> list[TimedEvent]:
        """The events of a turn with their times; none where they were not stored."""
        query = "select events from turns where id = ?"
        for (events,) in self._rows(f"Turn {response_id}", query, (response_id,)):
            with self.damage.noting(f"The record of events of turn {response_id}"):
                return unpack_events(events or b"")
        return []

    def turn_entries(self, conversation: Conversation, response_id: str) -> list[Entry]:
        """A turn's messages as the model read and wrote them, with its reasoning if that was stored."""
        query = "select coalesce(start, 0), coalesce(upto, 0) from turns where id = ?"
        for start, upto in self._rows(f"Turn {response_id}", query, (response_id,)):
            lasting = [entry for entry in conversation.entries if not entry.reasoning]
            entries = [replace(entry, omitted=False) for entry in lasting[start:upto]]
            self._insert_reasoning(entries, response_id, start)
            return entries
        return []

    def _insert_reasoning(self, entries: list[Entry], response_id: str, start: int = 0) -> int:
        """Insert a turn's reasoning into ``entries``, which begin at ``start``; return its index."""
        rows = self.db.execute(
            "select position, ids, role from pending_entries join messages on number = message"
            " where turn = ? order by position",
            (response_id,),
        )
        first = len(entries)
        for position, ids, role in rows.fetchall():
            entries.insert(position - start, Entry(ids_from_blob(ids), True, None, role))
            first = min(first, position - start)
        return first

    def served_turn(self, response_id: str, *, is_latest: bool = False) -> ServedTurn | None:
        """A turn that answered a request, with its conversation as it was then. ``is_latest``: the
        conversation ends with it."""
        row = self.db.execute(
            "select conversation, response, coalesce(upto, start, 0), iif(?, null, revision), served,"
            " events from turns where id = ? and served is not null",
            (is_latest, response_id),
        ).fetchone()
        with self.damage.noting(f"Response {response_id}"):
            if row is None or (served := json.loads(row[4])).get("deleted"):
                return None
            name, response, upto, revision, _, events = row
            if served and not served.keys() >= {"history", "inputs", "request_bytes"}:
                raise ValueError("fields of its request are missing")
            conversation = self.read(name)
            self._rewind(conversation, response_id, upto, revision)
            answer = Response.model_validate_json(response)
            return ServedTurn(answer, conversation, served, events or b"")
        return None

    def _rewind(
        self, conversation: Conversation, response_id: str, upto: int, revision: int | None
    ) -> None:
        """``revision``: that of the conversation then; None: that of now."""
        first = next((at for at, e in enumerate(conversation.entries) if e.reasoning), upto)
        conversation.entries = [e for e in conversation.entries if not e.reasoning][:upto]
        if len(conversation.entries) < upto:
            raise ValueError("messages of its conversation are missing")
        reasoning = self._insert_reasoning(conversation.entries, response_id)
        position = position_of(conversation)
        revision = position.revision if revision is None else revision
        conversation.saved = replace(position, count=min(first, upto, reasoning), revision=revision)
        if conversation.compacted is not None and conversation.compacted.end > upto:
            conversation.compacted = None


def delete_conversation(store: Store, conversation_id: str) -> None:
    """Delete a conversation, its tools' folders and the prefix cache, which may have parts of it."""
    from agent.config.paths import user_paths
    from agent.engine.llama import disk_cache
    from tools.builtin import conversation_folders
    from tools.builtin.files.journal import forget_conversation

    disk_cache.clear(user_paths().prefix_cache)
    # The record goes last: if this is interrupted, it can be deleted again.
    conversation_folders.delete_conversation(user_paths().cache, conversation_id)
    forget_conversation(user_paths().undo, conversation_id)
    store.delete(conversation_id)
