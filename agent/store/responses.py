"""Responses on disk, in the one store: they survive this process, with the very ids of before."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from agent.conversation.conversation import Entry
from agent.errors import UserError
from agent.events import Response
from agent.server.input_items import History, input_items
from agent.server.schemas import InputItem
from agent.store.schema import blob, connect, ids_of, mark_lost
from agent.store.stored_response import Kept
from agent.turn.call_writers import Approved

log = logging.getLogger(__name__)

DAYS, MOST = 30.0, 10_000
"""How long responses are kept, and how many; the oldest go first."""
DAY = 24 * 60 * 60


class Archive:
    """By response id. A response is written when it begins, and again when it ends."""

    def __init__(self, path: Path, *, days: float = DAYS, most: int = MOST) -> None:
        """Open it; what is too old goes. Raises UserError."""
        self._days, self._most = days, most
        try:
            self._db = connect(path)
            # Each commit survives the end of this process; one of the power may cost the latest.
            self._db.execute("pragma synchronous = normal")
            mark_lost(self._db, "responses")
            self.prune()
        except (OSError, ValueError, sqlite3.Error) as error:
            raise UserError(f"The store {path} cannot be used: {error}.") from error

    def close(self) -> None:
        self._db.close()

    def keep(self, kept: Kept) -> None:
        """Write it, in the place of what was written of it before. Raises sqlite3.Error."""
        response, known = kept.response, kept.history
        told = {
            "instructions": known.instructions,
            "calls": known.calls,
            "unanswered": known.unanswered,
            "listed": sorted(known.listed),
            "asked": [astuple(one) for one in known.asked.values()],
        }
        with self._db:
            self._db.execute("begin immediate")
            self._db.execute("delete from responses where id = ?", (response.id,))
            self._db.execute(
                "insert into responses values (?,?,?,?,?,?,?,?,?,?,?)",
                (response.id, kept.conversation, kept.vocabulary, response.status,
                 response.model_dump_json(), json.dumps(told), json.dumps(kept.inputs),
                 kept.request_bytes, kept.events, os.getpid(), time.time()),
            )  # fmt: skip
            self._db.executemany(
                "insert into response_messages values (?,?,?,?,?,?)",
                [
                    (response.id, at, self._message(entry.ids), entry.reasoning, entry.role,
                     entry.recipient)
                    for at, entry in enumerate(kept.entries)
                ],
            )  # fmt: skip
            self._db.executemany(
                "insert or replace into response_items values (?,?)",
                [(item, response.id) for item in kept.items],
            )

    def _message(self, ids: Sequence[int]) -> int:
        """The number under which these ids are kept."""
        spelled = blob(list(ids))
        digest = hashlib.sha256(spelled).digest()
        found = self._db.execute("select number from messages where digest = ?", (digest,))
        if (row := found.fetchone()) is not None:
            return int(row[0])
        made = self._db.execute(
            "insert into messages (digest, ids) values (?,?)", (digest, spelled)
        )
        assert made.lastrowid is not None
        return made.lastrowid

    def find(self, response_id: str) -> Kept | None:
        row = self._db.execute(
            "select conversation, vocabulary, response, known, inputs, request_bytes, events"
            " from responses where id = ?",
            (response_id,),
        ).fetchone()
        if row is None:
            return None
        response, told = Response.model_validate_json(row[2]), json.loads(row[3])
        entries = self._db.execute(
            "select ids, reasoning, role, recipient from response_messages"
            " join messages on number = message where response = ? order by position",
            (response_id,),
        )
        return Kept(
            response,
            tuple(
                Entry(ids_of(ids), bool(reasoning), None, role, recipient)
                for ids, reasoning, role, recipient in entries
            ),
            History(
                [],
                told["instructions"],
                told["calls"],
                set(told["listed"]),
                {one[0]: Approved(*one) for one in told["asked"]},
                unanswered=told.get("unanswered", {}),
            ),
            input_items(response.output),
            tuple(json.loads(row[4])),
            row[5],
            row[0],
            row[1],
            row[6],
        )

    def item(self, item_id: str) -> InputItem | None:
        """The item that a reference means."""
        row = self._db.execute(
            "select response from response_items where item = ?", (item_id,)
        ).fetchone()
        kept = self.find(row[0]) if row else None
        return kept.items.get(item_id) if kept else None

    def forget(self, response_id: str) -> bool:
        """Whether it was there; nothing of it can be read in the file afterwards."""
        with self._db:
            self._db.execute("begin immediate")
            gone = self._db.execute("delete from responses where id = ?", (response_id,)).rowcount
            self._sweep()
        self._db.execute("pragma wal_checkpoint(truncate)")
        return gone > 0

    def prune(self) -> None:
        """What is too old, or one too many, goes."""
        with self._db:
            self._db.execute("begin immediate")
            gone = self._db.execute(
                "delete from responses where status != 'in_progress' and (created < ? or id in"
                " (select id from responses order by created desc, rowid desc limit -1 offset ?))",
                (time.time() - self._days * DAY, self._most),
            ).rowcount
            self._sweep()
        if gone:
            log.info("%d responses were too old or too many to keep", gone)

    def _sweep(self) -> None:
        self._db.execute(
            "delete from messages where not exists"
            " (select 1 from response_messages where message = number)"
        )
