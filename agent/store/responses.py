"""Responses of ``/v1/responses`` in the one store: turns that an HTTP client began."""

import logging
import sqlite3
from itertools import islice

from agent.store.conversations import Store
from agent.store.records import ServedTurn
from agent.store.schema import give_back_pages

log = logging.getLogger(__name__)

MAX_DAYS, MAX_RESPONSES = 30.0, 10_000
"""Maximum age and number of stored responses; the oldest are deleted first."""
MAX_RESPONSE_BYTES = 1 << 30
"""Bytes of all responses with their requests; a file that is smaller is not looked into."""
MIN_GROWTH_FRACTION = 8
"""The file grows by an eighth of that before the bytes are counted again, which reads all of them."""
MAX_AGED_FRACTION = 4
"""At most a quarter of the responses is deleted for its age at once: clocks go wrong."""
SECONDS_PER_DAY = 24 * 60 * 60
_IDS = "select turns.id, conversation"
_BYTES = (
    "sum(length(prompt) + length(response) + length(served) + length(coalesce(events, '')))"
    " over (order by turns.created desc, turns.rowid desc) as bytes"
)
"""Bytes of a response and all later ones (characters of its texts, so a little less)."""
_PRUNABLE = (
    "from turns join conversations c on c.id = conversation"
    " where served is not null and c.source = 'http' and c.metadata is null and status != 'in_progress'"
)


class ResponseStore:
    """The responses of a `Store` by their ids. Conversations that a person continued are not pruned."""

    def __init__(
        self,
        store: Store,
        *,
        days: float = MAX_DAYS,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        """Removes what is too old. Raises sqlite3.Error."""
        self.store = store
        self._db: sqlite3.Connection = store.db
        self._days, self._max_responses, self._max_bytes = days, max_responses, max_bytes
        self._counted_at_bytes = 0
        self.prune()

    def find(self, response_id: str) -> ServedTurn | None:
        """A response with its conversation as it was when the response had ended."""
        return self.store.served_turn(response_id)

    def response_with(self, item_id: str) -> str | None:
        row = self._db.execute("select turn from turn_items where item = ?", (item_id,)).fetchone()
        return str(row[0]) if row else None

    def owner(self, response_id: str) -> str:
        """The client whose response it is; empty: no client's, or damaged."""
        row = self._db.execute(
            "select iif(json_valid(served), json_extract(served, '$.owner'), null) from turns"
            " where id = ?",
            (response_id,),
        ).fetchone()
        return str(row[0] or "") if row else ""

    def delete(self, response_id: str) -> bool:
        """Delete a response; False if there is none. Its text stays in prompts of later responses only,
        its items in a client's conversation."""
        with self._db:
            self._db.execute("begin immediate")
            if (detached := self._detach(response_id)) is not None:
                return detached
            query = "select id, conversation from turns where id = ? and served is not null"
            deleted = self._delete(query, (response_id,))
        give_back_pages(self._db)
        return deleted > 0

    def _detach(self, response_id: str) -> bool | None:
        """Make a response unknown whose items belong to a client's conversation: True if it was known,
        None for any other response."""
        row = self._db.execute(
            "select json_extract(served, '$.deleted') is null from turns where id = ?"
            " and status in ('completed', 'incomplete') and json_valid(response)"
            " and json_valid(served) and json_extract(response, '$.conversation') is not null",
            (response_id,),
        ).fetchone()
        if row is None:
            return None
        self._db.execute(
            "update turns set served = json_set(served, '$.deleted', json('true')) where id = ?",
            (response_id,),
        )
        return bool(row[0])

    def prune(self) -> None:
        """Delete what is too old (a quarter at most), too many or too large. Raises sqlite3.Error."""
        oldest = self.store.tree.clock.confirmed() - self._days * SECONDS_PER_DAY
        self._prune(
            "too old to store",
            f"{_IDS} {_PRUNABLE} and turns.created < ? order by turns.created"
            " limit 1 + (select count(*) from turns where served is not null) / ?",
            (oldest, MAX_AGED_FRACTION),
        )
        self._prune(
            "too many to store",
            f"{_IDS} {_PRUNABLE} and turns.id in (select id from turns where served is not null"
            " order by created desc, rowid desc limit -1 offset ?)",
            (self._max_responses,),
        )
        self.prune_bytes()

    def try_prune(self) -> None:
        """`prune`; logs a failure."""
        try:
            self.prune()
        except sqlite3.Error as error:
            log.warning("stored responses that are too old are not deleted: %s", error)

    def prune_bytes(self) -> None:
        """Delete the oldest responses, with a margin, where all take too many bytes; logs a failure."""
        try:
            self._prune_bytes(self._max_bytes // MIN_GROWTH_FRACTION)
        except sqlite3.Error as error:
            log.warning("stored responses that take too much space are not deleted: %s", error)

    def _prune_bytes(self, margin: int) -> None:
        size = self._used_bytes()
        if size <= self._max_bytes or size < self._counted_at_bytes + margin:
            return
        query = f"select id, conversation from ({_IDS}, {_BYTES} {_PRUNABLE}) where bytes > ?"
        self._prune("too large to store", query, (self._max_bytes - margin,))
        self._counted_at_bytes = self._used_bytes()

    def _used_bytes(self) -> int:
        names = ("page_count", "freelist_count", "page_size")
        count, free, size = (self._db.execute(f"pragma {name}").fetchone()[0] for name in names)
        return int((count - free) * size)

    def _prune(self, reason: str, query: str, values: tuple[object, ...]) -> None:
        with self._db:
            self._db.execute("begin immediate")
            deleted = self._delete(query, values)
        if deleted:
            log.warning("%d stored responses are deleted: they were %s", deleted, reason)
            give_back_pages(self._db)

    def _delete(self, query: str, values: tuple[object, ...]) -> int:
        """Delete the turns that a query names, and what no other turn needs then."""
        rows = self._db.execute(query, values).fetchall()
        self._db.executemany("delete from turns where id = ?", [(name,) for name, _ in rows])
        for conversation in {conversation for _, conversation in rows}:
            self._trim(conversation)
        if rows:
            self.store.tree.collect_messages()
        return len(rows)

    def _trim(self, conversation: str) -> None:
        """Delete the entries behind a conversation's last turn; all of it where no turn is left."""
        turns, upto, running = self._db.execute(
            "select count(*), max(coalesce(upto, 0)), sum(status = 'in_progress') from turns"
            " where conversation = ?",
            (conversation,),
        ).fetchone()
        shared, metadata = self._db.execute(
            "select max(b.shared), c.metadata from conversations c"
            " left join conversations b on b.parent = c.id where c.id = ?",
            (conversation,),
        ).fetchone()
        if not turns and metadata is None:
            self._db.execute("update conversations set hidden = 1 where id = ?", (conversation,))
            self.store.tree.collect_deleted(conversation)
            return
        if not running:
            entries = enumerate(self.store.tree.read_entries(conversation)[0])
            lasting = (at for at, entry in entries if not entry.reasoning)
            if (end := next(islice(lasting, upto or 0, None), None)) is not None:
                delete = "delete from entries where conversation = ? and position >= ?"
                self._db.execute(delete, (conversation, max(end, shared or 0)))
        self._db.execute(
            "update conversations set title = coalesce((select prompt from turns"
            " where conversation = ?1 order by created, rowid), '') where id = ?1"
            " and source = 'http'",
            (conversation,),
        )
