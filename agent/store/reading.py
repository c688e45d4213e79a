"""The half of the store that reads conversations and turns. A damaged row is left out and named in
``damage``, without an exception."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from agent.conversation.conversation import CompactedPrefix, Conversation, Entry, StoredVersion
from agent.events import Response
from agent.store.damage import READ_ERRORS, DamageLog
from agent.store.event_codec import TimedEvent, read_record, unpack_events
from agent.store.records import ConversationSummary, ServedTurn, StoredTurn, TurnRecord
from agent.store.schema import ids_from_blob
from agent.store.tree import MAX_TIME_SECONDS, PATH, ConversationTree, position_of

SERVED_FIELDS = {"history", "inputs", "request_bytes"}
"""Fields of what the endpoint stored with a response."""


class StoreReader:
    """Reads the conversations of one file."""

    def __init__(self, db: sqlite3.Connection, tree: ConversationTree, damage: DamageLog) -> None:
        self.db, self.tree = db, tree
        self.damage = damage

    def _rows(self, subject: str, query: str, values: tuple[object, ...]) -> Iterator[Any]:
        """The rows of a query, up to where the file cannot be read any more."""
        try:
            yield from self.db.execute(query, values)
        except sqlite3.Error as error:
            self.damage.note(subject, error)

    # --- conversations ---

    def read(self, name: str) -> Conversation:
        """Read a conversation by its full id, up to its first damaged message."""
        return self._read(name)[0]

    def _read(self, name: str) -> tuple[Conversation, bool]:
        """A conversation as far as it can be read, and whether that is all of it."""
        entries, flaw = self.tree.read_entries(name)
        if flaw is not None:
            self.damage.note(f"The end of conversation {name}", flaw)
        vocabulary, parent, shared, revision = self.db.execute(
            "select vocabulary, parent, shared, revision from conversations where id = ?", (name,)
        ).fetchone()
        conversation = Conversation(
            name, entries, vocabulary=vocabulary, compacted=self._compacted(name, len(entries))
        )
        conversation.saved = StoredVersion(name, len(entries), parent, shared, revision)
        return conversation, flaw is None

    def _compacted(self, name: str, entry_count: int) -> CompactedPrefix | None:
        query = "select upto, summary, ids from compactions where conversation = ?"
        for upto, summary, ids in self._rows(f"Conversation {name}", query, (name,)):
            try:
                if not 0 < upto <= entry_count:
                    raise ValueError(f"it stands for {upto} of {entry_count} messages")
                return CompactedPrefix(upto, summary + "", ids_from_blob(ids))
            except READ_ERRORS as error:
                self.damage.note(f"The summary of conversation {name}", error)
        return None

    def _unanswered(self, conversation: Conversation) -> list[Any]:
        row = self.db.execute(
            "select id, response from turns where conversation = ? and upto = ?"
            " order by created desc, rowid desc limit 1",
            (conversation.id, sum(not entry.reasoning for entry in conversation.entries)),
        ).fetchone()
        response = row and self._response(*row)
        return response.client_calls if response else []

    def _response(self, name: str, text: str) -> Response | None:
        try:
            return Response.model_validate_json(text)
        except READ_ERRORS as error:
            self.damage.note(f"Turn {name}", error)
            return None

    def summaries(self) -> list[ConversationSummary]:
        return list(self._summaries("", ()))

    def summary(self, name: str) -> ConversationSummary | None:
        return next(self._summaries("and c.id = ?", (name,)), None)

    def _summaries(
        self, condition: str, values: tuple[object, ...]
    ) -> Iterator[ConversationSummary]:
        rows = self._rows(
            "The list of conversations",
            "select c.id, c.title, c.model, c.created, c.updated, p.id, c.shared"
            " from conversations c left join conversations p on p.id = c.parent and not p.hidden"
            f" where not c.hidden {condition} order by c.updated desc",
            values,
        )
        for row in rows:
            try:
                if not all(isinstance(value, str) for value in row[:3]):
                    raise TypeError("its title or model is not text")
                created = self.system_time(row[0], row[3], "asc")
                updated = self.system_time(row[0], row[4], "desc")
                for seconds in (created, updated):
                    datetime.fromtimestamp(seconds)
                count = self._count(row[0])
                yield ConversationSummary(*(*row[:3], created, updated, *row[5:], count))
            except READ_ERRORS as error:
                self.damage.note(f"Conversation {row[0]}", error)

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
        number: int = self.db.execute(
            f"{PATH} select count(*) from path join turns t"
            " on t.conversation = path.id and coalesce(start, 0) < path.upto",
            (conversation_id,),
        ).fetchone()[0]
        return number

    def branches_at(self, conversation: Conversation, start: int) -> tuple[int, list[str]]:
        """The conversations that differ from entry ``start`` on, the oldest first, and this one's
        number, from 1; (0, []): there is only one. An unstored branch is the last of its origin's."""
        name, position = conversation.id, position_of(conversation)
        parent, shared = position.parent, position.shared
        if lineage := self.lineage(name):
            branches = self.tree.alternatives(name, start)
        elif parent is not None and start <= shared:
            lineage = [name, *self.lineage(parent)]
            branches = self.tree.alternatives(parent, start)
            branches += [name] if start == shared else []
        else:
            branches = []
        own = next((branch for branch in lineage if branch in branches), None)
        return (branches.index(own) + 1, branches) if own and len(branches) > 1 else (0, [])

    def lineage(self, conversation_id: str) -> list[str]:
        return self.tree.lineage(conversation_id)

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
            try:
                record = read_record(events)
            except READ_ERRORS as error:
                self.damage.note(f"The record of events of turn {name}", error)
            if isinstance(prompt, str) and isinstance(start, int | None):
                turns.append(StoredTurn(prompt, response, start, record))
            else:
                self.damage.note(f"Turn {name}", "its prompt or start has the wrong type")
        return turns

    def events(self, response_id: str) -> list[TimedEvent]:
        """The events of a turn with their times; none where they were not stored."""
        query = "select events from turns where id = ?"
        for (events,) in self._rows(f"Turn {response_id}", query, (response_id,)):
            try:
                return unpack_events(events or b"")
            except READ_ERRORS as error:
                self.damage.note(f"The record of events of turn {response_id}", error)
        return []

    def turn_entries(self, conversation: Conversation, response_id: str) -> list[Entry]:
        """The messages of one of a conversation's turns as the model read and wrote them, its reasoning
        included where that was stored."""
        query = "select coalesce(start, 0), coalesce(upto, 0) from turns where id = ?"
        for start, upto in self._rows(f"Turn {response_id}", query, (response_id,)):
            entries = [
                replace(entry, omitted=False)
                for entry in conversation.entries
                if not entry.reasoning
            ][start:upto]
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
        try:
            if row is None or (served := json.loads(row[4])).get("deleted"):
                return None
            name, response, upto, revision, _, events = row
            if served and not served.keys() >= SERVED_FIELDS:
                raise ValueError("fields of its request are missing")
            conversation = self.read(name)
            self._rewind(conversation, response_id, upto, revision)
            answer = Response.model_validate_json(response)
            return ServedTurn(answer, conversation, served, events or b"")
        except READ_ERRORS as error:
            self.damage.note(f"Response {response_id}", error)
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
