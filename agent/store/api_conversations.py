"""Conversations of ``/v1/conversations`` in the one store: metadata, and the turns that hold the items:
what a request sent in ``inputs``, what the model wrote in the response. Items that a client adds become
turns of their own (``created``). So every interface reads the same."""

import json
import os
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.conversation.conversation import Conversation
from agent.store.conversations import Store
from agent.store.event_codec import read_record
from agent.store.recovery import mark_lost_turns, recover
from agent.store.tree import PATH, position_of


def copy_id(turn_id: str) -> str:
    """A new id for a copy of a turn: ``resp_1.9f…``; item ids are made of what precedes the dot."""
    return f"{turn_id.partition('.')[0]}.{uuid.uuid4().hex[:12]}"


def item_suffix(turn_id: str) -> str:
    """Suffix of the ids of a person's messages in a turn: the same in all copies of the turn."""
    return turn_id.partition("_")[2].partition(".")[0]


@dataclass(frozen=True, slots=True)
class ApiConversation:
    """A conversation as the API shows it."""

    id: str
    created: float
    """Seconds since 1970."""
    metadata: dict[str, str]
    owner: str
    """The client whose it is; empty: no client's."""


@dataclass(slots=True)
class ItemTurn:
    """The items of one turn."""

    id: str
    conversation: str
    """The conversation whose own turn it is: this one, or one that it branched from."""
    prompt: str
    response: dict[str, Any]
    """As JSON; its ``output`` has what the model wrote."""
    start: int | None = None
    """The first of the conversation's entries that are the turn's; None: not known."""
    upto: int | None = None
    """The number of entries once it had ended."""
    served: dict[str, Any] | None = None
    """Data that the endpoint stored with it; None: a turn of a person."""
    steered: tuple[tuple[int, str], ...] = ()
    """The person's messages in its middle: the number of output items before, and the text."""
    events: bytes | None = None
    """The packed events, where they are stored."""
    began: float | None = None
    """Seconds since 1970; None: it is new."""

    @property
    def created(self) -> bool:
        """Whether a client added the items; no model ran."""
        return bool(self.served and self.served.get("created"))


class ApiConversationStore:
    """The conversations of a `Store` by their full ids."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._db: sqlite3.Connection = store.db

    def create(
        self, conversation: Conversation, metadata: dict[str, str], model: str, owner: str = ""
    ) -> None:
        with self._db:
            self._db.execute("begin immediate")
            self.store.tree.add(conversation, "", model, "http", owner)
            self.set_metadata(conversation.id, metadata)

    def find(self, conversation_id: str) -> ApiConversation | None:
        query = "select id, created, metadata, owner from conversations where id = ? and not hidden"
        if (row := self._db.execute(query, (conversation_id,)).fetchone()) is None:
            return None
        created = self.store.system_time(row[0], row[1], "asc")
        return ApiConversation(row[0], created, json.loads(row[2] or "{}"), row[3])

    def set_metadata(self, conversation_id: str, metadata: dict[str, str]) -> None:
        """Replace the metadata; from now on the conversation is kept until it is deleted."""
        change = "update conversations set metadata = ? where id = ?"
        self._db.execute(change, (json.dumps(metadata), conversation_id))

    def keep(self, conversation_id: str) -> None:
        """Keep a conversation that a request names until it is deleted."""
        change = "update conversations set metadata = '{}' where id = ? and metadata is null"
        self._db.execute(change, (conversation_id,))

    def is_running(self, conversation_id: str) -> bool:
        """Whether a turn of the conversation runs, in any process. Raises sqlite3.Error."""
        query = "select 1 from turns where conversation = ? and status = 'in_progress'"
        if self._db.execute(query, (conversation_id,)).fetchone() is None:
            return False
        mark_lost_turns(self._db)
        recover(self._db, self.store.damage)
        return self._db.execute(query, (conversation_id,)).fetchone() is not None

    def turns(self, conversation_id: str) -> list[ItemTurn]:
        """The turns that hold the items, in order; not those that run or that left nothing."""
        turns = []
        rows = self._db.execute(
            f"{PATH} select t.id, conversation, prompt, response, start, t.upto, served, events,"
            " t.created"
            " from path join turns t on t.conversation = path.id and coalesce(start, 0) < path.upto"
            " where status != 'in_progress' and not (status = 'failed' and t.upto is null)"
            " order by t.created, t.rowid",
            (conversation_id,),
        )
        for name, owner, prompt, response, start, upto, served, events, began in rows.fetchall():
            with self.store.damage.noting(f"Turn {name}"):
                turn = ItemTurn(name, owner, str(prompt), json.loads(response), start, upto)
                turn.served, turn.events = served and json.loads(served), events
                turn.began = began
                turn.response["output"] + (turn.served or {"inputs": []})["inputs"]
                if served is None:
                    turn.steered = read_record(events).steered
                turns.append(turn)
        return turns

    def last_response(self, conversation: Conversation) -> str | None:
        """The response of the API with which a conversation ends; None: it ends otherwise."""
        last = self.store.last_turn(conversation)
        return last[0] if last and last[2] else None

    def write(
        self, conversation: Conversation, turns: Sequence[ItemTurn], deleted: Sequence[str] = ()
    ) -> None:
        """Write new and changed turns and the entries; a turn of a parent becomes one of its own.
        ``deleted``: ids of turns without items. Raises sqlite3.Error, ConversationChangedError."""
        name = conversation.id
        with self._db:
            self._db.execute("begin immediate")
            self.store.tree.check_unchanged(conversation)
            self._copy_turns_to_branches(name, position_of(conversation).count)
            self.store.tree.add(conversation, turns[0].prompt if turns else "", "", "http")
            self.store.tree.write(conversation)
            for turn in turns:
                self._write_turn(turn, conversation)
            delete = "delete from turns where id = ? and conversation = ?"
            self._db.executemany(delete, [(turn, name) for turn in deleted])
            self.store.tree.collect_messages()

    def _write_turn(self, turn: ItemTurn, conversation: Conversation) -> None:
        if turn.conversation != conversation.id:
            turn.id, turn.conversation = copy_id(turn.id), conversation.id
            turn.response["id"] = turn.id
        began = self.store.tree.clock.now() if turn.began is None else turn.began
        self._db.execute(
            "insert into turns values (?,?,?,?,?,?,?,?,?,?,?,?) on conflict(id) do update set"
            " prompt = excluded.prompt, response = excluded.response, start = excluded.start,"
            " events = excluded.events, upto = excluded.upto, revision = excluded.revision,"
            " served = excluded.served",
            (turn.id, turn.conversation, turn.prompt, turn.response["status"],
             json.dumps(turn.response), os.getpid(), began, turn.start, turn.events, turn.upto,
             position_of(conversation).revision, turn.served and json.dumps(turn.served)),
        )  # fmt: skip
        self._db.execute("delete from pending_entries where turn = ?", (turn.id,))
        self._db.execute("delete from turn_items where turn = ?", (turn.id,))
        items = [(item["id"], turn.id) for item in turn.response["output"]] if turn.served else []
        self._db.executemany("insert or replace into turn_items values (?,?)", items)

    def _copy_turns_to_branches(self, name: str, saved: int) -> None:
        """Give branches that share what is about to be rewritten copies of its turns."""
        query = "select id, shared from conversations where parent = ? and shared > ?"
        for branch, shared in self._db.execute(query, (name, saved)).fetchall():
            rows = self._db.execute(
                f"{PATH} select t.id, prompt, status, response, pid, created, start, events, t.upto,"
                " revision, served from path join turns t on t.conversation = path.id"
                " and coalesce(start, 0) < path.upto where coalesce(start, 0) between ? and ?"
                " and status != 'in_progress'",
                (name, saved, shared - 1),
            )
            for original, prompt, status, response, *rest in rows.fetchall():
                copy = copy_id(original)
                response = json.dumps(json.loads(response) | {"id": copy})
                row = (copy, branch, prompt, status, response, *rest)
                self._db.execute("insert into turns values (?,?,?,?,?,?,?,?,?,?,?,?)", row)
